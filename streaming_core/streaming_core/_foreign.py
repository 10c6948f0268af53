"""Values as Arrow has them: blocks of numbers to NumPy, or what Python makes of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, final

import numpy as np

from streaming_core._extras import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Block", "Foreign", "block_of", "block_type"]

Item: TypeAlias = Literal["int", "float", "scalar", "array"]

_NUMBERS: Final = "iuf"


class Block(NamedTuple):
    """How NumPy sees an Arrow type whose values all have one size."""

    dtype: np.dtype[Any]
    """Of one number; times are NumPy's."""
    stored: np.dtype[Any]
    """Of what Arrow keeps for it."""
    shape: tuple[int, ...]
    """Of one value."""
    item: Item
    """What one value is to Python: a number, a NumPy scalar, an array."""


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="data that is not MDS")


@lru_cache(maxsize=1024)
def block_type(kind: Any) -> Block | None:  # noqa: ANN401 - an Arrow type
    """Return how NumPy sees an Arrow type; None if values differ in size, or it has none for them.

    Dates, times of day and durations are `datetime64` and `timedelta64`.
    """
    types = _arrow().types
    if types.is_boolean(kind):
        return Block(np.dtype(np.bool_), np.dtype(np.bool_), (), "int")
    if types.is_integer(kind) or types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        return Block(dtype, dtype, (), "float" if dtype.kind == "f" else "int")
    time = _time_type(types, kind)
    if time is not None:
        return Block(np.dtype(time), np.dtype(f"i{kind.bit_width // 8}"), (), "scalar")
    if types.is_fixed_size_list(kind) and kind.list_size:
        inner = block_type(kind.value_type)
        if inner is not None and inner.dtype.kind in _NUMBERS:
            return inner._replace(shape=(kind.list_size, *inner.shape), item="array")
    return None


def _time_type(types: Any, kind: Any) -> str | None:  # noqa: ANN401 - see above
    if types.is_timestamp(kind):
        return f"M8[{kind.unit}]"
    if types.is_duration(kind) or types.is_time(kind):
        return f"m8[{kind.unit}]"
    if types.is_date32(kind):
        return "M8[D]"
    return "M8[ms]" if types.is_date64(kind) else None


def block_of(array: Any) -> NDArray[Any] | None:  # noqa: ANN401 - an Arrow array
    """Return the values of an array in one block, without a copy where that can be.

    Where a value is missing the block has whatever Arrow keeps there. None if the type has no
    blocks, or numbers within a value are missing.
    """
    block = block_type(array.type)
    if block is None:
        return None
    flat = array
    for size in block.shape:
        # Not `flatten`: that leaves out what belongs to a missing value.
        flat = flat.values.slice(flat.offset * size, len(flat) * size)
    if block.shape and flat.null_count:
        return None
    if block.stored.kind == "b":
        filled = flat.fill_null(False) if flat.null_count else flat  # noqa: FBT003 - the value
        values = filled.to_numpy(zero_copy_only=False)
    elif not len(flat) or flat.buffers()[1] is None:
        values = np.empty(0, block.stored)
    else:
        offset = flat.offset * block.stored.itemsize
        values = np.frombuffer(flat.buffers()[1], block.stored, len(flat), offset)
    if block.dtype.kind in "mM":
        values = values.astype(np.int64, copy=False).view(block.dtype)
    found: NDArray[Any] = values.reshape((len(array), *block.shape))
    return found


@final
class Foreign:
    """Values of which NumPy has no one block: nested ones, decimals, whatever lacks some.

    They become Python's values when they are asked for, each as if it stood alone. Pickles with
    the bytes of its own values only.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:  # noqa: ANN401 - of an optional dependency
        self.array = array
        """A `pyarrow.Array`."""

    def __len__(self) -> int:
        return len(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as an Arrow stream: a pickled slice would take along all that it is cut from."""
        arrow = _arrow()
        batch = arrow.record_batch([self.array], names=["values"])
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return _foreign, (sink.getvalue().to_pybytes(),)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self.array.nbytes)

    def to_list(self) -> list[Any]:
        """Return the values as Python has them, None where one is missing.

        Lists of numbers are arrays, unless one of these is missing.
        """
        array = self.array
        block = block_type(array.type)
        values = block_of(array)
        if block is not None and values is not None:
            there = array.is_valid().to_numpy(zero_copy_only=False).tolist()
            each = list(values) if block.item in {"scalar", "array"} else values.tolist()
            return [
                value if is_there else None for value, is_there in zip(each, there, strict=True)
            ]
        if _arrow().types.is_large_list(array.type) and block_type(array.type.value_type):
            return [_numbers(array[at]) for at in range(len(array))]
        found: list[Any] = array.to_pylist()
        return found

    def slice(self, start: int, stop: int) -> Foreign:
        """Return the values from `start` to `stop`, a view."""
        return Foreign(self.array[start:stop])


def _numbers(value: Any) -> Any:  # noqa: ANN401 - an Arrow scalar, and an array or list
    """Return a list of numbers as an array, if none of them is missing."""
    if not value.is_valid:
        return None
    block = None if value.values.null_count else block_type(value.values.type)
    if block is None or block.dtype.kind not in _NUMBERS or block.shape:
        return value.as_py()
    return block_of(value.values)


def _foreign(stream: bytes) -> Foreign:
    table = _arrow().ipc.open_stream(stream).read_all()
    return Foreign(table.column(0).combine_chunks())
