"""Encodings by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core._format._mds._arrays import ArrayEncoding
from streaming_core._format._mds._images import IMAGES
from streaming_core._format._mds._objects import JSON, Bytes, Pickle, Str
from streaming_core._format._mds._scalars import SCALARS, Int, StrDecimal, StrFloat, StrInt
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._format._mds._encoding import Encoding

__all__ = ["find_encoding", "mds_encodings"]

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
    name, colon, arguments = text.partition(":")
    kind = mds_encodings.get(text) or mds_encodings.get(name)
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
