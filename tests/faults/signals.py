"""Exceptions as signal handlers raise them: anywhere that Python delivers signals."""

from __future__ import annotations

import dis
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

__all__ = ["SignalError", "interrupted", "interrupts", "num_moments"]

# Python looks for signals when these instructions have been executed.
_CHECKED = ("CALL", "JUMP_BACKWARD", "RESUME", "INSTRUMENTED_")
# Not in libraries, which an interrupted import of theirs may leave unusable.
_OURS = (
    "/streaming_core/",
    "/streaming_reader/",
    "/streaming_writer/",
    "/contextlib.py",
    "/weakref.py",
)


class SignalError(BaseException):
    """What the handler raises."""


@cache
def _offsets(code: CodeType, files: tuple[str, ...]) -> frozenset[int]:
    """Return the instructions of a function before which a signal may be delivered.

    It belongs to the instruction before, so both must have the same handler.
    """
    if not any(part in code.co_filename for part in files):
        return frozenset()
    ranges = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    found: set[int] = set()
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if before is not None and before.opname.startswith(_CHECKED):
            offsets = (before.offset, one.offset)
            handlers = [[r.target for r in ranges if r.start <= at < r.end] for at in offsets]
            if handlers[0] == handlers[1]:
                found.add(one.offset)
        before = one
    return frozenset(found)


def interrupted(
    act: Callable[[], object], count: int, also: tuple[str, ...] = ()
) -> SignalError | None:
    """Call `act`, and raise at the `count`-th moment that allows it in this thread.

    Return the exception, whose traceback keeps the variables of all functions that it passed; None
    if `act` ended before.
    """
    try:
        _run(act, count, also)
    except SignalError as error:
        return error
    return None


def num_moments(act: Callable[[], object], also: tuple[str, ...] = ()) -> int:
    """Call `act`; return at how many moments it could have been interrupted."""
    return _run(act, 0, also)


def interrupts(act: Callable[[], object], also: tuple[str, ...] = ()) -> Iterator[SignalError]:
    """Interrupt `act` at every moment in turn; yield each exception.

    There is none where it was raised in a finalizer, in which Python only prints exceptions.
    `also` names more files, those of libraries, in which to raise.
    """
    for count in range(1, num_moments(act, also) + 1):
        error = interrupted(act, count, also)
        if error is not None:
            yield error


def _run(act: Callable[[], object], count: int, also: tuple[str, ...]) -> int:
    seen, files = 0, (*_OURS, *also)

    def begin(frame: FrameType, _: str, __: object) -> Any:
        frame.f_trace_opcodes = bool(_offsets(frame.f_code, files))
        return each if frame.f_trace_opcodes else None

    def each(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if event == "opcode" and frame.f_lasti in _offsets(frame.f_code, files):
            seen += 1
            if seen == count:
                sys.settrace(None)
                raise SignalError
        return each

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        act()
    finally:
        sys.settrace(before)
    return seen
