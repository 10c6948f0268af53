"""The parent's end of a contender's process: start, ask with a deadline, end."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from _spec import Contender

__all__ = ["ROOT", "ContenderError", "ContenderProcess", "interpreter"]

ROOT = Path(__file__).resolve().parent.parent
_END_SECONDS = 10.0


class ContenderError(Exception):
    """A contender could not do its task; the message says what it said."""


def interpreter(environment: str) -> Path:
    """The Python that runs contenders of `environment`, which need not exist."""
    folders = {"peers": ".venv-bench", "tables": ".venv-bench-tables"}
    own = Path(sys.executable)
    return own if environment == "ours" else ROOT / folders[environment] / "bin/python"


class ContenderProcess:
    """A process that answers one request at a time.

    Use it as a context manager: leaving the block ends the process, and kills it if it does not end
    within ten seconds.

    Args:
        contender: Who is to run.
        log: File that gets whatever the process and its children print.
    """

    def __init__(self, contender: Contender, log: Path) -> None:
        self.contender = contender
        self.log = log
        self._received = b""
        worker = Path(__file__).with_name("_worker.py")
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [interpreter(contender.environment), "-u", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                # Not the checkout: a folder there could be imported in place of a rival.
                cwd="/",
                bufsize=0,
            )

    def ask(self, request: dict[str, Any], *, deadline_seconds: float) -> dict[str, Any]:
        """Send `request` and return the answer; blocks until then, at most to the deadline.

        Raises:
            ContenderError: It failed, ended or did not answer in time.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise ContenderError(self._why("ended early")) from None
        answer: dict[str, Any] = json.loads(self._line(time.monotonic() + deadline_seconds))
        if "error" in answer:
            raise ContenderError(answer["error"])
        return answer

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._process.kill()
                    raise ContenderError(self._why("did not answer in time"))
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise ContenderError(self._why("ended early"))
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _why(self, what: str) -> str:
        tail = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        return f"{what}; its log {self.log.name} ends with: {' | '.join(tail) or 'nothing'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
