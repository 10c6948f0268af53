"""Rows that a user's code has made, as columns of the types that their values have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Columns, Fixed, Objects, Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._columns import Column

__all__ = ["columns_of"]


def columns_of(rows: Sequence[dict[str, Any]]) -> Columns:
    """Return samples by column: numbers and arrays alike in one block each.

    Raises `SchemaError` where samples have different keys.

    Example:
        >>> columns_of([{"x": 1}, {"x": 2}])["x"].values
        array([1, 2])
    """
    listed = Columns.of_rows(rows)
    found = {name: _typed(column.to_list()) for name, column in listed.columns.items()}
    return Columns(len(rows), found)


def _typed(values: list[Any]) -> Column:
    kinds = set(map(type, values))
    try:
        if kinds <= {bool} or kinds <= {int}:
            return Fixed(np.array(values, np.bool_ if kinds == {bool} else np.int64), "int")
        if kinds <= {int, float}:
            return Fixed(np.array(values, np.float64), "float")
    except OverflowError:  # a number that has no such type
        return Objects(values)
    if kinds in ({str}, {bytes}):
        return _bytes(values, is_text=kinds == {str})
    if kinds == {np.ndarray}:
        return _arrays(values)
    if len(kinds) == 1 and issubclass(next(iter(kinds)), np.number | np.bool_):
        return Fixed(np.array(values), "scalar")
    return Objects(values)


def _arrays(values: list[Any]) -> Column:
    first = values[0]
    if first.dtype.kind not in "biufc" or any(value.dtype != first.dtype for value in values):
        return Objects(values)
    if all(value.shape == first.shape for value in values):
        return Fixed(np.stack(values), "array")
    if any(value.ndim != 1 for value in values):
        return Objects(values)
    data = np.ascontiguousarray(np.concatenate(values)).view(np.uint8)
    return Ragged(data, _offsets([value.nbytes for value in values]), "array", first.dtype)


def _bytes(values: list[Any], *, is_text: bool) -> Column:
    try:
        raw: list[bytes] = [value.encode() for value in values] if is_text else values
    except UnicodeEncodeError:  # half of a surrogate pair
        return Objects(values)
    data = np.frombuffer(b"".join(raw), np.uint8)
    return Ragged(data, _offsets(list(map(len, raw))), "str" if is_text else "bytes")


def _offsets(lengths: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
