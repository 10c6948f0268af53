"""Columns as an Arrow table."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._columns import Fixed, Foreign, Ragged
from streaming_core._extras import require
from streaming_core._foreign import block_type
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from streaming_core._columns import Column, Columns

__all__ = ["kept_in_arrow", "to_arrow"]

_LARGER: Final = 2
_SMALL: Final = 1024
"""Times and bytes by which a slice's buffers may be larger than the slice."""


def to_arrow(columns: Columns) -> Any:  # noqa: ANN401 - a table of an optional dependency
    """Return a `pyarrow.Table` of the samples; numbers, texts and bytes share the columns' memory.

    Columns that came from Arrow have the type that they had there.
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
            array = _column(column)
            kind = None if columns.types is None else columns.types.get(name)
            arrays[name] = array if kind is None else _typed(array, kind)
        except (
            arrow.ArrowException,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,  # such as half of a surrogate pair
        ) as error:
            msg = (
                f"column {name!r}: its values have no common Arrow type: {error!s:.200}. Take the "
                "batch in another format, or leave the column out"
            )
            raise SchemaError(msg) from error
    return arrow.table(arrays)


def kept_in_arrow(column: Column) -> Any:  # noqa: ANN401 - an array of an optional dependency
    """Return the `pyarrow` array of values that no array of numbers holds, lists of numbers too.

    None for columns of numbers, though some may be missing, and for what Arrow does not know.
    """
    if isinstance(column, Foreign):
        return None if block_type(column.array.type) else _alone(column.array)
    return _column(column) if isinstance(column, Ragged) else None


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
        values = column.to_list()
        _refuse_mixed_times(values)
        return arrow.array(values)
    bounds = arrow.py_buffer(np.ascontiguousarray(column.bounds))
    if column.kind == "array":
        offsets = arrow.Array.from_buffers(arrow.int64(), len(column) + 1, [None, bounds])
        return arrow.LargeListArray.from_arrays(offsets, arrow.array(column.elements))
    kind = arrow.large_string() if column.kind == "str" else arrow.large_binary()
    data = arrow.py_buffer(column.elements)
    return arrow.Array.from_buffers(kind, len(column), [None, bounds, data])


def _refuse_mixed_times(values: Iterable[Any]) -> None:
    """Raise `TypeError` for NumPy's times beside its numbers, for which Arrow 26 ends the process.

    Looks at all values that are to have one type: those in lists, and those of one key in dicts.
    """
    values = list(values)
    types = set(map(type, values))
    kinds = {kind.__name__ for kind in types if issubclass(kind, np.generic)}
    arrays = _of_types(values, types, np.ndarray)
    kinds |= {array.dtype.type.__name__ for array in arrays}
    lists = _of_types(values, types, list, tuple, set, frozenset)
    lists += [array.tolist() for array in arrays if array.dtype.hasobject and array.ndim]
    if lists:
        _refuse_mixed_times(chain.from_iterable(lists))
    dicts = _of_types(values, types, dict)
    for key in set(chain.from_iterable(dicts)):
        _refuse_mixed_times([value[key] for value in dicts if key in value])
    if "datetime64" in kinds and len(kinds) > 1:
        msg = f"times beside {', '.join(sorted(kinds))}"
        raise TypeError(msg)


def _of_types(values: list[Any], types: set[type], *wanted: type) -> list[Any]:
    """Return the values of some types; `types` are those of all values."""
    if not any(issubclass(kind, wanted) for kind in types):
        return []
    return [value for value in values if issubclass(type(value), wanted)]


def _typed(array: Any, kind: Any) -> Any:  # noqa: ANN401 - an array and a type of an optional dependency
    """Return an array as the type that its values had before NumPy had them: a time with a zone."""
    if array.type.equals(kind):
        return array
    types = _arrow().types
    if types.is_time32(kind):  # NumPy counts what lasts in 64 bits
        return array.cast(_arrow().int64()).cast(_arrow().int32()).view(kind)
    if types.is_temporal(kind) and array.type.bit_width == kind.bit_width:
        return array.view(kind)
    return array.cast(kind)


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
