"""The values of text columns: what a column takes, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from streaming_core.errors import MissingColumnError, SampleError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Value", "checked_columns", "checked_newline", "plain_value", "plain_values"]

Value: TypeAlias = str | int | float

_TYPES: Final[dict[str, type[Value]]] = {"float": float, "int": int, "str": str}


def checked_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Return `columns` sorted by name; `SchemaError` where they cannot be those of a text shard."""
    if not columns:
        msg = "no columns; give at least one, as in columns={'text': 'str'}"
        raise SchemaError(msg)
    for name, encoding in cast("Mapping[object, object]", columns).items():
        if not (isinstance(name, str) and isinstance(encoding, str) and encoding in _TYPES):
            msg = (
                f"column {name!r}: a column of a text format is {', '.join(_TYPES)}; "
                f"came {encoding!r}. Other encodings need the format mds"
            )
            raise SchemaError(msg)
    return {name: columns[name] for name in sorted(columns)}


def checked_newline(newline: str) -> str:
    """Return `newline`, or raise `SchemaError` where it could not end a line."""
    if newline and not any("\ud800" <= char <= "\udfff" for char in newline):
        return newline
    msg = f"newline must be the text that ends each line, as in newline='\\n'; came {newline!r}"
    raise SchemaError(msg)


def plain_value(value: Any, encoding: str, column: str) -> Value:  # noqa: ANN401 - any user's value
    """Return `value` as the Python value that is written; `SampleError` where it does not fit.

    A NumPy scalar counts as the Python value that it converts to without loss. A bool is an int. An
    int is no float: writing it as one could lose digits, and only the caller knows.

    Example:
        >>> plain_value(np.int16(7), "int", "a")
        7
    """
    plain: Any = value.item() if _is_scalar(value) else value
    if not isinstance(plain, _TYPES[encoding]):
        msg = (
            f"column {column!r}: wanted {encoding}, came {type(value).__name__} {value!r:.60}; "
            f"convert it with {encoding}(…), or declare the column with its type"
        )
        raise SampleError(msg)
    return plain


def plain_values(sample: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Value]:
    """Return the values of `columns` in their order; keys of `sample` beyond them are left out."""
    values: dict[str, Value] = {}
    for name, encoding in columns.items():
        if name not in sample:
            msg = f"column {name!r} is missing; the sample has {', '.join(map(repr, sample))}"
            raise MissingColumnError(msg)
        values[name] = plain_value(sample[name], encoding, name)
    return values


def _is_scalar(value: object) -> bool:
    # The plain value of a time is a number in some cases, without its unit.
    return isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64)
