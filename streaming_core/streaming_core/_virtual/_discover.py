"""From what a user names - a folder, a pattern, files - to the files that are meant."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_core._index import SINGLE_MEDIA, is_media
from streaming_core._store import LocalStore, open_store, public_url
from streaming_core._virtual._hub import hub_files
from streaming_core._virtual._kinds import kind_of_name, open_kind
from streaming_core._virtual._listing import listing_of, neighbours
from streaming_core._virtual._model import SourceFile
from streaming_core._virtual._patterns import (
    MAGIC,
    hive_constants,
    is_hidden,
    literal_lead,
    pattern_regex,
    quoted,
)
from streaming_core.errors import SchemaError, SourceFormatError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming_core._store import ObjectInfo, StorageOptions, Store
    from streaming_core._virtual._listing import Listing

__all__ = [
    "Chosen",
    "Place",
    "chosen_files",
    "find_files",
    "find_hub_files",
    "guessed_kind",
    "hive_constants",
    "is_hidden",
    "kinds_of",
    "open_source",
    "packed_hint",
    "pattern_regex",
    "place_of",
    "published_name",
]

_log = logging.getLogger("streaming_core.reader")
_LINES: Final = ("csv", "jsonl", "text", "tsv")
"""Formats in which nothing at all is no rows."""
_PLAIN: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")
_OF_TABLES: Final = ("parquet", "orc", "avro")
"""Formats that tables have their rows in."""
_PACKERS: Final = (
    "7z",
    "br",
    "bz2",
    "gz",
    "gzip",
    "lz4",
    "snappy",
    "xz",
    "z",
    "zip",
    "zst",
    "zstd",
)
_SHORT: Final = {"tbz": "tar.bz2", "tbz2": "tar.bz2", "txz": "tar.xz", "tzst": "tar.zst"}
_CARD: Final = "README.md"
_MOST_CARD_BYTES: Final = 16 << 20


class Place(NamedTuple):
    """Where to look, and for what."""

    store: Store
    """The deepest folder that has all of it."""
    pattern: str
    """What names below it must match; empty for all."""

    @property
    def url(self) -> str:
        """All of it, for messages, without secrets."""
        return f"{public_url(self.store.url).rstrip('/')}/{self.pattern}"


def place_of(
    remote: str, options: StorageOptions | None = None, *, kind: str | None = None
) -> Place:
    """Return where a folder, a file's URL or a pattern with `*`, `?`, `[…]`, `{a,b}` or `**` looks.

    A path that names a file is that file alone; so is one whose name does not tell, if `kind` says
    what it is. On this machine, what is there under its very name is no pattern.

    Example:
        >>> place = place_of("/data/year=*/part-?.parquet")
        >>> place.store.url, place.pattern
        ('file:///data', 'year=*/part-?.parquet')
    """
    scheme, mark, path = remote.rpartition("://")
    parts = path.split("/")
    lead = scheme + mark
    first = _first_magic(lead, parts)
    if first is not None:
        store = open_source(_root(lead, parts[:first], path), options)
        return Place(store, "/".join(parts[first:]))
    name = parts[-1]
    store = open_source(remote, options)
    is_told = bool(name) and kind_of_name(name) is not None
    if isinstance(store, LocalStore):
        here = store.path  # a folder may have a name like a file's
        if not here.is_file() and (not is_told or here.is_dir()):
            return Place(store, "")
        return Place(LocalStore(here.parent, store.durable, links=True), quoted(here.name))
    folder = _root(lead, parts[:-1], path)
    may_be_file = kind is not None and "." in name and len(parts) > 1
    if is_told or (may_be_file and _has(open_store(folder, options), name)):
        return Place(open_store(folder, options), quoted(name))
    return Place(store, "")


def _first_magic(lead: str, parts: Sequence[str]) -> int | None:
    """Return which part of a path is the first that is a pattern."""
    for at, part in enumerate(parts):
        is_literal = MAGIC.search(part) is None or (
            not (lead or "*" in part or "?" in part)
            and Path(os.path.expanduser("/".join(parts[: at + 1]))).exists()  # noqa: PTH111
        )
        if not is_literal:
            return at
    return None


def _has(store: Store, name: str) -> bool:
    with suppress(StoreError):
        store.head(name)
        return True
    return False


def open_source(remote: str, options: StorageOptions | None = None) -> Store:
    """Return a store of data that is read; links of this machine's folders are followed."""
    store = open_store(remote, options)
    if isinstance(store, LocalStore):
        return LocalStore(store.path, store.durable, links=True)
    return store


