"""Whether data sets that are to be read or joined as one have the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index._table import ShardTable

__all__ = ["require_same_columns"]


def require_same_columns(tables: Mapping[str, ShardTable], purpose: str) -> None:
    """Raise `SchemaError` unless all shards of all tables have columns of the same names.

    The error says which of the tables, by name, differ in what, and ends with `purpose`.

    Example:
        >>> from streaming_core._index import ShardTable
        >>> require_same_columns({"a": ShardTable.concatenate([])}, "to join them")
    """
    first: tuple[str, list[str]] | None = None
    for name, table in tables.items():
        for schema in table.schemas:
            columns = sorted(schema.column_names)
            first = first or (name, columns)
            if columns != first[1]:
                msg = (
                    f"{name} has the columns {', '.join(map(repr, columns))}, {first[0]} has "
                    f"{', '.join(map(repr, first[1]))}; {purpose}"
                )
                raise SchemaError(msg)
