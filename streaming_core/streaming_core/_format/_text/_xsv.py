"""Separated values: a header line, then one line a sample, without quoting or escaping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from streaming_core._format._text._values import (
    Value,
    checked_columns,
    checked_newline,
    plain_values,
)
from streaming_core.errors import SampleError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["XSVColumns", "XSVFormat"]

XSVFormat: TypeAlias = Literal["xsv", "csv", "tsv"]

_SEPARATORS: Final = {"csv": ",", "tsv": "\t"}


class XSVColumns:
    r"""The columns of an XSV, CSV or TSV shard. Immutable, so threads may share it.

    Example:
        >>> columns = XSVColumns({"s": "str", "a": "int"}, format="csv")
        >>> columns.header(), columns.encode({"s": "é", "a": 7})
        (b'a,s\n', b'7,\xc3\xa9\n')
        >>> columns.decode(b"7,\xc3\xa9\n")
        {'a': 7, 's': 'é'}
    """

    __slots__ = ("_end", "columns", "format", "newline", "separator")

    def __init__(
        self,
        columns: Mapping[str, str],
        *,
        format: XSVFormat = "xsv",
        separator: str | None = None,
        newline: str = "\n",
    ) -> None:
        """Check names and encodings (`str`, `int`, `float`); `SchemaError` says which is wrong.

        `separator` belongs to `xsv`, which needs one; `csv` and `tsv` have their own.
        """
        self.columns = checked_columns(columns)
        self.newline = checked_newline(newline)
        self.format: XSVFormat = format
        own = _SEPARATORS.get(format, separator)
        if not own or separator not in {None, own}:
            wanted = repr(_SEPARATORS[format]) if format in _SEPARATORS else "a text, as in '|'"
            msg = f"format {format!r}: the separator is {wanted}; came {separator!r}"
            raise SchemaError(msg)
        self.separator = own
        self._end = newline.encode()
        fault = self._fault(list(self.columns))
        if fault is not None:
            msg = f"the column names cannot stand in a header line: {fault}"
            raise SchemaError(msg)

    def config(
        self, *, compression: str | None, hashes: tuple[str, ...], size_limit: int | None
    ) -> dict[str, Any]:
        """Return the settings as a shard's meta file and the index hold them."""
        config: dict[str, Any] = {
            "column_encodings": list(self.columns.values()),
            "column_names": list(self.columns),
            "compression": compression,
            "format": self.format,
            "hashes": list(hashes),
            "newline": self.newline,
            "size_limit": size_limit,
            "version": 2,
        }
        if self.format == "xsv":
            config["separator"] = self.separator
        return config

    def header(self) -> bytes:
        """Return what precedes the first record: the line of the names."""
        return (self.separator.join(self.columns) + self.newline).encode()

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        """Return the line of one sample; `SampleError` names the column that does not fit."""
        values = plain_values(sample, self.columns)
        try:
            texts = [_write(value) for value in values.values()]
        except ValueError as error:
            msg = f"a value has no text form: {error}"
            raise SampleError(msg) from error
        fault = self._fault(texts)
        if fault is not None:
            msg = f"{fault}. The format has no quoting: choose another separator, or json or mds"
            raise SampleError(msg)
        return (self.separator.join(texts) + self.newline).encode()

    def decode(self, record: bytes) -> dict[str, Value]:
        """Return the sample of a line; raises `ValueError` where it is none."""
        if not record.endswith(self._end):
            msg = f"the line ends with {record[-8:]!r}, not with {self._end!r}"
            raise ValueError(msg)
        texts = record[: -len(self._end)].decode().split(self.separator)
        if len(texts) != len(self.columns):
            msg = f"wanted {len(self.columns)} columns, came {len(texts)}"
            raise ValueError(msg)
        return {
            name: _read(text, name, encoding)
            for text, (name, encoding) in zip(texts, self.columns.items(), strict=True)
        }

    def _fault(self, texts: list[str]) -> str | None:
        """Return why `texts` would not read back from a line, or None if they do."""
        line = self.separator.join(texts)
        # Cutting the line again also finds a separator that only arises where two texts meet.
        same = line.split(self.separator) == texts
        if same and (line + self.newline).index(self.newline) == len(line):
            return None if _encodable(line) else "a text holds half a surrogate pair, not Unicode"
        for name, text in zip(self.columns, texts, strict=True):
            for what, mark in (("separator", self.separator), ("newline", self.newline)):
                if mark in text:
                    return f"column {name!r}: {text!r:.60} holds the {what} {mark!r}"
        return f"{line!r:.60} holds a separator or newline where two columns meet"


def _encodable(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write(value: Value) -> str:
    if isinstance(value, str):
        return value
    # Through the plain type: subclasses, bool among them, may print as a word.
    return str(int(value)) if isinstance(value, int) else str(float(value))


def _read(text: str, name: str, encoding: str) -> Value:
    try:
        match encoding:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case _:
                return text
    except ValueError as error:
        msg = f"column {name!r}: {error}"
        raise ValueError(msg) from error
