"""Columns as an Arrow table."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._columns import Fixed, Foreign, Ragged
from streaming_core._extras import require
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._columns import Column, Columns

__all__ = ["to_arrow"]

_LARGER: Final = 2
_SMALL: Final = 1024
"""Times and bytes by which a slice's buffers may be larger than the slice."""


def to_arrow(columns: Columns) -> Any:  # noqa: ANN401 - a table of an optional dependency
    """Return a `pyarrow.Table` of the samples; numbers, texts and bytes share the columns' memory.

    Arrays alike become fixed-size lists, one for each dimension; arrays of different length become
    lists; other values get the type that Arrow finds for them.

    Raises:
        MissingExtraError: pyarrow is not installed.
        SchemaError: A column's values have no common Arrow type; names the column.
    """
    arrow = _arrow()
    arrays: dict[str, Any] = {}
    for name, column in columns.columns.items():
        try:
            arrays[name] = _column(column)
        except (arrow.ArrowException, OverflowError, TypeError) as error:
            msg = (
                f"column {name!r}: its values have no common Arrow type: {error!s:.200}. Take the "
                "batch in another format, or leave the column out"
            )
            raise SchemaError(msg) from error
    return arrow.table(arrays)


@cache
def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="an Arrow batch")


def _column(column: Column) -> Any:  # noqa: ANN401 - an array of an optional dependency
    arrow = _arrow()
    if isinstance(column, Foreign):
        return _alone(column.array)
    if isinstance(column, Fixed):
        return _nested(column.values)
    if not isinstance(column, Ragged):
        return arrow.array(column.to_list())
    bounds = arrow.py_buffer(np.ascontiguousarray(column.bounds))
    if column.kind == "array":
        offsets = arrow.Array.from_buffers(arrow.int64(), len(column) + 1, [None, bounds])
        return arrow.LargeListArray.from_arrays(offsets, arrow.array(column.elements))
    kind = arrow.large_string() if column.kind == "str" else arrow.large_binary()
    data = arrow.py_buffer(column.elements)
    return arrow.Array.from_buffers(kind, len(column), [None, bounds, data])


def _alone(array: Any) -> Any:  # noqa: ANN401 - an array of an optional dependency
    """Return an array without what it is cut from, where that is much more than itself.

    Samples are decoded many at a time, and a slice would take all of them along to a trainer.
    """
    if array.get_total_buffer_size() <= _LARGER * array.nbytes + _SMALL:
        return array
    return _arrow().concat_arrays([array, array[:0]])


def _nested(values: NDArray[Any]) -> Any:  # noqa: ANN401 - an array of an optional dependency
    arrow = _arrow()
    flat = arrow.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:]):
        if not size:  # nothing in the flat values says how many of these there are
            return arrow.array(values.tolist(), _type_of(values))
        flat = arrow.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _type_of(values: NDArray[Any]) -> Any:  # noqa: ANN401 - a type of an optional dependency
    arrow = _arrow()
    kind = arrow.from_numpy_dtype(values.dtype)
    for size in reversed(values.shape[1:]):
        kind = arrow.list_(kind, size)
    return kind
