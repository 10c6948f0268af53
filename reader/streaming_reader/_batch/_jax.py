"""Columns as arrays that JAX takes as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Fixed, Foreign, Ragged
from streaming_core._foreign import block_type
from streaming_core.errors import SchemaError
from streaming_reader._batch._arrow import kept_in_arrow
from streaming_reader._batch._numpy import RaggedForm, ragged_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._columns import Column, Columns

__all__ = ["to_jax"]


def to_jax(columns: Columns, ragged: RaggedForm = "list") -> dict[str, Any]:
    """Return each column as a NumPy array that `jax.numpy.asarray` takes without a word.

    These are contiguous, of the machine's byte order, and hold numbers or truth values: times
    become the numbers that they count. What has no such array (texts, bytes, nested values, arrays
    of different length) becomes a list, or what `ragged` says. JAX itself is not needed.

    Raises:
        SchemaError: A column of numbers lacks some; says what to do.

    Example:
        >>> from streaming_core._columns import Columns, Fixed
        >>> to_jax(Columns(1, {"t": Fixed(np.array(["1970-01-02"], "M8[D]"))}))
        {'t': array([1])}
    """
    return {name: _column(name, column, ragged) for name, column in columns.columns.items()}


def _column(name: str, column: Column, ragged: RaggedForm) -> Any:  # noqa: ANN401 - an array or what holds some
    if isinstance(column, Fixed):
        return _plain(column.values)
    if isinstance(column, Foreign) and block_type(column.array.type) and column.array.null_count:
        msg = (
            f"column {name!r} has {column.array.null_count} values that are missing, of which no "
            "array of numbers can be made. Say what becomes of them where the stream is made: "
            "nulls={'column': value}, or nulls='mask'; or leave the column out with columns=[...]"
        )
        raise SchemaError(msg)
    if ragged == "arrow":
        if (kept := kept_in_arrow(column)) is not None:
            return kept
        ragged = "list"
    if isinstance(column, Ragged):
        if ragged != "list":
            arrays = ragged_arrays(column, ragged)
            return type(arrays)(*map(_plain, arrays))
        if column.kind == "array":
            return [_plain(value) for value in column.to_list()]
    return column.to_list()


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "mM":
        values = values.view(np.int64)
    return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
