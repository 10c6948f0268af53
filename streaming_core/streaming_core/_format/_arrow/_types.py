"""Columns of an Arrow shard that lie there as one block of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from streaming_core._columns import Fixed, Item
from streaming_core._foreign import block_of, block_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Plain", "plain_of"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """A column that is one block of values of one size, in place."""

    values: NDArray[Any]
    """One row for each value, not to be written to."""
    item: Item
    """What one value is to Python."""

    @property
    def address(self) -> int:
        """Where it begins."""
        return int(self.values.ctypes.data)

    @property
    def width(self) -> int:
        """Bytes of one value."""
        return self.values.dtype.itemsize * int(np.prod(self.values.shape[1:], dtype=np.int64))

    def value(self, row: int) -> Any:  # noqa: ANN401 - a number or an array
        """Return one value; arrays are copies."""
        found = self.values[row]
        if self.item == "array":
            return np.array(found)
        return found if self.item == "scalar" else found.item()

    def fixed(self, block: NDArray[Any]) -> Fixed:
        """Return the column that `block`, values of this type, is."""
        return Fixed(block, self.item)


def plain_of(column: Any) -> Plain | None:  # noqa: ANN401 - an Arrow array
    """Return a column as one block; None if its values vary in size, or one is missing."""
    block = block_type(column.type)
    values = None if block is None or column.null_count else block_of(column)
    if block is None or values is None:
        return None
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return Plain(values, block.item)
