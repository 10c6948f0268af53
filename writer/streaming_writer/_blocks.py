"""Encoded records on their way into a shard: how long each is, and how to write a run of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Block", "Bytes", "MatrixBlock", "PartsBlock"]

Bytes = bytes | bytearray | memoryview
_JOIN_BELOW_BYTES = 2048
"""Parts smaller than this on average are joined first: one call each costs more than the copy."""
_KEEP_FROM_BYTES = 16 << 10
"""Parts of at least this on average are stored from where they lie: the copy costs more."""


class Block(Protocol):
    """A number of encoded records."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each record."""
        ...

    def write(self, start: int, stop: int, out: NDArray[np.uint8]) -> None:
        """Write records `start` to `stop` (exclusive) into `out`, which has exactly their size."""
        ...

    def pieces(self, start: int, stop: int) -> Sequence[bytes] | None:
        """Return records `start` to `stop` as pieces that never change; None if copying is better.

        It is where they are small, or where the caller could change them before they are stored.
        """
        ...


class PartsBlock:
    """Records given as pieces, `per_record` of them each, in order."""

    __slots__ = ("_lengths", "_parts", "_per_record")

    def __init__(self, parts: Sequence[Bytes], per_record: int, lengths: NDArray[np.int64]) -> None:
        """Take the pieces of all records in one flat sequence."""
        self._parts = parts
        self._per_record = per_record
        self._lengths = lengths

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each record."""
        return self._lengths

    def write(self, start: int, stop: int, out: NDArray[np.uint8]) -> None:
        """Write records `start` to `stop` (exclusive) into `out`."""
        parts = self._parts[start * self._per_record : stop * self._per_record]
        if len(out) < _JOIN_BELOW_BYTES * len(parts):
            out[:] = np.frombuffer(b"".join(parts), np.uint8)
            return
        view, at = out.data, 0
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)

    def pieces(self, start: int, stop: int) -> Sequence[bytes] | None:
        """Return the pieces of records `start` to `stop` if all are large and cannot change."""
        parts = self._parts[start * self._per_record : stop * self._per_record]
        if int(self._lengths[start:stop].sum()) < _KEEP_FROM_BYTES * len(parts):
            return None
        kept = [part for part in parts if type(part) is bytes]
        return kept if len(kept) == len(parts) else None


class MatrixBlock:
    """Records of one size, made of columns of one size each."""

    __slots__ = ("_cells", "_lengths", "_size")

    def __init__(self, count: int, cells: Sequence[NDArray[Any]]) -> None:
        """Take the columns in record order: each a 1-D array, or a 2-D one with a row per record.

        A column of one element or one row only stands for all records.
        """
        self._cells = cells
        self._size = sum(cell[0].nbytes for cell in cells)
        # One number seen `count` times, which `plan_cuts` knows to divide by.
        self._lengths = np.broadcast_to(np.int64(self._size), (count,))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each record."""
        return self._lengths

    def write(self, start: int, stop: int, out: NDArray[np.uint8]) -> None:
        """Write records `start` to `stop` (exclusive) into `out`."""
        at = 0
        for cell in self._cells:
            rows = cell if len(cell) == 1 else cell[start:stop]
            shape = (stop - start, *cell.shape[1:])
            strides = (self._size, *cell[0].strides) if cell.ndim > 1 else (self._size,)
            np.ndarray(shape, cell.dtype, out.data, at, strides)[...] = rows
            at += cell[0].nbytes

    def pieces(self, start: int, stop: int) -> None:
        """Return None: columns are no pieces of records, and their arrays can change."""
        del start, stop
