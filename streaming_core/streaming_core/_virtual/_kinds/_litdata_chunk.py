"""The layouts of litData's chunk files: where in the bytes each item is. Pure."""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "MOST_BYTES",
    "Batch",
    "Chunk",
    "Cut",
    "Form",
    "Read",
    "chunk_of",
    "cuts_of",
    "items_of",
    "places_of",
]

Form: TypeAlias = Literal["items", "batches", "whole", "arrow"]
"""Items one after the other; batches of such, compressed; the whole file compressed; or a table."""

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BATCHED: Final = b"LDFZ01\0\0"
_ARROW_END: Final = b"LDARW01\0"
_END_BYTES: Final = 12
_WORD: Final = 4
_HEAD: Final = struct.Struct("<8sIIII")
_BATCH: Final = struct.Struct("<IIQII")
_CUT_BYTES: Final = 16 << 20
MOST_BYTES: Final = 4 << 30
"""Of what a chunk, or a batch of one, expands to."""

Read: TypeAlias = "Callable[[int, int], bytes]"


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Items that are compressed together."""

    first: int
    count: int
    start: int
    packed: int
    """Bytes in the file."""
    size: int
    """Bytes that they expand to."""


class Cut(NamedTuple):
    """Items that become one unit."""

    samples: int
    nbytes: int
    first: int


class Chunk(NamedTuple):
    """What the beginning and the end of a chunk file say."""

    form: Form
    samples: int
    """Its items."""
    offsets: NDArray[np.int64]
    """Where each item begins and the last one ends, among the bytes once they are expanded."""
    batches: tuple[Batch, ...] = ()
    table: tuple[int, int] = (0, 0)
    """Where an Arrow file lies in it."""


def chunk_of(read: Read, size: int, where: str) -> Chunk:
    """Return what a chunk of `size` bytes is; `read` returns bytes from a start to a stop.

    Raises `SourceFormatError` if it is none; says what is wrong.
    """
    head = read(0, min(size, _HEAD.size))
    if head[:4] == _ZSTD:
        return Chunk("whole", 0, np.zeros(1, np.int64))
    if head.startswith(_BATCHED):
        return _batched(read, head, size, where)
    if len(head) < _WORD:
        raise SourceFormatError(_broken(where, f"it has only {size} bytes"))
    count = int.from_bytes(head[:_WORD], "little")
    offsets = _offsets(read, _WORD, count, size, where)
    begin = _WORD * (count + 2)
    if int(offsets[0]) != begin:
        problem = f"its first item begins at byte {offsets[0]}, after {count} items' places {begin}"
        raise SourceFormatError(_broken(where, problem))
    end = int(offsets[-1])
    if end == size:
        return Chunk("items", count, offsets)
    tail = read(size - _END_BYTES, size) if size >= begin + _END_BYTES else b""
    length = int.from_bytes(tail[:_WORD], "little")
    if end == begin and tail[_WORD:] == _ARROW_END and begin + length + _END_BYTES == size:
        return Chunk("arrow", count, offsets, table=(begin, begin + length))
    raise SourceFormatError(_broken(where, f"its last item ends at byte {end} of {size}"))


def cuts_of(chunk: Chunk) -> list[Cut]:
    """Return the units of a chunk: items, or batches, of about as much as is fetched at once."""
    if not chunk.samples:
        return []
    if chunk.form in {"arrow", "whole"}:
        start, stop = chunk.table
        return [Cut(chunk.samples, max(stop - start, int(chunk.offsets[-1])), 0)]
    if chunk.form == "batches":
        allowed = [batch.first for batch in chunk.batches] + [chunk.samples]
    else:
        allowed = list(range(chunk.samples + 1))
    places = chunk.offsets[allowed].tolist()
    found: list[Cut] = []
    at = 0
    while at < len(allowed) - 1:
        stop = max(at + 1, bisect_left(places, places[at] + _CUT_BYTES))
        stop = min(stop, len(allowed) - 1)
        first, last = allowed[at], allowed[stop]
        found.append(Cut(last - first, places[stop] - places[at], first))
        at = stop
    return found


def places_of(form: Form, first: int, count: int) -> tuple[int, int]:
    """Return which bytes of a chunk say where some items begin, and where the last one ends."""
    begin = (_HEAD.size if form == "batches" else _WORD) + _WORD * first
    return begin, begin + _WORD * (count + 1)


def items_of(places: bytes, data: memoryview, where: str) -> list[memoryview]:
    """Return the items in `data`, which begins with the first of them; `places` as `places_of`."""
    offsets = np.frombuffer(places, "<u4").astype(np.int64)
    if not len(offsets) or (np.diff(offsets) < 0).any() or offsets[-1] - offsets[0] != len(data):
        raise SourceFormatError(_broken(where, "its items are not one after the other"))
    bounds = (offsets - offsets[0]).tolist()
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]


def _batched(read: Read, head: bytes, size: int, where: str) -> Chunk:
    if len(head) < _HEAD.size:
        raise SourceFormatError(_broken(where, f"it has only {size} bytes"))
    _, _, count, _, number = _HEAD.unpack(head)
    offsets = _offsets(read, _HEAD.size, count, size, where)
    begin = _HEAD.size + _WORD * (count + 1)
    end = begin + _BATCH.size * number
    if end > size:
        raise SourceFormatError(_broken(where, f"it ends before the places of {number} batches"))
    table = read(begin, end) if number else b""
    batches = tuple(Batch(*_BATCH.unpack_from(table, at)) for at in range(0, len(table), 24))
    place, item = end, 0
    for batch in batches:
        fits = (
            batch.first == item
            and batch.start == place
            and batch.count > 0
            and item + batch.count <= count
            and batch.size <= MOST_BYTES
            and int(offsets[item + batch.count] - offsets[item]) == batch.size
        )
        if not fits:
            raise SourceFormatError(_broken(where, f"its batch of items from {item} on is odd"))
        place, item = place + batch.packed, item + batch.count
    if item != count or place != size:
        problem = f"its batches have {item} of {count} items and end at byte {place} of {size}"
        raise SourceFormatError(_broken(where, problem))
    return Chunk("batches", count, offsets, batches)


def _offsets(read: Read, begin: int, count: int, size: int, where: str) -> NDArray[np.int64]:
    stop = begin + _WORD * (count + 1)
    if stop > size:
        raise SourceFormatError(_broken(where, f"{count} items do not fit {size} bytes"))
    offsets = np.frombuffer(read(begin, stop), "<u4").astype(np.int64)
    if (np.diff(offsets) < 0).any():
        raise SourceFormatError(_broken(where, "its items are not one after the other"))
    return offsets


def _broken(where: str, problem: str) -> str:
    return f"{where}: no whole chunk of litData: {problem}; fetch or write it again"
