"""Whether data sets that are to be read or joined as one have the same columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index._schema import ShardSchema
    from streaming_core._index._table import ShardTable

__all__ = ["require_same_columns"]

_KINDS: Final = (
    (r"int|u?int(8|16|32|64)|(half)?float|float(16|32|64)|double|str_int|str_float", "numbers"),
    (r"bool", "true or false"),
    (r"str|bytes|(large_)?(string|binary)|fixed_size_binary\[.*", "text or bytes"),
    (r"ndarray(:\w+)?", "numbers", "arrays or lists"),  # arrays may have no dimension
    (r"ndarray:\w+:.*|(large_|fixed_size_)?list<.*", "arrays or lists"),
    (r"struct<.*", "structs"),
    (r"(timestamp|date32|date64|time32|time64|duration)(\[.*)?", "times"),
)
"""What values of encodings and Arrow types can be. Those of others (`json`, `pkl`, images) may go
with anything, as far as an index can tell."""
_TYPED: Final = frozenset({"torch", "arrow"})
"""Formats of batches whose columns have one type each; others hold any values."""


def require_same_columns(
    tables: Mapping[str, ShardTable], purpose: str, batch_format: str = "torch"
) -> None:
    """Raise `SchemaError` unless samples of all shards of all tables can be in one batch.

    Their columns must have the same names, and in formats whose columns have one type, values that
    go together: of any number types, text and bytes, arrays and lists of any kind. The error says
    which of the tables, by name, differ in what, and ends with `purpose`.

    Example:
        >>> from streaming_core._index import ShardTable
        >>> require_same_columns({"a": ShardTable.concatenate([])}, "to join them")
    """
    names: tuple[str, list[str]] | None = None
    known: dict[str, _Seen] = {}
    for table_name, table in tables.items():
        for schema in table.schemas:
            columns = sorted(schema.column_names)
            names = names or (table_name, columns)
            if columns != names[1]:
                msg = (
                    f"{table_name} has the columns {', '.join(map(repr, columns))}, {names[0]} has "
                    f"{', '.join(map(repr, names[1]))}; {purpose}"
                )
                raise SchemaError(msg)
            if batch_format in _TYPED:
                _check_types(table_name, schema, known, purpose, batch_format)


class _Seen(NamedTuple):
    """Where the values of a column were first found to be of some kind."""

    table: str
    encoding: str
    kinds: frozenset[str]


def _check_types(
    table: str, schema: ShardSchema, known: dict[str, _Seen], purpose: str, batch_format: str
) -> None:
    """Compare the columns of one schema with those that are known, and note them."""
    if schema.is_made and batch_format == "arrow":
        return  # all of its values may be missing, and Arrow has that in all types
    for column, encoding in zip(schema.column_names, schema.column_encodings, strict=True):
        kinds = _kinds(encoding, batch_format)
        if not kinds:
            continue
        first = known.setdefault(column, _Seen(table, encoding, kinds))
        if not kinds & first.kinds:
            msg = (
                f"column {column!r} is {encoding!r} in {table}, and {first.encoding!r} in "
                f"{first.table}; {purpose}"
            )
            raise SchemaError(msg)


def _kinds(encoding: str, batch_format: str) -> frozenset[str]:
    """Return what values of an encoding or Arrow type can be; nothing if that is not known.

    Example:
        >>> (
        ...     sorted(_kinds("ndarray:uint8", "torch")),
        ...     _kinds("bool", "torch"),
        ...     _kinds("pkl", "torch"),
        ... )
        (['arrays or lists', 'numbers'], frozenset({'numbers'}), frozenset())
    """
    for pattern, *kinds in _KINDS:
        if re.fullmatch(pattern, encoding, re.DOTALL):
            # For torch they are numbers.
            is_number = kinds == ["true or false"] and batch_format != "arrow"
            return frozenset(["numbers"] if is_number else kinds)
    return frozenset()
