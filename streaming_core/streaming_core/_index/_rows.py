"""The fast way through an entry: typed decoding, and checks over thousands of entries at once.

It may refuse what the judge accepts, for the judge is then asked; it must never accept what the
judge refuses. It relies on the decoder's types for presence and ranges, and sees each distinct
spelling of a schema only once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from streaming_core._index._column import ABSENT
from streaming_core._index._json import BROKEN_JSON, count_quotes
from streaming_core._index._judge import (
    INDEX_NAME,
    MAX_INT63,
    MAX_UINT32,
    Verdict,
    basename_problem,
    judge_schema,
)
from streaming_core._index._problems import Problems
from streaming_core._index._schema import ENTRY_KEYS, ShardFormat, ShardSchema
from streaming_core._index._shard import ROLE_KEYS, ROLES, FileRole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "Entry",
    "File",
    "RoleRows",
    "Row",
    "Rows",
    "SchemaBook",
    "decode_rows",
    "extract",
    "suspects",
]

_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT63)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_UINT32)]
_NO_TEXT = Raw(b"")

# One name a line. Narrower than what is allowed, so names outside of it are looked at one by one.
# The quantifiers are possessive: nothing is tried twice.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}+"
_PLAIN_NAMES = re.compile(rf"(?:{_PART}(?:/{_PART}){{0,3}}+\n)*+", re.ASCII)
_DIGESTS = re.compile(r"(?:(?:[0-9a-fA-F]{2})++\n)*+", re.ASCII)


class File(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A file's object in the document."""

    basename: str
    bytes: _Size
    hashes: dict[str, str]