def _root(scheme: str, parts: Sequence[str], path: str) -> str:
    """Return the folder of these parts of a path, which may be the root, or the one we are in."""
    root = "/".join(parts)
    if not scheme and not root:
        root = "/" if path.startswith("/") else "."
    return scheme + root


class Chosen(NamedTuple):
    """The files of a place, and what they are."""

    kind: str
    """Name of their format."""
    files: list[SourceFile]
    """In order of their names."""


def find_files(
    place: Place, kind: str | None = None, options: Mapping[str, Any] | None = None
) -> Chosen:
    """List the files of a place once, of the format `kind`, or of the one that their names tell.

    Raises:
        SchemaError: There are none, or they are of several formats; says what was found.
        SourceFormatError: One of them is empty, or cannot be read.
    """
    listing = listing_of(*place)
    if kind is None:
        kind = guessed_kind(place, listing.names)
    return Chosen(kind, _chosen(place, listing, kind, open_kind(kind, options).suffixes, hive=True))


def find_hub_files(store: Store, config: str | None, split: str | None) -> Chosen:
    """List the files of a split of a data set on the Hugging Face Hub; see `hub_files`.

    Raises `SchemaError` as that, and where the files are of several formats.
    """
    listing = listing_of(store, "")
    infos = {info.key: info for info in listing.files}
    card = ""
    if _CARD in infos:
        card = store.get(_CARD, max_bytes=_MOST_CARD_BYTES).decode(errors="replace")
    where = public_url(store.url)
    names = hub_files([*infos, *listing.bad], card, config=config, split=split)
    kind = guessed_kind(Place(store, ""), names)
    listing.refuse(names, where)
    files = _filled([infos[name] for name in names], kind, where)
    return Chosen(kind, [SourceFile(info.key, info.size, info.etag) for info in files])


def guessed_kind(place: Place, names: Iterable[str]) -> str:
    """Return the format that a pattern tells, else names that match it; `SchemaError` if not one.

    Example:
        >>> guessed_kind(place_of("/data/*.parquet"), [])
        'parquet'
    """
    found = sorted(kinds_of([place.pattern]))
    if not found:
        matches = pattern_regex(place.pattern).fullmatch if place.pattern else None
        found = sorted(kinds_of(name for name in names if matches is None or matches(name)))
    if len(found) == 1:
        return found[0]
    what = f"of several formats ({', '.join(found)})" if found else "of no known format"
    msg = f"the files in {place.url} are {what}; say which is meant, such as format='parquet'"
    if is_media(place.pattern):
        msg = f"the files in {place.url} are {SINGLE_MEDIA}"
    raise SchemaError(msg)


def chosen_files(
    place: Place, kind: str | None, suffixes: Sequence[str], *, hive: bool = True
) -> list[SourceFile]:
    """List the files of a place, in order of their names.

    Without a pattern these are the files whose names end as the format's do; hidden ones (`_x`,
    `.x`, also of folders) never count. Folders `name=value` give columns.

    Raises as `find_files`.
    """
    return _chosen(place, listing_of(*place), kind, suffixes, hive=hive)


def _chosen(
    place: Place, listing: Listing, kind: str | None, suffixes: Sequence[str], *, hive: bool
) -> list[SourceFile]:
    matches = pattern_regex(place.pattern).fullmatch if place.pattern else None
    ends = tuple(suffixes)

    def is_meant(name: str) -> bool:
        return bool(matches(name)) if matches else name.lower().endswith(ends)

    listing.refuse([name for name in listing.bad if is_meant(name)], place.url)
    infos = listing.once([info for info in listing.files if is_meant(info.key)], place.url)
    infos = _filled(infos, kind or "", place.url)
    if not infos:
        raise _none(place, kind, suffixes)
    files = [
        SourceFile(info.key, info.size, info.etag, hive_constants(info.key) if hive else ())
        for info in infos
    ]
    _warn_of_tables(place, listing, kind, files)
    return sorted(files, key=lambda file: file.key)


