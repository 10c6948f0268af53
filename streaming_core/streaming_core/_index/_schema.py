"""What the shards of a data set have in common: format, columns and how files were made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

__all__ = ["ENTRY_KEYS", "FORMATS", "META_FORMATS", "VERSION", "ShardFormat", "ShardSchema"]

ShardFormat: TypeAlias = Literal["mds", "json", "xsv", "csv", "tsv", "arrow"]

FORMATS: Final[tuple[ShardFormat, ...]] = ("mds", "json", "xsv", "csv", "tsv")
MADE_FORMAT: Final = "arrow"
"""Of virtual shards, whose files are made here from data of another kind; no document has it."""
META_FORMATS: Final = frozenset({"json", "xsv", "csv", "tsv"})
"""Formats whose offsets lie in a second file, the meta file."""
VERSION: Final = 2
"""The only version of the index, and of each shard, that there is."""

_SHARED = {"compression", "format", "hashes", "size_limit", "version"}
_COMMON = _SHARED | {"raw_data", "samples", "zip_data"}
_META = {"newline", "raw_meta", "zip_meta"}
_NAMED = {"column_encodings", "column_names"}

ENTRY_KEYS: Final[dict[str, frozenset[str]]] = {
    "mds": frozenset(_COMMON | _NAMED | {"column_sizes"}),
    "json": frozenset(_COMMON | _META | {"columns"}),
    "csv": frozenset(_COMMON | _META | _NAMED),
    "tsv": frozenset(_COMMON | _META | _NAMED),
    "xsv": frozenset(_COMMON | _META | _NAMED | {"separator"}),
    "": frozenset(_COMMON),
}
"""Keys that an entry of a format must have; under `""` those common to all formats."""


@dataclass(frozen=True, slots=True)
class ShardSchema:
    """What many shards share. Hashable, picklable; equal schemas mean equal documents.

    Example:
        >>> schema = ShardSchema("mds", ("text",), ("str",), column_sizes=(None,))
        >>> schema.document()["column_names"]
        ['text']
    """

    format: ShardFormat
    """Kind of shard file."""
    column_names: tuple[str, ...]
    """Names in record order: sorted, but for `json` in the order of the document."""
    column_encodings: tuple[str, ...]
    """Encoding of each column."""
    column_sizes: tuple[int | None, ...] = ()
    """Bytes of each column, None where they vary; only `mds` has them, else empty."""
    compression: str | None = None
    """Such as `zstd:7`, or None."""
    hashes: tuple[str, ...] = ()
    """Names of the hashes that every file carries."""
    size_limit: int | str | None = None
    """The size at which shards were cut, as the document gives it (`64mb` stays a text)."""
    newline: str | None = None
    """What ends a line; None for `mds`."""
    separator: str | None = None
    """What parts the columns; only `xsv` says it."""

    @property
    def has_meta(self) -> bool:
        """Whether each shard has a meta file beside its data file."""
        return self.format in META_FORMATS

    @property
    def is_made(self) -> bool:
        """Whether files are made on this machine, so that no index knows their exact sizes."""
        return self.format == MADE_FORMAT

    def document(self) -> dict[str, Any]:
        """Return the schema's keys as an entry of the document has them, in fresh containers."""
        entry: dict[str, Any] = {
            "compression": self.compression,
            "format": self.format,
            "hashes": list(self.hashes),
            "size_limit": self.size_limit,
            "version": VERSION,
        }
        if self.format == "json":
            columns = zip(self.column_names, self.column_encodings, strict=True)
            entry["columns"] = dict(columns)
        else:
            entry["column_names"] = list(self.column_names)
            entry["column_encodings"] = list(self.column_encodings)
        if self.format == "mds":
            entry["column_sizes"] = list(self.column_sizes)
        else:
            entry["newline"] = self.newline
        if self.format == "xsv":
            entry["separator"] = self.separator
        return entry

    def identity(self) -> tuple[object, ...]:
        """Return what tells data apart: not how it was compressed, hashed or cut."""
        columns = list(zip(self.column_names, self.column_encodings, strict=True))
        sizes = self.column_sizes
        return (self.format, sorted(columns), sizes, self.newline, self.separator)
