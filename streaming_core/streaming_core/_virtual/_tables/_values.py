"""Values that a table gives all rows of a file, as text and back. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from streaming_core._extras import require
from streaming_core.errors import SourceFormatError

__all__ = ["from_text", "to_text"]


def to_text(scalar: Any) -> str | None:  # noqa: ANN401 - of an optional dependency
    """Return a `pyarrow.Scalar` as text that `from_text` takes back; None for null.

    Example:
        >>> import pyarrow
        >>> to_text(pyarrow.scalar(19723, pyarrow.date32())), to_text(pyarrow.scalar(b"ab"))
        ('2024-01-01', 'YWI=')
    """
    arrow = _arrow()
    if not scalar.is_valid:
        return None
    if _is_bytes(scalar.type):
        return base64.b64encode(scalar.as_py()).decode()
    if arrow.types.is_time(scalar.type):
        scalar = scalar.cast(_whole(scalar.type))
    text: str = scalar.cast(arrow.string()).as_py()
    return text


def from_text(text: str | None, kind: Any, where: str) -> Any:  # noqa: ANN401 - see above
    """Return the `pyarrow.Scalar` of that type; `SourceFormatError` if the text is none."""
    arrow = _arrow()
    if text is None:
        return arrow.scalar(None, kind)
    try:
        if _is_bytes(kind):
            return arrow.scalar(base64.b64decode(text, validate=True), kind)
        scalar = arrow.scalar(text, arrow.string())
        if arrow.types.is_time(kind):
            scalar = scalar.cast(_whole(kind))
        return scalar.cast(kind)
    except (arrow.ArrowException, binascii.Error, ValueError) as error:
        msg = f"{where}: the table gives its rows {text!r:.100}, which is no {kind}"
        raise SourceFormatError(msg) from error


def _arrow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("pyarrow", extra="parquet", purpose="reading a table")


def _is_bytes(kind: Any) -> bool:  # noqa: ANN401 - see above
    types = _arrow().types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _whole(kind: Any) -> Any:  # noqa: ANN401 - see above
    """Return the type of numbers that a time of day is made of; Arrow parses no text to it."""
    arrow = _arrow()
    return arrow.int32() if arrow.types.is_time32(kind) else arrow.int64()
