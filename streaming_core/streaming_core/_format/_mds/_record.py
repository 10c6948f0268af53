"""The layout of one MDS record: lengths of the variable columns, then all columns, by name."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from streaming_core._format._mds._encoding import came
from streaming_core._format._mds._layout import layout_of
from streaming_core._format._mds._registry import find_encoding
from streaming_core._format._mds._values import DECODE_ERRORS, fault, reader_of
from streaming_core.errors import MissingColumnError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._format._mds._encoding import Encoding

__all__ = ["MDSColumns", "config_bytes", "encode_value"]


class MDSColumns:
    """The columns of an MDS shard in file order, with their encodings.

    Example:
        >>> columns = MDSColumns({"b": "str", "a": "int"})
        >>> columns.names, columns.sizes
        (('a', 'b'), (8, None))
        >>> columns.decode(columns.encode({"a": 7, "b": "x"}))
        {'a': 7, 'b': 'x'}
    """

    __slots__ = (
        "_lengths",
        "_readers",
        "_variable",
        "begins",
        "encodings",
        "fixed_size",
        "head_size",
        "layouts",
        "names",
        "sizes",
        "texts",
    )

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
        self.head_size = self._lengths.size
        self.fixed_size = self.head_size + sum(size or 0 for size in self.sizes)
        self.layouts = tuple(map(layout_of, self.encodings))
        # Where columns begin in records of one size.
        self.begins = tuple(itertools.accumulate((size or 0 for size in self.sizes), initial=0))
        self._readers = [
            (name, size, reader_of(encoding))
            for name, size, encoding in zip(self.names, self.sizes, self.encodings, strict=True)
        ]

    @property
    def variable(self) -> tuple[int, ...]:
        """Positions of the columns whose values differ in size."""
        return self._variable

    @property
    def record_size(self) -> int | None:
        """Bytes of every record, or None where a column's values differ in size."""
        return None if self._variable else self.fixed_size

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

    def positions(self, names: Sequence[str] | None) -> Sequence[int]:
        """Return the positions of columns; `MissingColumnError` where there is no such column."""
        if names is None:
            return range(len(self.names))
        for name in names:
            if name not in self.names:
                known = ", ".join(map(repr, self.names))
                msg = f"no column {name!r}; the shards have {known}"
                raise MissingColumnError(msg)
        return [self.names.index(name) for name in names]

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
        return self.decode_at(memoryview(record), 0, len(record))

    def decode_at(self, data: memoryview, at: int, stop: int) -> dict[str, Any]:
        """Return the sample whose record lies between `at` and `stop`, as `decode` does."""
        size = stop - at
        if self.head_size > size:
            msg = f"the record has {size} bytes, fewer than its {self.head_size} bytes of lengths"
            raise ValueError(msg)
        lengths = self._lengths.unpack_from(data, at)
        needed = self.fixed_size + sum(lengths)
        if needed != size:
            msg = f"the columns have {needed} bytes, but the record has {size}"
            raise ValueError(msg)
        at += self.head_size
        variable = iter(lengths)
        sample: dict[str, Any] = {}
        for name, width, read in self._readers:
            end = at + (next(variable) if width is None else width)
            try:
                sample[name] = read(data, at, end)
            except DECODE_ERRORS as error:
                raise fault(name, error) from error
            at = end
        return sample


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
