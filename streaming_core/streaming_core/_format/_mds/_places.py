"""Columns read from places of their own: fixed values, bytes, text, arrays, everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from streaming_core._columns import Column, Fixed, Objects, Ragged
from streaming_core._format._mds._arrays import DIM_TYPES, DTYPES, ArrayEncoding
from streaming_core._format._mds._objects import Bytes, Str
from streaming_core._format._mds._values import DECODE_ERRORS, fault, reader_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._format._mds._encoding import Encoding
    from streaming_core._format._mds._layout import Layout
    from streaming_core._format._mds._shard import MDSShard
    from streaming_core._format._memory import Memory
    from streaming_core._format._parts import Parts

__all__ = ["Places", "empty_column", "read_column"]

_LARGE: Final = 4096
"""Values of this size on average stay where they are until someone wants them in one piece."""
_MASK, _CONTINUES = 0xC0, 0x80
"""Of the bytes of UTF-8, those that do not begin a character."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the values of one column lie: addresses and sizes, checked to be in their records."""

    parts: Parts[MDSShard]
    memory: Memory
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def value(self, place: int) -> memoryview:
        """Return the bytes of one value."""
        return self.memory.cut(self.starts[place : place + 1], self.sizes[place : place + 1])[0]

    def values(self) -> list[memoryview]:
        """Return the bytes of each value; only for as long as the shards are there."""
        return self.memory.cut(self.starts, self.sizes)

    def kept(self) -> list[memoryview]:
        """Return the bytes of each value, in views that keep their shards there."""
        views = [memoryview(b"")] * len(self)
        for shard, mine in self.parts.by_shard():
            data = shard.bytes.data
            starts = self.starts[mine] - shard.address
            stops = starts + self.sizes[mine]
            for i, a, b in zip(mine.tolist(), starts.tolist(), stops.tolist(), strict=True):
                views[i] = data[a:b]
        return views

    def offsets(self) -> NDArray[np.int64]:
        """Return where each value begins once they are put together."""
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        return offsets


def read_column(places: Places, name: str, encoding: Encoding, layout: Layout | None) -> Column:
    """Return the column `name`, whose values lie at `places`.

    Raises `ShardCorruptError` for the first value that is none.
    """
    if layout is not None:
        return Fixed(layout.of_block(places.memory.pick(places.starts, layout.nbytes)), layout.item)
    if type(encoding) is Bytes:
        if int(places.sizes.sum()) >= _LARGE * max(1, len(places)):
            return Ragged.of_views(places.kept())
        return Ragged(b"".join(places.values()), places.offsets(), "bytes")
    if type(encoding) is Str:
        data, offsets = b"".join(places.values()), places.offsets()
        if data.isascii() or _is_text(data, offsets):
            return Ragged(data, offsets, "str")
    if type(encoding) is ArrayEncoding and len(places):
        column = _alike(places, encoding) or _one_dimensional(places, encoding)
        if column is not None:
            return column
    return _decoded(places, name, encoding)


def empty_column(encoding: Encoding, layout: Layout | None) -> Column:
    """Return the column that `read_column` returns, of no values."""
    if layout is not None:
        return Fixed(np.empty((0, *layout.shape), layout.dtype), layout.item)
    if type(encoding) is Bytes:
        return Ragged(b"", np.zeros(1, np.int64), "bytes")
    if type(encoding) is Str:
        return Ragged(b"", np.zeros(1, np.int64), "str")
    if type(encoding) is ArrayEncoding and encoding.dtype is not None:
        return Ragged(bytearray(), np.zeros(1, np.int64), "array", encoding.dtype)
    return Objects([])


def _decoded(places: Places, name: str, encoding: Encoding) -> Objects:
    """Decode value by value; what is broken is found here, whoever suspected it."""
    read = reader_of(encoding)
    found: list[Any] = []
    for place, data in enumerate(places.values()):
        try:
            found.append(read(data, 0, len(data)))
        except DECODE_ERRORS as error:
            raise places.parts.corrupt(place, fault(name, error)) from error
    return Objects(found)


def _is_text(data: bytes, offsets: NDArray[np.int64]) -> bool:
    """Say whether each value is UTF-8: all together, and none begins within a character."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    begins = offsets[:-1][offsets[:-1] < len(data)]
    firsts = np.frombuffer(data, np.uint8)[begins]
    return not bool(((firsts & _MASK) == _CONTINUES).any())


def _alike(places: Places, encoding: ArrayEncoding) -> Fixed | None:
    """Return arrays that all have one type and shape, or None."""
    data = places.value(0)
    size = len(data)
    if not (places.sizes == size).all():
        return None
    try:
        first = encoding.decode(bytes(data))
    except DECODE_ERRORS:
        return None
    head = size - first.nbytes
    heads = places.memory.pick(places.starts, head)
    if not (heads == heads[0]).all():
        return None
    block = places.memory.pick(places.starts + head, first.nbytes)
    shape = (len(places), *first.shape)
    if not first.nbytes:
        return Fixed(np.empty(shape, first.dtype), "array")
    return Fixed(np.frombuffer(block, first.dtype).reshape(shape), "array")


def _one_dimensional(places: Places, encoding: ArrayEncoding) -> Ragged | None:
    """Return arrays of one dimension and one type whose headers are right, or None."""
    before = 0 if encoding.dtype is not None else 1  # the code of the type
    if int(places.sizes.min()) <= before + 1:
        return None
    heads = places.memory.pick(places.starts, before + 1)
    code, ndims, widths = int(heads[0, 0]), heads[:, before] >> 2, heads[:, before] & 3
    dtype = encoding.dtype if before == 0 else DTYPES.get(code)
    if dtype is None or (ndims != 1).any() or (before and (heads[:, 0] != code).any()):
        return None
    head = before + 1 + (np.int64(1) << widths.astype(np.int64))
    sizes = places.sizes - head
    if int(sizes.min()) < 0 or (sizes % dtype.itemsize).any():
        return None
    for width in map(int, np.unique(widths)):
        (rows,) = np.nonzero(widths == width)
        dims = places.memory.pick(places.starts[rows] + before + 1, 1 << width)
        counts = np.frombuffer(dims, DIM_TYPES[width]).astype(np.uint64)
        if (counts != (sizes[rows] // dtype.itemsize).astype(np.uint64)).any():
            return None
    inner = Places(places.parts, places.memory, places.starts + head, sizes)
    data = bytearray().join(inner.values())  # so that the arrays can be written to
    return Ragged(data, inner.offsets(), "array", dtype)
