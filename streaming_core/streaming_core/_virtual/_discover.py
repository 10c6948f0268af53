"""From what a user names - a folder, a pattern, files - to the files that are meant."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_core._store import LocalStore, open_store, public_url
from streaming_core._virtual._build import in_order
from streaming_core._virtual._hub import hub_files
from streaming_core._virtual._kinds import kind_of_name, open_kind
from streaming_core._virtual._model import SourceFile
from streaming_core._virtual._patterns import (
    MAGIC,
    hive_constants,
    is_hidden,
    listed_names,
    pattern_regex,
)
from streaming_core.errors import ObjectNotFoundError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming_core._store import ObjectInfo, StorageOptions, Store

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
    "listed_names",
    "pattern_regex",
    "place_of",
    "published_name",
]

_ESCAPED: Final = re.compile(r"\[([*?\[{])\]")
_CARD: Final = "README.md"
_MOST_CARD_BYTES: Final = 16 << 20


class Place(NamedTuple):
    """Where to look, and for what."""

    store: Store
    """The deepest folder that has all of it."""
    pattern: str
    """What names below it must match; empty for all."""


def place_of(remote: str, options: StorageOptions | None = None) -> Place:
    """Return where a folder, a file's URL or a pattern with `*`, `?`, `[…]`, `{a,b}` or `**` looks.

    A path that names a file is that file alone.

    Example:
        >>> place = place_of("/data/year=*/part-?.parquet")
        >>> place.store.url, place.pattern
        ('file:///data', 'year=*/part-?.parquet')
    """
    scheme, mark, path = remote.rpartition("://")
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if MAGIC.search(part)), None)
    if first is None:
        name = parts[-1]
        if not name or kind_of_name(name) is None:
            return Place(open_store(remote, options), "")
        first = len(parts) - 1
        # A folder may have a name like a file's.
        store = open_store(remote, options)
        if isinstance(store, LocalStore) and store.path.is_dir():
            return Place(store, "")
        pattern = re.sub(r"([*?\[{])", r"[\1]", name)
        return Place(open_store(scheme + mark + "/".join(parts[:-1]) or "/", options), pattern)
    root = "/".join(parts[:first])
    if not mark and not root:
        root = "/" if path.startswith("/") else "."
    return Place(open_store(scheme + mark + root, options), "/".join(parts[first:]))


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

    Raises `SchemaError` if there are none, or they are of several formats; says what was found.
    """
    infos = list(_listed(place))
    if kind is None:
        kind = guessed_kind(place, (info.key for info in infos))
    return Chosen(kind, _chosen(place, infos, kind, open_kind(kind, options).suffixes, hive=True))


def find_hub_files(store: Store, config: str | None, split: str | None) -> Chosen:
    """List the files of a split of a data set on the Hugging Face Hub; see `hub_files`.

    Raises `SchemaError` as that, and where the files are of several formats.
    """
    infos = {info.key: info for info in store.list() if info.size}
    card = ""
    if _CARD in infos:
        card = store.get(_CARD, max_bytes=_MOST_CARD_BYTES).decode(errors="replace")
    names = hub_files(list(infos), card, config=config, split=split)
    kind = guessed_kind(Place(store, ""), names)
    return Chosen(kind, [SourceFile(n, infos[n].size, infos[n].etag) for n in names])


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
    where = f"{public_url(place.store.url).rstrip('/')}/{place.pattern}"
    msg = f"the files in {where} are {what}; say which is meant, such as format='parquet'"
    raise SchemaError(msg)


def chosen_files(
    place: Place, kind: str | None, suffixes: Sequence[str], *, hive: bool = True
) -> list[SourceFile]:
    """List the files of a place, in order of their names.

    Without a pattern these are the files whose names end as the format's do; hidden ones (`_x`,
    `.x`, also of folders) never count. Folders `name=value` give columns.

    Raises `SchemaError` if there are none; says what was found instead.
    """
    return _chosen(place, _listed(place), kind, suffixes, hive=hive)


def _listed(place: Place) -> Iterator[ObjectInfo]:
    """Yield what may be meant; one file is asked for by its name, as some stores list nothing."""
    named = listed_names(place.pattern)
    if named is not None:
        yield from in_order(place.store.head, named)
        return
    lead, is_all = _literal_lead(place.pattern)
    if is_all and lead:
        with suppress(ObjectNotFoundError):
            yield place.store.head(lead)
        return
    for info in place.store.list(lead):
        if info.size and not is_hidden(info.key):
            yield info


def _literal_lead(pattern: str) -> tuple[str, bool]:
    """Return the text that all names begin with, and whether it is all of them.

    Example:
        >>> _literal_lead("part-[*]-*.csv"), _literal_lead("a[?].csv")
        (('part-*-', False), ('a?.csv', True))
    """
    lead, at = "", 0
    while at < len(pattern):
        escaped = _ESCAPED.match(pattern, at)
        if escaped:
            lead, at = lead + escaped[1], escaped.end()
        elif MAGIC.match(pattern, at):
            return lead, False
        else:
            lead, at = lead + pattern[at], at + 1
    return lead, True


def _chosen(
    place: Place,
    infos: Iterable[ObjectInfo],
    kind: str | None,
    suffixes: Sequence[str],
    *,
    hive: bool,
) -> list[SourceFile]:
    matches = pattern_regex(place.pattern).fullmatch if place.pattern else None
    ends = tuple(suffixes)
    found: list[SourceFile] = []
    others = 0
    for info in infos:
        is_one = matches(info.key) if matches else info.key.lower().endswith(ends)
        if not is_one:
            others += 1
            continue
        constants = hive_constants(info.key) if hive else ()
        found.append(SourceFile(info.key, info.size, info.etag, constants))
    if not found:
        what = (
            f"that match {place.pattern!r}"
            if place.pattern
            else f"that end with {', '.join(suffixes)}"
        )
        msg = (
            f"no {kind or 'data'} files {what} in {place.store.url}; {others} other file(s) are "
            "there. See whether the place is right, or give a pattern such as '**/*.dat'"
        )
        raise SchemaError(msg)
    return sorted(found, key=lambda file: file.key)


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
