"""How the values of a column lie in a shard, where they can be read as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._format._mds._arrays import ArrayEncoding
from streaming_core._format._mds._scalars import Int, is_scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._columns import Item
    from streaming_core._format._mds._encoding import Encoding

__all__ = ["Layout", "layout_of"]

_INT = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Layout:
    """Type and shape of every value of a column, and what a value is in a sample."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    item: Item
    nbytes: int
    """Bytes of a value."""
    strides: tuple[int, ...]
    """Those of a value, in C order."""

    @classmethod
    def of(cls, dtype: np.dtype[Any], shape: tuple[int, ...], item: Item) -> Layout:
        """Return the layout of values in C order."""
        size = dtype.itemsize
        strides = tuple(size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return cls(dtype, shape, item, size * math.prod(shape), strides)

    def of_block(self, block: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the values of a contiguous array that has the bytes of one in each row."""
        return block.view(self.dtype).reshape(len(block), *self.shape)

    def strided(self, records: NDArray[np.void], at: int) -> NDArray[Any]:
        """Return a view of the values that begin `at` bytes into each record."""
        if not len(records):  # no place to begin at
            return np.empty((0, *self.shape), self.dtype)
        return np.ndarray(
            (len(records), *self.shape),
            self.dtype,
            records.data,
            at,
            (records.strides[0], *self.strides),
        )


def layout_of(encoding: Encoding) -> Layout | None:
    """Return how values of `encoding` lie if all of them lie alike, else None.

    Only the encodings themselves: a class that a user derived may decode otherwise.
    """
    if type(encoding) is Int:
        return Layout.of(_INT, (), "int")
    if is_scalar(encoding):
        return Layout.of(encoding.dtype, (), "scalar")
    if type(encoding) is ArrayEncoding and encoding.dtype is not None:
        return (
            None if encoding.shape is None else Layout.of(encoding.dtype, encoding.shape, "array")
        )
    return None
