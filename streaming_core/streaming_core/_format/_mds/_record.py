"""The layout of one MDS record: lengths of the variable columns, then all columns, by name."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from streaming_core._format._mds._encoding import came
from streaming_core._format._mds._registry import find_encoding
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._format._mds._encoding import Encoding

__all__ = ["DECODE_ERRORS", "MDSColumns", "config_bytes", "encode_value"]

DECODE_ERRORS = (
    ValueError,  # wrong lengths, shapes, UTF-8, JSON, numbers as text
    RuntimeError,  # among them RecursionError: JSON nested deeper than Python's stack
    # Pillow's answers to broken images, and what users' encodings may raise on bytes of others.
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    Warning,  # raised where the user had warnings turned into errors
    struct.error,
    zlib.error,
)
"""What decoders raise on bytes that are not theirs; the shard's reader says where it was."""


class MDSColumns:
    """The columns of an MDS shard in file order, with their encodings.

    Example:
        >>> columns = MDSColumns({"b": "str", "a": "int"})
        >>> columns.names, columns.sizes
        (('a', 'b'), (8, None))
        >>> columns.decode(columns.encode({"a": 7, "b": "x"}))
        {'a': 7, 'b': 'x'}
    """

    __slots__ = ("_lengths", "_variable", "encodings", "names", "sizes", "texts")

    def __init__(self, columns: Mapping[str, str]) -> None:
        """Look every encoding up; `SchemaError` says which column has none."""
        columns = _checked(columns)
        self.names = tuple(sorted(columns))
        self.texts = tuple(columns[name] for name in self.names)
        self.encodings: tuple[Encoding, ...] = tuple(
            find_encoding(columns[name], name) for name in self.names
        )
        self.sizes = tuple(encoding.size for encoding in self.encodings)
        self._variable = tuple(i for i, size in enumerate(self.sizes) if size is None)
        self._lengths = struct.Struct(f"<{len(self._variable)}I")

    @property
    def variable(self) -> tuple[int, ...]:
        """Positions of the columns whose values differ in size."""
        return self._variable

    @property
    def record_size(self) -> int | None:
        """Bytes of every record, or None where a column's values differ in size."""
        return None if self._variable else sum(size or 0 for size in self.sizes)

    def config(
        self, *, compression: str | None, hashes: tuple[str, ...], size_limit: int | None
    ) -> dict[str, Any]:
        """Return the settings as a shard's header and the index hold them."""
        return {
            "column_encodings": list(self.texts),
            "column_names": list(self.names),
            "column_sizes": list(self.sizes),
            "compression": compression,
            "format": "mds",
            "hashes": list(hashes),
            "size_limit": size_limit,
            "version": 2,
        }

    def unsafe(self) -> list[str]:
        """Return the columns whose decoding can run code that the data chose."""
        return [n for n, e in zip(self.names, self.encodings, strict=True) if e.unsafe]

    def encode(self, sample: Mapping[str, Any]) -> bytes:
        """Return the record of one sample; keys that are no columns are left out.

        The writer compiles a faster form of the same.
        """
        parts = [
            encode_value(encoding, sample[name])
            for name, encoding in zip(self.names, self.encodings, strict=True)
        ]
        return b"".join([self._lengths.pack(*(len(parts[i]) for i in self._variable)), *parts])

    def decode(self, record: bytes | memoryview) -> dict[str, Any]:
        """Return the sample; `ValueError` says which column is broken, and why."""
        at = self._lengths.size
        if at > len(record):
            msg = f"the record has {len(record)} bytes, fewer than its {at} bytes of lengths"
            raise ValueError(msg)
        lengths = iter(self._lengths.unpack_from(record))
        sizes = [next(lengths) if size is None else size for size in self.sizes]
        if at + sum(sizes) != len(record):
            msg = f"the columns have {at + sum(sizes)} bytes, but the record has {len(record)}"
            raise ValueError(msg)
        sample: dict[str, Any] = {}
        for name, encoding, size in zip(self.names, self.encodings, sizes, strict=True):
            try:
                sample[name] = encoding.decode(bytes(record[at : at + size]))
            except DECODE_ERRORS as error:
                msg = f"column {name!r:.200}: {_reason(error)}"
                raise ValueError(msg) from error
            at += size
        return sample


def _reason(error: Exception) -> str:
    """Return the error's text, short whatever it repeats of the data."""
    text = f"{error!s:.500}"
    # The text of a KeyError or EOFError says little or nothing on its own.
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def _checked(columns: object) -> Mapping[str, str]:
    """Return `columns` if it is a mapping of texts to texts that has some."""
    if not isinstance(columns, Mapping):
        msg = f"columns map names to encodings, as in {{'text': 'str'}}; came {came(columns)}"
        raise SchemaError(msg)
    if not columns:
        msg = "no columns; give at least one, as in columns={'text': 'str'}"
        raise SchemaError(msg)
    for name, text in cast("Mapping[object, object]", columns).items():
        if not isinstance(name, str) or not isinstance(text, str):
            msg = f"columns map names to encodings, both text; came {name!r}: {text!r}"
            raise SchemaError(msg)
    return cast("Mapping[str, str]", columns)


def encode_value(encoding: Encoding, value: Any) -> bytes:  # noqa: ANN401 - any user's value
    """Return the bytes of one value; a value of type `bytes` counts as encoded already."""
    data: Any = value if type(value) is bytes else encoding.encode(value)
    if not isinstance(data, bytes):
        msg = f"the encoding must give bytes, but {type(encoding).__name__} gave {came(data)}"
        raise TypeError(msg)
    if encoding.size is not None and len(data) != encoding.size:
        msg = f"wanted {encoding.size} bytes, came {len(data)}"
        raise ValueError(msg)
    return data


def config_bytes(config: Mapping[str, Any]) -> bytes:
    """Return the settings as they stand in a shard's header."""
    return json.dumps(config, sort_keys=True).encode()
