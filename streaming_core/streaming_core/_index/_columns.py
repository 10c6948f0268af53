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

_FAMILIES: Final = {
    "numbers": r"u?int\d*|(half)?float\d*|double|str_int|str_float",
    "true or false": r"bool",
    "text or bytes": r"str|bytes|(large_)?(string|binary)|fixed_size_binary\[.*",
    "arrays or lists": r"ndarray(:.*)?|((large_|fixed_size_)?list|list_view)<.*",
    "structs": r"struct<.*",
    "times": r"(timestamp|date32|date64|time32|time64|duration)(\[.*)?",
}
"""What encodings and Arrow types are to whoever puts values of several into one batch. Values of
others (`json`, `pkl`, images) may go with anything, as far as an index can tell."""
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
    """The first values of a column whose family is known."""

    table: str
    encoding: str
    family: str


def _check_types(
    table: str, schema: ShardSchema, known: dict[str, _Seen], purpose: str, batch_format: str
) -> None:
    """Compare the columns of one schema with those that are known, and note them."""
    for column, encoding in zip(schema.column_names, schema.column_encodings, strict=True):
        family = _family(encoding, batch_format)
        if family is None:
            continue
        first = known.setdefault(column, _Seen(table, encoding, family))
        if first.family != family:
            msg = (
                f"column {column!r} has {family} ({encoding}) in {table}, and {first.family} "
                f"({first.encoding}) in {first.table}; {purpose}"
            )
            raise SchemaError(msg)


def _family(encoding: str, batch_format: str) -> str | None:
    """Return what values of an encoding or Arrow type go with; None if that depends on them.

    Example:
        >>> _family("int32", "torch"), _family("ndarray:uint8", "torch"), _family("pkl", "torch")
        ('numbers', 'arrays or lists', None)
    """
    for family, pattern in _FAMILIES.items():
        if re.fullmatch(pattern, encoding, re.DOTALL):
            # For torch they are numbers.
            is_number = family == "true or false" and batch_format != "arrow"
            return "numbers" if is_number else family
    return None
