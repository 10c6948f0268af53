"""Server processes of tests: started, waited for, and surely stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.request import ProxyHandler, build_opener

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

__all__ = ["Served", "answers", "connections_to", "free_port", "needs", "serving", "stop"]

_STARTS: Final = 3
_STOP_SECONDS: Final = 3.0
_KILL_SECONDS: Final = 60.0
_TRY_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_TAIL_BYTES: Final = 2000


def needs(name: str, there: object, remedy: str) -> None:
    """Skip the running test where a server is not installed; with `CI` set it fails instead."""
    if there:
        return
    reason = f"{name} is not installed here; {remedy}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on now; `serving` copes where somebody is faster."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def answers(path: str = "/", host: str = "127.0.0.1") -> Callable[[int], bool]:
    """Return a check that a server on a port answers `GET path` with something but an error."""
    opener = build_opener(ProxyHandler({}))

    def check(port: int) -> bool:
        with opener.open(f"http://{host}:{port}{path}", timeout=_TRY_SECONDS) as answer:
            return bool(answer.status < 400)

    return check


def _accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=_TRY_SECONDS):
        return True


@dataclass(frozen=True, slots=True)
class Served:
    """A process that answers."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        """Its address as a URL without a path."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(
    command: Callable[[int], Sequence[str]],
    *,
    ready: Callable[[int], bool] = _accepts,
    within: float = 120.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Generator[Served]:
    """Run `command(port)` on a free port, from when `ready(port)` is true to the block's end.

    `env` is added to this process's environment. A server that exits before it is ready, as one
    does whose port was taken meanwhile, is started again on another port.

    Raises:
        RuntimeError: It exited each time, or was not ready in time; says what it printed last.
    """
    said = ""
    for _ in range(_STARTS):
        port = free_port()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                _dying_with_us(command(port)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
            try:
                problem = _problem(process, port, ready, within)
                if problem is None:
                    yield Served(process, port)
                    return
            finally:
                stop(process)
            output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL_BYTES))
            said = f"{problem}; it said: {output.read().decode(errors='replace')}"
        if process.returncode < 0:  # it was we who ended it
            break
    msg = f"{command(port)[0]} {said}"
    raise RuntimeError(msg)


def _problem(
    process: subprocess.Popen[bytes], port: int, ready: Callable[[int], bool], within: float
) -> str | None:
    """Wait for a foreign process, which tells nobody when it is ready but by its answers.

    Returns why it did not answer.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with suppress(OSError):
            if ready(port) and process.poll() is None:
                return None
        with suppress(subprocess.TimeoutExpired):
            return f"exited with {process.wait(_LOOK_SECONDS)}"
    return f"was not ready after {within:.0f} s"


def connections_to(port: int) -> int:
    """Return how many connections to a port of this machine this process has open; Linux only."""
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            inodes.add(str(link.readlink()).removeprefix("socket:[").rstrip("]"))
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(field[2].endswith(f":{port:04X}") and field[9] in inodes for field in fields)


def stop(process: subprocess.Popen[bytes], seconds: float = _STOP_SECONDS) -> None:
    """End a process that leads a session, and all in it: asked first, killed after `seconds`."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):  # also what it had started and left behind
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_KILL_SECONDS)


def _dying_with_us(command: Sequence[str]) -> list[str]:
    """Let the kernel kill the server when a killed test run cannot."""
    setpriv = shutil.which("setpriv")
    # The kernel watches the thread that starts it, so that must be one which stays.
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return [*command]
    return [setpriv, "--pdeathsig", "KILL", "--", *command]
