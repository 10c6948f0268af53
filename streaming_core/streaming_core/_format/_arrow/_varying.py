"""Columns of an Arrow shard whose values vary in size: texts, bytes and lists of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from streaming_core._columns import Kind, Ragged
from streaming_core._extras import require
from streaming_core._foreign import block_type
from streaming_core._format._memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._format._arrow._shard import ArrowShard
    from streaming_core._format._parts import Parts

__all__ = ["Varying", "gather_varying", "joined", "varying_of"]

_NUMBERS: Final = "iuf"
_BYTE: Final = np.dtype(np.uint8)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Varying:
    """A column of values one after the other, in place: value `i` is from `offsets[i]` to the next.

    Offsets count elements, and bytes from the beginning of `data`.
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    """Not to be written to."""
    kind: Kind
    dtype: np.dtype[Any] = _BYTE
    """Of the elements."""

    def value(self, row: int) -> Any:  # noqa: ANN401 - a text, bytes or an array
        """Return one value, a copy."""
        width = self.dtype.itemsize
        value = self.data[int(self.offsets[row]) * width : int(self.offsets[row + 1]) * width]
        if self.kind == "array":
            return value.view(self.dtype).copy()
        return str(value.data, "utf-8") if self.kind == "str" else value.tobytes()

    def part(self, run: slice) -> Ragged:
        """Return rows that lie side by side, a view."""
        offsets = self.offsets[run.start : run.stop + 1]
        if self.kind == "array":
            offsets = offsets * self.dtype.itemsize
        return Ragged(self.data, offsets, self.kind, self.dtype)


def varying_of(column: Any) -> Varying | None:  # noqa: ANN401 - an Arrow array
    """Return a column in place; None if it is of another type, or anything in it is missing."""
    types = require("pyarrow.types", extra="parquet", purpose="data that is not MDS")
    kind = column.type
    if column.null_count:
        return None
    if types.is_large_string(kind) or types.is_large_binary(kind):
        _, offsets, data = column.buffers()
        raw = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return Varying(
            _bounds(offsets, column), raw, "str" if types.is_large_string(kind) else "bytes"
        )
    if not types.is_large_list(kind):
        return None
    inner, elements = block_type(kind.value_type), column.values
    if inner is None or inner.shape or inner.dtype.kind not in _NUMBERS or elements.null_count:
        return None
    raw = np.empty(0, np.uint8)
    if elements.buffers()[1] is not None:
        start = elements.offset * inner.dtype.itemsize
        raw = np.frombuffer(elements.buffers()[1], np.uint8)[start:]
    return Varying(_bounds(column.buffers()[1], column), raw, "array", inner.dtype)


def _bounds(offsets: Any, values: Any) -> NDArray[np.int64]:  # noqa: ANN401 - an Arrow buffer and array
    if offsets is None or not len(values):
        return np.zeros(1, np.int64)
    return np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)


def gather_varying(parts: Parts[ArrowShard], blocks: Sequence[Varying]) -> Ragged:
    """Return the values of all rows, whichever shard each is of, in memory of their own.

    Raises:
        ShardCorruptError: A value does not lie within the bytes of its shard.
    """
    kind, dtype = blocks[0].kind, blocks[0].dtype
    begins, bounds = _places(parts, blocks)
    data = joined([block.data for block in blocks], begins, bounds)
    return Ragged(data, bounds, kind, dtype)


def _places(
    parts: Parts[ArrowShard], blocks: Sequence[Varying]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the address at which each value begins, and where it does among those wanted."""
    offsets = [block.offsets for block in blocks]
    memory = Memory([each.ctypes.data for each in offsets], [each.nbytes for each in offsets])
    starts = memory.elements(parts.which, parts.rows, offsets[0].dtype)
    stops = memory.elements(parts.which, parts.rows + 1, offsets[0].dtype)
    sizes = stops - starts
    width = blocks[0].dtype.itemsize
    room = parts.each(np.array([len(block.data) // width for block in blocks]))
    worst = np.minimum(np.minimum(starts, sizes), np.subtract(room, stops, out=stops))
    if int(worst.min(initial=0)) < 0:
        place = int((worst < 0).argmax())
        raise parts.corrupt(place, "the value lies outside of the decoded copy")
    if width != 1:
        starts *= width
        sizes *= width
    starts += parts.each(np.array([block.data.ctypes.data for block in blocks], np.int64))
    bounds = np.zeros(parts.length + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return starts, bounds


def joined(
    blocks: Sequence[NDArray[np.uint8]], begins: NDArray[np.int64], bounds: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return the bytes of values that begin at these addresses, one after the other.

    All lie within `blocks`; `bounds` says where each one begins among those wanted.

    Arrow copies them quickest, but takes values of one array only. So one is made up whose buffer
    is all memory from the first block to the last, and in which every second value is one wanted;
    what lies between two of them is no value and is never looked at.
    """
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    count = len(begins)
    total = int(bounds[-1])
    if not total:
        return np.empty(0, np.uint8)
    base = min(block.ctypes.data for block in blocks)
    size = max(block.ctypes.data + len(block) for block in blocks) - base
    ends = np.empty(2 * count + 2, np.int64)
    pairs = ends[1:-1].reshape(count, 2)
    np.subtract(begins, base, out=pairs[:, 0])
    np.subtract(bounds[1:], bounds[:-1], out=pairs[:, 1])
    pairs[:, 1] += pairs[:, 0]
    # The first and the last say how long values are on average, for which Arrow makes room.
    ends[0], ends[-1] = 0, min(size, -(-total // count) * (2 * count + 1))
    memory = arrow.foreign_buffer(base, size, base=blocks)
    made = arrow.Array.from_buffers(
        arrow.large_binary(), 2 * count + 1, [None, arrow.py_buffer(ends), memory], null_count=0
    )
    taken = made.take(_odd_numbers(count))
    return np.frombuffer(taken.buffers()[2], np.uint8, total)


@lru_cache(maxsize=4)
def _odd_numbers(count: int) -> Any:  # noqa: ANN401 - an Arrow array
    """Return the first of them: most calls are for as many values as the one before."""
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    return arrow.array(np.arange(1, 2 * count + 1, 2))
