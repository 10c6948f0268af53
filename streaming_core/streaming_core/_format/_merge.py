"""Columns of samples of several kinds of shards, put together in the order wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Column, Columns, Fixed, Objects, Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["merged"]

Share = tuple["NDArray[np.int64]", Columns]
"""The places of some samples among all, and their columns."""


def merged(shares: Sequence[Share], length: int) -> Columns | None:
    """Return `length` samples by column from shares that have them all between them.

    None if they have different columns.

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
    return Columns(
        length,
        {name: _column(places, [columns[name] for _, columns in shares], length) for name in names},
    )


def _column(places: Sequence[NDArray[np.int64]], columns: Sequence[Column], length: int) -> Column:
    fixed = [column for column in columns if isinstance(column, Fixed)]
    if len(fixed) == len(columns):
        first = fixed[0]
        if len({(c.values.dtype, c.values.shape[1:], c.item) for c in fixed}) == 1:
            out = np.empty((length, *first.values.shape[1:]), first.values.dtype)
            for place, column in zip(places, fixed, strict=True):
                out[place] = column.values
            return Fixed(out, first.item)
    ragged = [column for column in columns if isinstance(column, Ragged)]
    if len(ragged) == len(columns) and len({(c.kind, c.dtype) for c in ragged}) == 1:
        return _ragged(places, ragged, length)
    values: list[Any] = [None] * length
    for place, share in zip(places, columns, strict=True):
        for at, value in zip(place.tolist(), share.to_list(), strict=True):
            values[at] = value
    return Objects(values)


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