def _filled(infos: Sequence[ObjectInfo], kind: str, where: str) -> list[ObjectInfo]:
    """Leave out empty files of texts, which have no rows, unless all are empty.

    Raises `SourceFormatError` for other empty files.
    """
    wrong = [info.key for info in infos if not info.size and not _may_be_empty(info.key, kind)]
    if wrong:
        more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
        msg = (
            f"{where}: {wrong[0]!r}{more} has 0 bytes, which no {kind or 'data'} file has: perhaps "
            "it was not written to its end. Write it again or remove it"
        )
        raise SourceFormatError(msg)
    return [info for info in infos if info.size] or list(infos)


def _may_be_empty(key: str, kind: str) -> bool:
    return kind in _LINES and (kind_of_name(key) is None or key.lower().endswith(_PLAIN))


def _none(place: Place, kind: str | None, suffixes: Sequence[str]) -> SchemaError:
    """Return the error for a place that has no such files; looks what is there instead."""
    name, is_all = literal_lead(place.pattern)
    if not place.pattern:
        what = f"no {kind or 'data'} files that end with {', '.join(suffixes)} in {place.url}"
    elif is_all:
        what = f"no {kind or 'data'} files called {name!r} in {place.store.url}"
    else:
        what = f"no {kind or 'data'} files that match {place.pattern!r} in {place.store.url}"
    beside = neighbours(place.store)
    there, hint = "", None
    if beside is not None:
        count, first = beside
        there = f"; {count} other file(s) are there" + (f", such as {first!r}" if first else "")
        hint = packed_hint(first)
    advice = "See whether the place is right, or give a pattern such as '**/*.dat'"
    if not place.pattern and not (beside and beside[0]):
        advice += "; if it is one file, write its name in braces: '{name}'"
    return SchemaError(f"{what}{there}. {hint or advice}")


def packed_hint(name: str) -> str | None:
    """Return what to do about a file of a format that cannot be read compressed; else None.

    Example:
        >>> packed_hint("a.csv.gz"), packed_hint("a.parquet.gz")[:40]
        (None, "'a.parquet.gz' is compressed as a whole,")
    """
    stem, mark, end = name.lower().rpartition(".")
    end = _SHORT.get(end, end)
    kind = "webdataset" if end.startswith("tar.") else kind_of_name(stem)
    if not mark or kind is None or end.rpartition(".")[2] not in _PACKERS or kind_of_name(name):
        return None
    return f"{name!r} is compressed as a whole, as {kind} files cannot be read: unpack it" + (
        ", or pack it with gzip instead (.tar.gz)" if kind == "webdataset" else ""
    )


def _warn_of_tables(
    place: Place, listing: Listing, kind: str | None, files: Sequence[SourceFile]
) -> None:
    if kind not in _OF_TABLES:
        return
    for folder, table in listing.tables.items():
        if any(file.key.startswith(folder) for file in files):
            where = f"{public_url(place.store.url).rstrip('/')}/{folder}".rstrip("/")
            _log.warning(
                "%s is a table: its plain files have rows that were deleted or replaced, and rows "
                "of several versions. To read the table say format=%r, and its folder",
                where,
                table,
            )


def published_name(pattern: str) -> str:
    """Return the name of the index that is kept beside the data, for all files of a pattern.

    Example:
        >>> published_name("")
        '.streaming/all.index'
    """
    stem = hashlib.blake2s(pattern.encode(), digest_size=8).hexdigest() if pattern else "all"
    return f".streaming/{stem}.index"


def kinds_of(names: Iterable[str]) -> set[str]:
    """Return the formats that some names tell."""
    return {kind for name in names if (kind := kind_of_name(name)) is not None}
