"""Columns of samples of several kinds of shards, put together in the order wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Column, Columns, Fixed, Objects, Ragged
from streaming_core._format._arrow import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["common_dtype", "merged"]

Share = tuple["NDArray[np.int64]", Columns]
"""The places of some samples among all, and their columns."""


def merged(shares: Sequence[Share], length: int) -> Columns | None:
    """Return `length` samples by column from shares that have them all between them.

    Columns are in the order of the first share. None if the shares have different ones.

    Example:
        >>> one = Columns(2, {"x": Fixed(np.array([1, 3]), "int")})
        >>> two = Columns(1, {"x": Fixed(np.array([2]), "int")})
        >>> merged([(np.array([0, 2]), one), (np.array([1]), two)], 3)["x"].to_list()
        [1, 2, 3]
    """
    names = shares[0][1].columns.keys()
    if any(columns.columns.keys() != names for _, columns in shares):
        return None
    places = [place for place, _ in shares]
    # Where values came from Arrow it is there to copy them.
    by_arrow = any(columns.types is not None for _, columns in shares)
    found = {
        name: _column(places, [columns[name] for _, columns in shares], length, by_arrow=by_arrow)
        for name in names
    }
    return Columns(length, found, _types([columns.types for _, columns in shares]))


def common_dtype(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any] | None:
    """Return the type that holds all numbers of these types exactly; None if there is none.

    Example:
        >>> common_dtype([np.dtype("i4"), np.dtype("i8")])
        dtype('int64')
        >>> common_dtype([np.dtype("i8"), np.dtype("f8")]) is None
        True
    """
    distinct = list(set(dtypes))
    if len(distinct) == 1:
        return distinct[0]
    if any(dtype.kind not in "iuf" for dtype in distinct):
        return None
    found = np.result_type(*distinct)
    if found.kind != "f":
        return found
    exact = np.finfo(found).nmant + 1
    whole = [dtype for dtype in distinct if dtype.kind != "f"]
    bits = (8 * dtype.itemsize - (dtype.kind == "i") for dtype in whole)
    return found if all(count <= exact for count in bits) else None


def _types(all_types: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the types on which all agree."""
    first, *others = [types or {} for types in all_types]
    return {
        name: kind
        for name, kind in first.items()
        if all(name in types and types[name].equals(kind) for types in others)
    }


def _column(
    places: Sequence[NDArray[np.int64]], columns: Sequence[Column], length: int, *, by_arrow: bool
) -> Column:
    fixed = [column for column in columns if isinstance(column, Fixed)]
    if len(fixed) == len(columns):
        dtype = common_dtype(column.values.dtype for column in fixed)
        items = {column.item for column in fixed}
        alike = len({column.values.shape[1:] for column in fixed}) == 1
        if dtype is not None and alike and (len(items) == 1 or "array" not in items):
            out = np.empty((length, *fixed[0].values.shape[1:]), dtype)
            for place, column in zip(places, fixed, strict=True):
                out[place] = column.values
            # As numbers of NumPy all of them have the type that they have come to have in common.
            return Fixed(out, fixed[0].item if len(items) == 1 else "scalar")
    ragged = [column for column in columns if isinstance(column, Ragged)]
    if len(ragged) == len(columns) and len({(c.kind, c.dtype) for c in ragged}) == 1:
        return (_ragged_by_arrow if by_arrow else _ragged)(places, ragged, length)
    values: list[Any] = [None] * length
    for place, share in zip(places, columns, strict=True):
        for at, value in zip(place.tolist(), share.to_list(), strict=True):
            values[at] = value
    return Objects(values)


def _ragged_by_arrow(
    places: Sequence[NDArray[np.int64]], columns: Sequence[Ragged], length: int
) -> Ragged:
    begins, sizes = np.empty(length, np.int64), np.empty(length, np.int64)
    blocks = [column.data for column in columns]
    for place, column, block in zip(places, columns, blocks, strict=True):
        begins[place] = column.offsets[:-1] + block.ctypes.data
        sizes[place] = np.diff(column.offsets)
    offsets = np.zeros(length + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return Ragged(joined(blocks, begins, offsets), offsets, columns[0].kind, columns[0].dtype)


def _ragged(places: Sequence[NDArray[np.int64]], columns: Sequence[Ragged], length: int) -> Ragged:
    views: list[Any] = [b""] * length
    sizes = np.zeros(length, np.int64)
    for place, column in zip(places, columns, strict=True):
        data = column.data.data
        bounds: list[int] = column.offsets.tolist()
        for at, start, stop in zip(place.tolist(), bounds[:-1], bounds[1:], strict=True):
            views[at] = data[start:stop]
        sizes[place] = np.diff(column.offsets)
    offsets = np.zeros(length + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    joined = bytearray().join(views) if columns[0].kind == "array" else b"".join(views)
    return Ragged(joined, offsets, columns[0].kind, columns[0].dtype)
