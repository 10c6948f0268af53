"""What the parts of the script of fixtures share: versions, and processes that are killed."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import streaming_core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ROOT", "listing", "made_by", "run_killed", "settled"]

ROOT: Final = Path(__file__).parents[2]
_WITHIN: Final = 120.0
_STILL: Final = 1.0
_PACKAGES: Final = (
    "deltalake",
    "fastavro",
    "msgspec",
    "numpy",
    "pyarrow",
    "pyiceberg",
    "torch",
    "xxhash",
    "zstandard",
)


def made_by() -> dict[str, str]:
    """Return the versions that made a fixture, and the commit."""
    found = {"streaming_core": streaming_core.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    git = shutil.which("git")
    if git is not None:
        commit = subprocess.run(
            [git, "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        found["commit"] = commit.stdout.strip()
    return found


def listing(folder: Path) -> dict[str, int]:
    """Return the size of each file below a folder."""
    found: dict[str, int] = {}
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = path.stat().st_size
        except FileNotFoundError:
            continue
    return found


def settled(folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether nothing below a folder has changed for a second."""
    before: dict[str, int] = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal before, since
        now = listing(folder)
        if now != before:
            before, since = now, time.monotonic()
        return time.monotonic() - since > _STILL

    return is_settled


def run_killed(
    job: Mapping[str, Any],
    word: str,
    ready: Callable[[], bool] = lambda: True,
    *,
    environment: Mapping[str, str] | None = None,
    count: int = 1,
) -> None:
    """Start a job, wait for the `count`th line that is `word` and until `ready`, and kill it.

    SIGKILL goes to the process and all its children at once.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.compat.jobs", json.dumps(job)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        left = count
        while left:
            line = process.stdout.readline()
            if not line:
                msg = f"the job ended with {process.wait()} before it was to be killed"
                raise RuntimeError(msg)
            left -= line.strip() == word
        deadline = time.monotonic() + _WITHIN
        while not ready():
            if time.monotonic() > deadline or process.poll() is not None:
                msg = "what was to happen before the job is killed did not"
                raise RuntimeError(msg)
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
