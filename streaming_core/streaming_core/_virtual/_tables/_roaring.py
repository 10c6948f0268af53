"""Roaring bitmaps of 64 bits, as deletion vectors hold them, to positions. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["roaring_positions"]

_WITHOUT_RUNS: Final = 12346
_WITH_RUNS: Final = 12347
_FEW_CONTAINERS: Final = 4
"""A bitmap with runs and fewer containers has no table of where each begins."""
_MOST_IN_ARRAY: Final = 4096
_BITMAP_BYTES: Final = 8192
_HALF: Final = 1 << 16
"""Positions in a container, and containers in a bitmap, at most."""
_MOST_KEY: Final = (1 << 31) - 1


def roaring_positions(data: bytes | memoryview, rows: int, where: str) -> NDArray[np.int64]:
    """Return the positions in a portable 64-bit roaring bitmap: ascending, each once, below `rows`.

    Takes no more memory than `rows` positions need, whatever the bytes claim; negative is without
    a bound.

    Raises:
        SourceFormatError: The bytes are none, or have more or other positions.
    """
    try:
        found = _Reader(memoryview(data), rows).bitmaps()
    except (struct.error, ValueError, IndexError) as error:
        msg = f"{where}: the deletion vector is broken: {error!s:.200}"
        raise SourceFormatError(msg) from error
    if len(found) and rows >= 0 and int(found[-1]) >= rows:
        msg = f"{where}: row {int(found[-1])} is deleted, but the file has {rows} rows"
        raise SourceFormatError(msg)
    return found


class _Reader:
    """Goes through the bytes once."""

    def __init__(self, data: memoryview, rows: int) -> None:
        self._data = data
        self._rows = rows
        self._at = 0
        self._count = 0

    def bitmaps(self) -> NDArray[np.int64]:
        """Return what all bitmaps hold; each has the positions of one upper half."""
        (count,) = struct.unpack("<Q", self._take(8))
        parts: list[NDArray[np.int64]] = []
        last = -1
        for _ in range(count):  # ends early where the bytes do
            (key,) = struct.unpack("<I", self._take(4))
            if not last < key <= _MOST_KEY:
                msg = f"the upper half {key} after {last}"
                raise ValueError(msg)
            last = key
            parts += self._bitmap(key << 32)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _take(self, count: int) -> memoryview:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            msg = f"{count} bytes wanted at {self._at} of {len(self._data)}"
            raise ValueError(msg)
        self._at += count
        return part

    def _bitmap(self, high: int) -> list[NDArray[np.int64]]:
        (cookie,) = struct.unpack("<I", self._take(4))
        runs = np.zeros(0, np.bool_)
        if cookie & 0xFFFF == _WITH_RUNS:
            size = (cookie >> 16) + 1
            packed = np.frombuffer(self._take((size + 7) // 8), np.uint8)
            runs = np.unpackbits(packed, count=size, bitorder="little").astype(np.bool_)
        elif cookie == _WITHOUT_RUNS:
            (size,) = struct.unpack("<I", self._take(4))
        else:
            msg = f"it begins with {cookie}"
            raise ValueError(msg)
        if size > _HALF:
            msg = f"{size} containers"
            raise ValueError(msg)
        header = np.frombuffer(self._take(4 * size), "<u2").reshape(size, 2).astype(np.int64)
        if (np.diff(header[:, 0]) <= 0).any():
            msg = "its containers are out of order"
            raise ValueError(msg)
        if not len(runs) or size >= _FEW_CONTAINERS:
            self._take(4 * size)  # where each begins: right behind the one before
        found: list[NDArray[np.int64]] = []
        for at, (key, less) in enumerate(header.tolist()):
            self._count += less + 1
            if 0 <= self._rows < self._count:
                msg = f"more than the {self._rows} rows of the file"
                raise ValueError(msg)
            values = self._container(less + 1, is_runs=bool(len(runs) and runs[at]))
            if len(values) != less + 1 or (np.diff(values) <= 0).any():
                msg = f"container {at} has {len(values)} positions, or in disorder, not {less + 1}"
                raise ValueError(msg)
            found.append(values + (high + (key << 16)))
        return found

    def _container(self, count: int, *, is_runs: bool) -> NDArray[np.int64]:
        if is_runs:
            (runs,) = struct.unpack("<H", self._take(2))
            pairs = np.frombuffer(self._take(4 * runs), "<u2").reshape(runs, 2).astype(np.int64)
            lengths = pairs[:, 1] + 1
            if int(lengths.sum()) != count or (pairs.sum(axis=1) >= _HALF).any():
                msg = f"runs of {int(lengths.sum())} positions where {count} are said"
                raise ValueError(msg)
            before = np.cumsum(lengths) - lengths
            shifts: NDArray[np.int64] = np.repeat(pairs[:, 0] - before, lengths)
            return np.arange(count) + shifts
        if count <= _MOST_IN_ARRAY:
            return np.frombuffer(self._take(2 * count), "<u2").astype(np.int64)
        bits = np.frombuffer(self._take(_BITMAP_BYTES), np.uint8)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
