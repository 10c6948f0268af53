"""Columns as NumPy arrays; what to do with values of different length is the caller's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from streaming_core._columns import Fixed, Ragged
from streaming_reader._batch._arrow import kept_in_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._columns import Column, Columns

__all__ = ["Offsets", "Padded", "RaggedForm", "ragged_arrays", "to_numpy"]

RaggedForm: TypeAlias = Literal["list", "padded", "offsets", "arrow"]
"""How values of different length come: one by one, padded to the longest, end to end, or in Arrow
arrays, as nested values and decimals do then."""


class Padded(NamedTuple):
    """Values of different length, each filled up with zeros to the longest."""

    values: Any
    """An array of two dimensions, a row for each value."""
    lengths: Any
    """The length of each value, int64."""


class Offsets(NamedTuple):
    """Values of different length, one after the other."""

    values: Any
    """The elements of all values."""
    offsets: Any
    """Where in `values` each one begins, and where the last one ends, int64."""


def to_numpy(columns: Columns, ragged: RaggedForm = "list") -> dict[str, Any]:
    """Return each column as an array, or a list where its values are no numbers or arrays alike.

    With `ragged="padded"` bytes, texts (as UTF-8) and one-dimensional arrays of different length
    come as `Padded`, with `"offsets"` as `Offsets`. With `"arrow"` they, arrays of more dimensions
    and nested values are `pyarrow` arrays. The arrays may be those of `columns`.

    Example:
        >>> from streaming_core._columns import Columns, Ragged
        >>> texts = Ragged(b"abc", np.array([0, 1, 3]), "str")
        >>> to_numpy(Columns(2, {"t": texts}))
        {'t': ['a', 'bc']}
        >>> to_numpy(Columns(2, {"t": texts}), "padded")["t"].lengths.tolist()
        [1, 2]
    """
    return {name: _column(column, ragged) for name, column in columns.columns.items()}


def _column(column: Column, ragged: RaggedForm) -> Any:  # noqa: ANN401 - an array or what holds some
    if isinstance(column, Fixed):
        return column.values
    if ragged == "arrow":
        kept = kept_in_arrow(column)
        return column.to_list() if kept is None else kept
    if ragged == "list" or not isinstance(column, Ragged):
        return column.to_list()
    return ragged_arrays(column, ragged)


def ragged_arrays(column: Ragged, ragged: Literal["padded", "offsets"]) -> Padded | Offsets:
    """Return the values of a column in the form wanted, in arrays that can be written to."""
    elements, bounds = column.elements, column.bounds
    if ragged == "offsets":
        return Offsets(elements if elements.flags.writeable else elements.copy(), bounds)
    lengths = column.lengths
    return Padded(_padded(elements, lengths), lengths)


def _padded(elements: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[Any]:
    longest = int(lengths.max(initial=0))
    out = np.zeros((len(lengths), longest), elements.dtype)
    out[np.arange(longest) < lengths[:, None]] = elements
    return out
