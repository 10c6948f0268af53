"""Errors and progress on standard error, and the exit codes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import traceback
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from streaming_core.cli._values import clean, json_line
from streaming_core.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["CANNOT", "DEBUG", "NOT_OK", "document", "print_json", "progress_bar", "reported"]

NOT_OK: Final = 1
"""The data is not as it should be."""
CANNOT: Final = 2
"""What was asked for is not there, cannot be read, or cannot be asked for."""

DEBUG: ContextVar[bool] = ContextVar("debug", default=False)
"""Whether errors come with their traceback."""

_P = ParamSpec("_P")


def reported(command: Callable[_P, None]) -> Callable[_P, None]:
    """Let `command` end with one clear message and an exit code instead of a traceback."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except StreamingError as error:
            _complain(error, error.kind, str(error))
        except (typer.Exit, BrokenPipeError):
            raise  # an exit code; or whoever read the output has gone, and the library ends quietly
        except Exception as error:  # noqa: BLE001 - the process's edge
            hint = "" if DEBUG.get() else " (streaming-core --debug … shows where)"
            _complain(error, type(error).__name__, f"{error}{hint}")
        else:
            return
        raise typer.Exit(CANNOT)

    return wrapped


def _complain(error: Exception, kind: str, text: str) -> None:
    if DEBUG.get():
        traceback.print_exception(error)
    first, *rest = text.split("\n")
    print(f"error [{kind}]: {clean(first)}", file=sys.stderr)
    for line in rest:
        print(clean(line), file=sys.stderr)


@contextlib.contextmanager
def progress_bar(label: str) -> Generator[Callable[[int, int], None]]:
    """Give a function of (done, total) that moves a bar; only shown on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(label, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield advance


def document(value: Any) -> Any:  # noqa: ANN401 - a dataclass in, JSON out
    """Return a report as JSON values; its fields are the keys."""
    return dataclasses.asdict(value)


def print_json(value: object) -> None:
    """Print one JSON document on a line of its own."""
    print(json_line(value))
