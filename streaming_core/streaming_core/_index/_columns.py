"""Whether data sets that are to be read or joined as one have the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index._schema import ShardSchema
    from streaming_core._index._table import ShardTable

__all__ = ["require_same_columns"]


def require_same_columns(
    tables: Mapping[str, ShardTable], purpose: str, *, encodings: bool = True
) -> None:
    """Raise `SchemaError` unless all shards of all tables have the same columns, in any order.

    Columns are the same if they have the same names and, unless told not to ask, encodings. The
    error says which of the tables, by name, differ in what, and ends with `purpose`.

    Example:
        >>> from streaming_core._index import ShardTable
        >>> require_same_columns({"a": ShardTable.concatenate([])}, "to join them")
    """
    first: tuple[str, dict[str, str]] | None = None
    for name, table in tables.items():
        for schema in table.schemas:
            columns = _columns(schema, encodings=encodings)
            first = first or (name, columns)
            if columns != first[1]:
                msg = (
                    f"{name} has the columns {_shown(columns)}, {first[0]} has "
                    f"{_shown(first[1])}; {purpose}"
                )
                raise SchemaError(msg)


def _columns(schema: ShardSchema, *, encodings: bool) -> dict[str, str]:
    kinds = schema.column_encodings if encodings else [""] * len(schema.column_names)
    return dict(zip(schema.column_names, kinds, strict=True))


def _shown(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{n!r} ({kind})" if kind else repr(n) for n, kind in sorted(columns.items()))
