"""The process of one contender: prepares a task once, then does and measures it when told.

Started by `_process.py` with the Python of the contender's environment. Requests and answers are
JSON, one a line, over stdin and stdout. What a library prints goes to stderr, which is a log file.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from _spec import Outcome, Task

if TYPE_CHECKING:
    from _spec import Timed

__all__ = ["main"]


def main() -> None:
    """Answer requests until stdin ends."""
    answers = _take_stdout()
    timed: Timed | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "prepare":
                timed = _prepare(request)
                answer = _describe(timed)
            else:
                assert timed is not None
                answer = _measure(timed, Path(request["out"]), count=request["count"])
        except Exception as error:  # noqa: BLE001 - the edge of a process: the parent reports it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _take_stdout() -> TextIO:
    """Keep stdout for answers; prints of this process and its children go to stderr instead."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "w", encoding="utf-8")


def _prepare(request: dict[str, Any]) -> Timed:
    module = importlib.import_module(f"contenders.{request['module']}")
    timed: Timed = module.prepare(
        Task(**request["task"]), request["options"], Path(request["shared"])
    )
    # What the preparation made lives to the end; no collection of the timed part looks at it again.
    gc.collect()
    gc.freeze()
    return timed


def _describe(timed: Timed) -> dict[str, Any]:
    versions = {name: _version(name) for name in timed.distributions}
    versions["python"] = platform.python_version()
    return {"versions": versions, "payload_bytes": timed.payload_bytes}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "from its folder"


def _measure(timed: Timed, out: Path, *, count: bool) -> dict[str, Any]:
    rss_before = _reset_peak_rss()
    cpu_before = _cpu_seconds()
    start = time.perf_counter()
    outcome = timed.run(out) or Outcome()
    seconds = time.perf_counter() - start
    cpu_seconds = _cpu_seconds() - cpu_before
    rss_peak = _status_bytes("VmHWM")
    files = [path for path in out.rglob("*") if path.is_file()]
    return {
        "seconds": seconds if outcome.seconds is None else outcome.seconds,
        "num_done": outcome.num_samples,
        "cpu_seconds": cpu_seconds,
        "sync_seconds": _sync(files),
        "rss_before_bytes": rss_before,
        "rss_peak_bytes": rss_peak,
        "num_files": len(files),
        "out_bytes": sum(path.stat().st_size for path in files),
        "requests": outcome.requests,
        "fetched_bytes": outcome.fetched_bytes,
        "num_samples": timed.count(out) if count else None,
    }


def _sync(files: list[Path]) -> float:
    """Bring to the disk what the contender left in the page cache, and say how long it took."""
    start = time.perf_counter()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return time.perf_counter() - start


def _cpu_seconds() -> float:
    """User and system time of this process and of those of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _reset_peak_rss() -> int | None:
    """Let the peak start anew from what is resident now, which is returned."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status_bytes("VmRSS")


def _status_bytes(key: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main()
