"""Encodings by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core._format._mds._arrays import ArrayEncoding
from streaming_core._format._mds._images import IMAGES
from streaming_core._format._mds._objects import JSON, Bytes, Pickle, Str
from streaming_core._format._mds._scalars import SCALARS, Int, StrDecimal, StrFloat, StrInt
from streaming_core.errors import SchemaError, UnsafeEncodingError

if TYPE_CHECKING:
    from streaming_core._format._mds._encoding import Encoding
    from streaming_core._index import ShardSchema

__all__ = ["find_encoding", "mds_encodings", "refuse_unsafe"]

mds_encodings: dict[str, type[Encoding]] = {
    "bytes": Bytes,
    "str": Str,
    "int": Int,
    **SCALARS,
    "str_int": StrInt,
    "str_float": StrFloat,
    "str_decimal": StrDecimal,
    "ndarray": ArrayEncoding,
    **IMAGES,
    "pkl": Pickle,
    "json": JSON,
}
"""Every MDS encoding by its name in `columns`; add your own `Encoding` class under a new name."""


def find_encoding(text: str, column: str) -> Encoding:
    """Return the encoding that `text` names for `column`; SchemaError lists the names otherwise."""
    _, colon, arguments = text.partition(":")
    kind = _kind(text)
    if kind is None:
        names = ", ".join(sorted(mds_encodings))
        msg = f"column {column!r}: unknown encoding {text!r}; known are {names}"
        raise SchemaError(msg)
    if text in mds_encodings or not colon:
        return kind()
    try:
        return kind.parse(arguments)
    except ValueError as error:
        msg = f"column {column!r}: encoding {text!r}: {error}"
        raise SchemaError(msg) from error


def refuse_unsafe(schema: ShardSchema, place: str) -> None:
    """Raise `UnsafeEncodingError` for columns whose decoding can run code that the data chose.

    `place` is what has them. Encodings that are not known yet are not judged.
    """
    if schema.format != "mds":
        return
    columns = zip(schema.column_names, schema.column_encodings, strict=True)
    unsafe = [name for name, text in columns if (kind := _kind(text)) is not None and kind.unsafe]
    if unsafe:
        msg = (
            f"{place}: reading column(s) {', '.join(unsafe)} can run code that the data chose. If "
            "you trust whoever made it, allow unsafe types (allow_unsafe_types=True)"
        )
        raise UnsafeEncodingError(msg)


def _kind(text: str) -> type[Encoding] | None:
    return mds_encodings.get(text) or mds_encodings.get(text.partition(":")[0])