class Row(msgspec.Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    """What differs between the shards of a schema."""

    samples: _Count
    raw_data: File
    zip_data: File | None
    raw_meta: File | UnsetType | None = UNSET
    zip_meta: File | UnsetType | None = UNSET

    @classmethod
    def of(cls, verdict: Verdict) -> Row:
        """Return the row of an entry that the judge has accepted."""
        files: dict[str, Any] = {"zip_data": None}
        for role, info in verdict.files.items():
            files[ROLE_KEYS[role]] = File(info.basename, info.bytes, info.hashes)
        return cls(samples=verdict.samples, **files)


class Entry(Row, forbid_unknown_fields=True, gc=False, kw_only=True):
    """A whole entry; what shards share stays as it is spelt."""

    version: Literal[2]  # VERSION, which a type cannot name
    format: ShardFormat
    compression: Raw
    hashes: Raw
    size_limit: Raw
    column_names: Raw = _NO_TEXT
    column_encodings: Raw = _NO_TEXT
    column_sizes: Raw = _NO_TEXT
    columns: Raw = _NO_TEXT
    newline: Raw = _NO_TEXT
    separator: Raw = _NO_TEXT


_DECODER = msgspec.json.Decoder(Entry)
_SHARED = (
    "compression",
    "hashes",
    "size_limit",
    "column_names",
    "column_encodings",
    "column_sizes",
    "columns",
    "newline",
    "separator",
)


def decode_rows(raws: Sequence[Raw]) -> list[Entry | None]:
    """Return each entry decoded, None where it is not of the plain form."""
    try:
        return list(map(_DECODER.decode, raws))
    except BROKEN_JSON:
        return [_decoded(raw) for raw in raws]  # at least one is bad; find out which


def _decoded(raw: Raw) -> Entry | None:
    try:
        return _DECODER.decode(raw)
    except BROKEN_JSON:
        return None


@final
class SchemaBook:
    """The schemas met so far, each looked at once."""

    __slots__ = ("_by_spelling", "_ids")

    def __init__(self) -> None:
        self._ids: dict[ShardSchema, int] = {}
        self._by_spelling: dict[tuple[object, ...], tuple[int, int]] = {}

    @property
    def schemas(self) -> tuple[ShardSchema, ...]:
        """All schemas, in the order of their ids."""
        return tuple(self._ids)

    def add(self, schema: ShardSchema) -> int:
        """Return the id of `schema`."""
        return self._ids.setdefault(schema, len(self._ids))

    def look_up(self, entry: Entry | None) -> tuple[int, int]:
        """Return the id of the entry's schema, -1 if it is not plainly good, and its quotes."""
        if entry is None:
            return -1, 0
        key = (
            entry.format,
            entry.raw_meta is UNSET,
            entry.zip_meta is UNSET,
            bytes(entry.compression),
            bytes(entry.hashes),
            bytes(entry.size_limit),
            bytes(entry.column_names),
            bytes(entry.column_encodings),
            bytes(entry.column_sizes),
            bytes(entry.columns),
            bytes(entry.newline),
            bytes(entry.separator),
        )
        known = self._by_spelling.get(key)
        if known is None:
            known = self._by_spelling[key] = self._read(entry)
        return known

    def _read(self, entry: Entry) -> tuple[int, int]:
        spelt = {key: bytes(getattr(entry, key)) for key in _SHARED if bytes(getattr(entry, key))}
        keys = {"format", "raw_data", "samples", "version", "zip_data", *spelt}
        keys |= {key for key in ("raw_meta", "zip_meta") if getattr(entry, key) is not UNSET}
        if ENTRY_KEYS[entry.format] != frozenset(keys):
            return -1, 0
        try:
            document = {key: msgspec.json.decode(text) for key, text in spelt.items()}
        except BROKEN_JSON:
            return -1, 0
        schema = judge_schema({**document, "format": entry.format}, "$", Problems())
        if schema is None:
            return -1, 0
        quotes = 2 * len(keys) + 2 + sum(map(count_quotes, spelt.values()))
        if "columns" in spelt and count_quotes(spelt["columns"]) != 4 * len(schema.column_names):
            return -1, 0  # a column came twice
        return self.add(schema), quotes


@final
@dataclass(slots=True)
class RoleRows:
    """The files that some rows have in one role."""

    sizes: NDArray[np.int64]
    """-1 where there is no file."""
    names: list[str]
    """Empty where there is no file."""
    hashes: list[dict[str, str]] | None
    """None if no file has any."""


@final
@dataclass(slots=True)
class Rows:
    """Some rows, in columns; a role without any file is left out."""

    samples: NDArray[np.int64]
    files: dict[FileRole, RoleRows]


def extract(rows: Sequence[Row]) -> Rows:
    """Return `rows` in columns."""
    samples = np.fromiter(map(attrgetter("samples"), rows), np.int64, len(rows))
    files: dict[FileRole, RoleRows] = {}
    for role in ROLES:
        found: list[File | None] = list(map(attrgetter(ROLE_KEYS[role]), rows))
        if not any(found):  # UNSET is false, too
            continue
        names = [file.basename if file else "" for file in found]
        sizes = np.array([file.bytes if file else -1 for file in found], np.int64)
        hashes = [file.hashes if file else {} for file in found]
        files[role] = RoleRows(sizes, names, hashes if any(hashes) else None)
    return Rows(samples, files)


def suspects(
    rows: Rows,
    schemas: Sequence[ShardSchema],
    ids: NDArray[np.int32],
    spare_quotes: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which rows the judge must see.

    `spare_quotes` says how many quotes of each entry its schema and keys do not explain; if its
    files do not either, a key came twice.
    """
    zipped = np.array([schema.compression is not None for schema in schemas])[ids]
    meta = np.array([schema.has_meta for schema in schemas])[ids]
    wanted: dict[FileRole, NDArray[np.bool_]] = {
        "zip": zipped,
        "raw_meta": meta,
        "zip_meta": meta & zipped,
    }
    bad = np.zeros(len(ids), np.bool_)
    head = raw = rows.files["raw"].sizes
    for role, mask in wanted.items():
        column = rows.files.get(role)
        bad |= mask if column is None else mask != (column.sizes != ABSENT)
        if role == "raw_meta" and column is not None:
            head = np.where(meta, column.sizes, raw)
    bad |= (raw > MAX_UINT32) | (head < 4 + 4 * (rows.samples + 1))
    quotes = np.zeros(len(ids), np.int64)
    for column in rows.files.values():
        quotes += np.where(column.sizes != ABSENT, 8, 0)  # three keys and a name
        if column.hashes is not None:
            quotes += 4 * np.fromiter(map(len, column.hashes), np.int64, len(ids))
            bad |= _bad_hashes(column.hashes)
        bad |= _bad_names(column.names, column.sizes)
    bad |= quotes != spare_quotes
    return bad


def _bad_names(names: list[str], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    present = sizes != ABSENT
    given = [name for name in names if name]
    plain = _all_match(_PLAIN_NAMES, given) and INDEX_NAME not in given
    bad = [not name if plain else basename_problem(name) is not None for name in names]
    found = np.fromiter(bad, np.bool_, len(names))
    found &= present
    return found


def _bad_hashes(hashes: list[dict[str, str]]) -> NDArray[np.bool_]:
    digests = [digest for each in hashes for digest in each.values()]
    if _all_match(_DIGESTS, digests) and not any("" in each for each in hashes):
        return np.zeros(len(hashes), np.bool_)
    # Which one it is does not matter: each with any hashes goes to the judge.
    return np.fromiter(map(bool, hashes), np.bool_, len(hashes))


def _all_match(lines: re.Pattern[str], texts: list[str]) -> bool:
    """Say whether all texts match, tried as the lines of one text; none may hold a line's end."""
    text = "\n".join([*texts, ""])
    return text.count("\n") == len(texts) and lines.fullmatch(text) is not None
