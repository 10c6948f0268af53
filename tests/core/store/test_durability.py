"""The order of system calls that makes a put survive a power loss."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

_SCRIPT = """
import sys
from streaming_core._store import LocalStore
store = LocalStore(sys.argv[1], durable=sys.argv[2] == "durable")
store.put("new/a", [b"header", b"body"], if_absent=sys.argv[3] == "create")
"""


def _steps(tmp_path: Path, durability: str, mode: str) -> list[str]:
    """Return the calls of a put as texts like `rename TEMP new/a`, in order."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    root = tmp_path / "store"
    root.mkdir()
    log = tmp_path / "log"
    calls = (
        "mkdir,mkdirat,openat,writev,fsync,rename,renameat,renameat2,link,linkat,unlink,unlinkat"
    )
    tracer = ["strace", "-f", "-y", "-o", str(log), "-e", f"trace={calls}"]
    subprocess.run(
        [*tracer, sys.executable, "-c", _SCRIPT, str(root), durability, mode],
        check=True,
        timeout=120,
    )
    steps: list[str] = []
    for line in log.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)\) = \d", line)
        if call is None or str(root) not in line or "O_RDONLY" in line:
            continue
        paths = re.findall(rf'[<"]{re.escape(str(root))}/?([^>"]*)[>"]', call[2])
        name = call[1].removesuffix("at2").removesuffix("at") if call[1] != "openat" else "create"
        short = ["TEMP" if path.endswith(".tmp") else path or "." for path in paths]
        steps.append(" ".join([name, *dict.fromkeys(short)]))
    return steps


def test_a_put_flushes_file_then_renames_then_flushes_the_folder(tmp_path: Path) -> None:
    """Content first, then the name, then the folder; the new folder's own name before all."""
    steps = _steps(tmp_path, "durable", "replace")
    assert [step.replace("new/TEMP", "TEMP") for step in steps] == [
        "mkdir new",
        "fsync .",
        "create TEMP",
        "writev TEMP",
        "fsync TEMP",
        "rename TEMP new/a",
        "fsync new",
    ]


def test_a_create_only_put_links_between_the_flushes(tmp_path: Path) -> None:
    """Creation is a link, which refuses an existing name, and then the temporary name goes."""
    assert _steps(tmp_path, "durable", "create") == [
        "mkdir new",
        "fsync .",
        "create TEMP",
        "writev TEMP",
        "fsync TEMP",
        "link TEMP new/a",
        "unlink TEMP",
        "fsync new",
    ]


def test_a_put_that_need_not_last_flushes_nothing(tmp_path: Path) -> None:
    """Without `durable` the same steps run, and none waits for the medium."""
    assert _steps(tmp_path, "fast", "replace") == [
        "mkdir new",
        "create TEMP",
        "writev TEMP",
        "rename TEMP new/a",
    ]
