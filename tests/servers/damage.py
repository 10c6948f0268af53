"""What faults do to the answers that pass the fault proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.servers.faults import (
    Cut,
    Denied,
    Dribble,
    Flip,
    Latency,
    OtherBytes,
    Page,
    Reset,
    Slow,
    Stall,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers.exchange import Head
    from tests.servers.faults import Fault

__all__ = ["Hurt", "damaged", "delay", "everything", "read_away", "said_instead", "withhold"]

_PIECE_BYTES: Final = 1 << 16
_SLICES_PER_SECOND: Final = 20


class Hurt(Exception):  # noqa: N818 - no error of ours, but what was asked for
    """Ends a connection: by a reset, or as if all had been said."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__(reset)
        self.reset = reset


def said_instead(head: Head, faults: list[Fault]) -> Status | None:
    """Return what is said in the server's place, if anything."""
    for fault in faults:
        if isinstance(fault, Status):
            return fault
        if isinstance(fault, Denied) and fault.valid not in head.get("authorization"):
            return Status(fault.code, "", fault.body)
        if isinstance(fault, Page):
            return Status(200, "", fault.body, after_server=True)
    return None


async def delay(faults: list[Fault]) -> None:
    """Wait as long as the faults say."""
    for fault in faults:
        if isinstance(fault, Latency):
            await asyncio.sleep(fault.seconds)


async def withhold(faults: list[Fault]) -> None:
    """Give no answer at all if that is what the faults say."""
    for fault in faults:
        if isinstance(fault, Reset) and fault.after is None:
            raise Hurt(reset=True)
        if isinstance(fault, Stall) and fault.after is None:
            await asyncio.Event().wait()


async def read_away(pieces: AsyncIterator[bytes]) -> None:
    """Read a body that nobody gets."""
    async for _ in pieces:
        pass


async def everything(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield what comes until the other side has said all."""
    while piece := await reader.read(_PIECE_BYTES):
        yield piece


async def damaged(
    pieces: AsyncIterator[bytes], faults: list[Fault], length: int | None
) -> AsyncIterator[bytes]:
    """Yield a body as the faults leave it, or raise where they end it."""
    at = 0
    ends = [f.after for f in faults if isinstance(f, (Cut, Reset, Stall)) and f.after is not None]
    end = min(ends, default=None)
    async for piece in pieces:
        whole = _changed(piece, at, faults, length)
        kept = whole if end is None else whole[: max(0, end - at)]
        at += len(piece)
        async for part in _paced(kept, faults):
            yield part
        if end is not None and at >= end:
            await _end(faults, end)
    if end is not None:
        await _end(faults, end)


def _changed(piece: bytes, at: int, faults: list[Fault], length: int | None) -> bytes:
    for fault in faults:
        if isinstance(fault, OtherBytes):
            piece = bytes(byte ^ 0xFF for byte in piece)
        elif isinstance(fault, Flip):
            where = fault.at if fault.at >= 0 else fault.at + (length or 0)
            if at <= where < at + len(piece):
                changed = bytearray(piece)
                changed[where - at] ^= 1
                piece = bytes(changed)
    return piece


async def _paced(piece: bytes, faults: list[Fault]) -> AsyncIterator[bytes]:
    size = len(piece)
    pause = 0.0
    for fault in faults:
        if isinstance(fault, Dribble):
            size = min(size, fault.size)
        elif isinstance(fault, Slow):
            size = max(1, min(size, fault.bytes_per_second // _SLICES_PER_SECOND))
            pause = size / fault.bytes_per_second
    for at in range(0, len(piece), max(1, size)):
        yield piece[at : at + size]
        await asyncio.sleep(pause)


async def _end(faults: list[Fault], end: int) -> None:
    for fault in faults:
        if isinstance(fault, Stall) and fault.after == end:
            await asyncio.Event().wait()
        if isinstance(fault, (Cut, Reset)) and fault.after == end:
            raise Hurt(reset=isinstance(fault, Reset))
