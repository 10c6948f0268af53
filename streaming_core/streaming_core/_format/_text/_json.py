"""JSON lines: one object a line, its keys sorted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from streaming_core._format._text._values import (
    Value,
    checked_columns,
    checked_newline,
    plain_values,
)
from streaming_core.errors import SampleError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JSONColumns"]

_ENCODER = json.JSONEncoder()
_EXACT = 1 << 53  # every whole number up to it is a float


class JSONColumns:
    r"""The columns of a JSON shard. Immutable, so threads may share it.

    Example:
        >>> columns = JSONColumns({"s": "str", "a": "int"})
        >>> columns.encode({"s": "é", "a": 7, "extra": None})
        b'{"a": 7, "s": "\\u00e9"}\n'
        >>> columns.decode(columns.encode({"s": "é", "a": 7}))
        {'a': 7, 's': 'é'}
    """

    __slots__ = ("_end", "columns", "format", "newline")

    def __init__(self, columns: Mapping[str, str], *, newline: str = "\n") -> None:
        """Check names and encodings (`str`, `int`, `float`); `SchemaError` says which is wrong."""
        self.columns = checked_columns(columns)
        self.newline = checked_newline(newline)
        self.format = "json"
        self._end = self.newline.encode()

    def config(
        self, *, compression: str | None, hashes: tuple[str, ...], size_limit: int | None
    ) -> dict[str, Any]:
        """Return the settings as a shard's meta file and the index hold them."""
        return {
            "columns": dict(self.columns),
            "compression": compression,
            "format": self.format,
            "hashes": list(hashes),
            "newline": self.newline,
            "size_limit": size_limit,
            "version": 2,
        }

    def header(self) -> bytes:
        """Return what precedes the first record: nothing."""
        return b""

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        """Return the line of one sample; `SampleError` names the column that does not fit."""
        values = plain_values(sample, self.columns)
        try:
            return _ENCODER.encode(values).encode() + self._end
        except ValueError as error:
            # Only an int of more digits than Python converts to text.
            msg = f"a value has no text form: {error}"
            raise SampleError(msg) from error

    def decode(self, record: bytes) -> dict[str, Value]:
        """Return the sample of a line; raises `ValueError` or `RecursionError` where it is none."""
        if not record.endswith(self._end):
            msg = f"the line ends with {record[-8:]!r}, not with {self._end!r}"
            raise ValueError(msg)
        found = json.loads(record[: -len(self._end)].decode())
        if not isinstance(found, dict):
            msg = f"wanted an object, came {type(found).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - wrong data, no programming error
        row = cast("dict[str, Any]", found)
        return {name: _read(row, name, encoding) for name, encoding in self.columns.items()}


def _read(row: dict[str, Any], name: str, encoding: str) -> Value:
    if name not in row:
        msg = f"column {name!r} is missing"
        raise ValueError(msg)
    value: object = row[name]
    if encoding == "str" and isinstance(value, str):
        return value
    if encoding == "int" and isinstance(value, int):
        return value
    if encoding == "float" and isinstance(value, float):
        return value
    if encoding == "float" and type(value) is int and abs(value) <= _EXACT:
        # Other tools write whole floats without a point.
        return float(value)
    msg = f"column {name!r}: wanted {encoding}, came {type(value).__name__} {value!r:.60}"
    raise ValueError(msg)
