"""Values of records that all have one size, straight from their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from streaming_core._format._mds._layout import layout_of
from streaming_core._format._mds._values import DECODE_ERRORS, fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._format._mds._encoding import Encoding
    from streaming_core._format._mds._record import MDSColumns

__all__ = ["Getter", "record_getters"]

Getter: TypeAlias = Callable[[int], Any]
"""Returns a column's value in a record, which there is; `ValueError` where it is none."""


def record_getters(columns: MDSColumns, records: NDArray[np.void]) -> list[tuple[str, Getter]]:
    """Return each column's name and the way to its values in `records`."""
    getters: list[tuple[str, Getter]] = []
    at = 0
    for name, encoding, size in zip(columns.names, columns.encodings, columns.sizes, strict=True):
        getters.append((name, _getter(name, encoding, records, at)))
        at += size or 0
    return getters


def _getter(name: str, encoding: Encoding, records: NDArray[np.void], at: int) -> Getter:
    layout = layout_of(encoding)
    if layout is None:
        return _decoding_getter(name, encoding, records, at)
    values = layout.strided(records, at)
    if layout.item == "int":
        return values.item
    if layout.item == "scalar":
        return values.__getitem__
    # A view would keep the whole mapping alive, and could not be written to.
    return lambda row: values[row].copy()


def _decoding_getter(name: str, encoding: Encoding, records: NDArray[np.void], at: int) -> Getter:
    data, step, size = records.data.cast("B"), records.itemsize, encoding.size or 0

    def get(row: int) -> Any:  # noqa: ANN401 - whatever the user's encoding gives
        start = row * step + at
        try:
            return encoding.decode(bytes(data[start : start + size]))
        except DECODE_ERRORS as error:
            raise fault(name, error) from error

    return get
