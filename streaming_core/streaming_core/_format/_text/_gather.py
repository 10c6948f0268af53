"""Many samples of text shards at once, by column: numbers as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._columns import Column, Columns, Fixed, Objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._columns import Item
    from streaming_core._format._parts import Parts
    from streaming_core._format._text._shard import TextShard

__all__ = ["gather_text", "no_text"]

_NUMBERS: Final[dict[str, tuple[type, type[np.generic], Item]]] = {
    "int": (int, np.int64, "int"),
    "float": (float, np.float64, "float"),
}


def gather_text(
    parts: Parts[TextShard], encodings: Mapping[str, str], names: Sequence[str]
) -> Columns:
    """Return the columns `names` of the samples of `parts`, whose shards all have `encodings`."""
    samples = parts.samples()
    return Columns(
        parts.length,
        {name: _column([sample[name] for sample in samples], encodings[name]) for name in names},
    )


def no_text(encodings: Mapping[str, str]) -> Columns:
    """Return the columns of no samples."""
    return Columns(0, {name: _column([], encoding) for name, encoding in encodings.items()})


def _column(values: list[Any], encoding: str) -> Column:
    if encoding not in _NUMBERS:
        return Objects(values)
    kind, dtype, item = _NUMBERS[encoding]
    # A bool is an int to JSON, and stays one here.
    if not all(type(value) is kind for value in values):
        return Objects(values)
    try:
        return Fixed(np.array(values, dtype), item)
    except OverflowError:  # the format bounds no int
        return Objects(values)
