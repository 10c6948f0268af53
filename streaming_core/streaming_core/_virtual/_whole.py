"""Columns of whole numbers in several files of text: none becomes floats without being told. Pure.

The formats of text note in a field's metadata which numbers a column has; see `NUMBERS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NEGATIVE", "NUMBERS", "WIDE", "aligned"]

NUMBERS: Final = b"streaming:numbers"
"""Where a field tells which whole numbers it has, where that matters; joined by commas."""
NEGATIVE: Final = b"negative"
"""Some are less than 0."""
WIDE: Final = b"wide"
"""Some are beyond 53 bits, so that floats would change them."""


def aligned(
    schemas: Sequence[Any],  # of an optional dependency
    wheres: Sequence[str],
    columns: Sequence[str] | None = None,
) -> list[Any]:
    """Return the schemas of files, whole numbers made unsigned where another file needs that.

    Only `columns` are looked at, all if None.

    Raises `SchemaError` where no type has all numbers of a column unchanged; names it and files.
    """
    names = {field.name for schema in schemas for field in schema if _marks(field)}
    for name in sorted(names if columns is None else names.intersection(columns)):
        schemas = _column(name, schemas, wheres)
    return list(schemas)


def _column(name: str, schemas: Sequence[Any], wheres: Sequence[str]) -> Sequence[Any]:
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    at = {n: s.get_field_index(name) for n, s in enumerate(schemas)}
    fields = {n: schemas[n].field(place) for n, place in at.items() if place >= 0}
    wide = [n for n, field in fields.items() if WIDE in _marks(field)]
    floats = [n for n, field in fields.items() if arrow.types.is_floating(field.type)]
    if wide and floats:
        raise SchemaError(
            _apart(name, wheres[wide[0]], "numbers beyond 53 bits", wheres[floats[0]], "floats")
        )
    unsigned = [n for n in wide if arrow.types.is_uint64(fields[n].type)]
    if not unsigned:
        return schemas
    negative = [n for n, field in fields.items() if NEGATIVE in _marks(field)]
    if negative:
        big, small = "numbers beyond 63 bits", "negative ones"
        raise SchemaError(_apart(name, wheres[unsigned[0]], big, wheres[negative[0]], small))
    found = list(schemas)
    for n, field in fields.items():
        if arrow.types.is_int64(field.type):
            found[n] = found[n].set(at[n], field.with_type(arrow.uint64()))
    return found


def _marks(field: Any) -> list[bytes]:  # noqa: ANN401 - of an optional dependency
    metadata: dict[bytes, bytes] = field.metadata or {}
    return metadata.get(NUMBERS, b"").split(b",") if NUMBERS in metadata else []


def _apart(name: str, one: str, what: str, other: str, what_else: str) -> str:
    return (
        f"{one}: column {name!r} has {what}, in {other} it has {what_else}, and no type holds all "
        "of them unchanged. Tell the types of the columns that are wanted, such as "
        f"format_options={{'schema': {{{name!r}: 'double'}}}}, if they may be rounded"
    )
