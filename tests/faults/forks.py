"""A light process that forks conversions, so that a hundred can be killed in a few seconds.

The children are real processes and die by real signals; only the start of the interpreter and the
imports are shared. Under strace, the system calls of the children can be made to fail or to kill.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CALLS", "Inject", "Outcome", "Server"]

_ROOT = Path(__file__).parents[2]
_ENV = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
_NO_FILE = 1 << 20
Outcome = dict[str, Any]

CALLS: dict[str, tuple[str, Callable[[], object]]] = {
    "close": ("close", lambda: os.close(_NO_FILE)),
    "fsync": ("fsync", lambda: os.fsync(_NO_FILE)),
    "mkdir": ("?mkdir,?mkdirat", lambda: os.mkdir("")),  # noqa: PTH102 - the plain call
    "open": ("?open,?openat", lambda: os.open("", os.O_RDONLY)),
    "rename": ("?rename,?renameat,?renameat2", lambda: os.rename("", "")),  # noqa: PTH104
    "rmdir": ("?rmdir", lambda: os.rmdir("")),  # noqa: PTH106
    "unlink": ("?unlink,?unlinkat", lambda: os.unlink("")),  # noqa: PTH108
    # What removes whole folders.
    "unlinkat": ("unlinkat", lambda: os.unlink("", dir_fd=_NO_FILE)),
    "write": ("writev", lambda: os.writev(_NO_FILE, [b"x"])),
}
"""System calls by plain name: what strace calls them, and a harmless one that fails."""


@dataclass(frozen=True, slots=True)
class Inject:
    """What strace lets happen to the calls that children are armed for.

    strace counts for each thread on its own, from its start, and is told once at which number to
    fire. So a child that wants its n-th call to fail first uses up the calls before.
    """

    what: str
    """As strace has it: `error=EIO`, `signal=KILL`, …"""
    calls: tuple[str, ...]
    """Names in `CALLS`."""
    forever: bool = False
    """Whether all later calls of that kind fail, too."""

    @property
    def fires_at(self) -> int:
        """The call that fails; above what a small conversion makes, and the start of Python."""
        return 2500 if {"open", "close"} & {*self.calls} else 150

    def command(self) -> list[str]:
        """Return the command that runs another one under this."""
        names = ",".join(CALLS[call][0] for call in self.calls)
        when = f"{self.fires_at}{'+' if self.forever else ''}"
        quiet = ["strace", "-f", "-qq", "-o", "/dev/null"]
        if not self.what.startswith("signal"):
            # Stops the threads at the calls looked for only, but then no signal can be sent.
            quiet.append("--seccomp-bpf")
        return [*quiet, "-e", f"trace={names}", "-e", f"inject={names}:{self.what}:when={when}"]


@cache
def _why_no_strace() -> str:
    """Return why calls cannot be made to fail here; empty if they can."""
    command = [*Inject("error=EIO", ("rename",)).command(), sys.executable, "-c", "pass"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    except FileNotFoundError:
        return "strace is not installed"
    return f"strace cannot trace here: {done.stderr.strip()}" if done.returncode else ""


class Server:
    """The parent of the conversions, in a process of its own."""

    def __init__(self, inject: Inject | None = None) -> None:
        """Start it, under strace if something is to be injected; skip where that cannot trace."""
        if inject is not None and _why_no_strace():
            import pytest

            pytest.skip(_why_no_strace())
        self._inject = inject
        self._process = subprocess.Popen(
            [*(inject.command() if inject else []), sys.executable, "-m", "tests.faults.forks"],
            cwd=_ROOT,
            env=_ENV,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, job: str, root: Path, **how: Any) -> Outcome:
        """Run a conversion in a child; return its exit code, duration, ticks, and error if any.

        `kill_after_seconds` and `kill_after_ticks` kill it then. With `fail=(call, n, thread)` the
        n-th `call` of the main thread gets what the server injects, or that of each `worker`, which
        finishes shards, or of each `request` thread, which tidies up.
        `patch` changes something else in the child; see `_PATCHES`.
        """
        if "fail" in how and self._inject:
            call, nth, thread = how["fail"]
            how["fail"] = (call, self._inject.fires_at - nth, thread)
        request = json.dumps({"job": job, "root": str(root), **how})
        stdin, stdout = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        stdin.write(request + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the parent of the conversions died with {self._process.wait()}"
        outcome: Outcome = json.loads(line)
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            cast("IO[str]", process.stdin).close()
            process.wait(timeout=240)


# --- within the process ---------------------------------------------------------------------------


def _serve() -> None:
    from tests.faults.jobs import JOBS

    # Load what a conversion loads late, so that it does not count as the children's calls.
    __import__("streaming_writer")
    for line in sys.stdin:
        request = json.loads(line)
        outcome = _run(JOBS[request["job"]].run, request)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


def _run(convert: Callable[..., object], request: dict[str, Any]) -> Outcome:
    ticks_out, ticks_in = os.pipe()
    error_out, error_in = os.pipe()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(convert, request, ticks_in, error_in)
    os.close(ticks_in)
    os.close(error_in)
    ticks = _watch(pid, ticks_out, request)
    with open(error_out, "rb") as pipe:  # noqa: PTH123 - a descriptor
        error = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - start,
        "ticks": ticks,
        "error": json.loads(error) if error else None,
    }


def _watch(pid: int, ticks_out: int, request: dict[str, Any]) -> int:
    """Count ticks until the child ends, and kill it when its time has come; return the count."""
    seconds, limit = request.get("kill_after_seconds"), request.get("kill_after_ticks")
    deadline = None if seconds is None else time.monotonic() + seconds
    ticks = 0
    try:
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([ticks_out], [], [], left)[0]:
                os.kill(pid, signal.SIGKILL)
                return ticks
            came = os.read(ticks_out, 1)
            if not came:
                return ticks
            ticks += 1
            if ticks == limit:
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ticks_out)


def _child(
    convert: Callable[..., object], request: dict[str, Any], ticks_in: int, error_in: int
) -> None:
    """Convert and end the process, without the cleaning up that its parent will do itself."""
    code = 70
    try:
        if request.get("patch"):
            _PATCHES[request["patch"]]()
        if request.get("fail"):
            _arm(*request["fail"])
        convert(Path(request["root"]), partial(os.write, ticks_in, b"."))
        code = 0
    except BaseException as error:  # noqa: BLE001 - the test judges what it is
        code = 1
        kinds = [kind.__name__ for kind in type(error).__mro__]
        told = {"kinds": kinds, "errno": getattr(error, "errno", None), "text": str(error)}
        told["trace"] = traceback.format_exc()
        with suppress(OSError):
            os.write(error_in, json.dumps(told).encode()[: 1 << 15])
    finally:
        os._exit(code)


def _arm(call: str, unused: int, thread: str) -> None:
    """Use up the calls of a thread before those that count."""

    def burn() -> None:
        harmless = CALLS[call][1]
        for _ in range(unused):
            with suppress(OSError):
                harmless()

    if thread == "main":
        burn()
        return
    from streaming_core import _workers

    start = _workers.start_thread
    burnt = {"worker": "streaming-writer", "request": "streaming-request"}[thread]

    def start_thread(target: Callable[[], object], name: str, **how: Any) -> object:
        def run() -> None:
            if name == burnt:
                burn()
            target()

        return start(run, name, **how)

    vars(_workers)["start_thread"] = start_thread


def _short_writes() -> None:
    """Let each write take five bytes at most, as a signal or a full pipe may."""

    def writev(handle: int, buffers: Any) -> int:
        return os.write(handle, b"".join(buffers)[:5])

    os.writev = writev


def _lone_user() -> None:
    """Become a user who may do nothing."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


_PATCHES = {"short-writes": _short_writes, "lone-user": _lone_user}

if __name__ == "__main__":
    _serve()
