"""What a place holds: what may be meant, what cannot be read, and signs of a table."""

from __future__ import annotations

import logging
import posixpath
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from streaming_core._names import name_problem
from streaming_core._store import LocalStore, ObjectInfo
from streaming_core._virtual._patterns import is_hidden, listed_names, literal_lead
from streaming_core._workers import in_order
from streaming_core.errors import ObjectNotFoundError, SourceFormatError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming_core._store import Store

__all__ = ["Listing", "listing_of", "neighbours", "table_above"]

_log = logging.getLogger("streaming_core.reader")
_MARKER: Final = "_$folder$"
_DELTA: Final = "_delta_log/"
_ICEBERG: Final = "metadata/"
_ICEBERG_END: Final = ".metadata.json"
_DATA: Final = "data"
"""What Iceberg calls the folder of a table's files."""
_MOST_NEIGHBOURS: Final = 1000
_MOST_SHOWN: Final = 3


@dataclass
class Listing:
    """What was listed; hidden files and marks of folders are left out."""

    files: list[ObjectInfo] = field(default_factory=list[ObjectInfo])
    """What can be read, empty files too."""
    bad: dict[str, str] = field(default_factory=dict[str, str])
    """What cannot be read, and why."""
    real: dict[str, str] = field(default_factory=dict[str, str])
    """Where files truly lie to which linked folders lead: as a key, or a path if outside."""
    tables: dict[str, str] = field(default_factory=dict[str, str])
    """Folders that are tables (empty text for the place itself), and of which format."""

    @property
    def names(self) -> Iterator[str]:
        """The names of all that looks like a file."""
        yield from (info.key for info in self.files)
        yield from self.bad

    def refuse(self, names: Sequence[str], where: str) -> None:
        """Raise `SourceFormatError` if one of some names, which are meant, cannot be read."""
        wrong = sorted(name for name in names if name in self.bad)
        if wrong:
            shown = "; ".join(f"{name!r}: {self.bad[name]}" for name in wrong[:_MOST_SHOWN])
            more = f" and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
            msg = (
                f"{where}: files that cannot be read: {shown}{more}. Rename or remove them, or "
                "give a pattern that leaves them out"
            )
            raise SourceFormatError(msg)

    def once(self, files: Sequence[ObjectInfo], where: str) -> list[ObjectInfo]:
        """Return files without those that linked folders show a second time."""
        if not self.real or not any(info.key in self.real for info in files):
            return list(files)
        own = [info for info in files if info.key not in self.real]
        taken = {info.key for info in own}
        kept: list[ObjectInfo] = []
        left = 0
        for info in files:
            real = self.real.get(info.key)
            if real is None:
                kept.append(info)
            elif real in taken:
                left += 1
            else:
                taken.add(real)
                kept.append(info)
        if left:
            _log.warning(
                "%s: %d files are there a second time by links to folders, and are read once",
                where,
                left,
            )
        return kept


def listing_of(store: Store, pattern: str) -> Listing:
    """List what a pattern may mean; what it names is asked for by name, as some list nothing."""
    found = Listing()
    named = listed_names(pattern)
    if named is not None:
        found.files.extend(in_order(store.head, named))
        return found
    lead, is_all = literal_lead(pattern)
    if is_all and lead:
        with suppress(ObjectNotFoundError):
            found.files.append(store.head(lead))
        return found
    if isinstance(store, LocalStore):
        _note_local(found, store, lead)
    else:
        _note(found, store, lead)
    found.files = _without_marks(found.files)
    return found


def _note(found: Listing, store: Store, lead: str) -> None:
    for info in store.list(lead):
        _note_table(found, info.key)
        if is_hidden(info.key) or info.key.endswith(("/", _MARKER)):
            continue
        problem = name_problem(info.key)
        if problem is None:
            found.files.append(info)
        else:
            found.bad[info.key] = f"as a name {problem}"
    if lead:
        with suppress(StoreError):
            for folder in (_DELTA, _ICEBERG):
                if not folder.startswith(lead):
                    for info in islice(store.list(folder), 1):
                        _note_table(found, info.key)


def _note_local(found: Listing, store: LocalStore, lead: str) -> None:
    root = str(store.path.resolve())
    for entry in store.entries(lead):
        _note_table(found, entry.key)
        if is_hidden(entry.key):
            continue
        if entry.info is None:
            found.bad[entry.key] = entry.problem
            continue
        found.files.append(entry.info)
        if entry.real:
            found.real[entry.key] = entry.real.removeprefix(f"{root}/")
    above = table_above(store)
    if above is not None:
        found.tables.setdefault("", above)


def _note_table(found: Listing, key: str) -> None:
    """Note that a folder is a table, if this file of it says so."""
    at = key.find(_DELTA)
    if at >= 0 and key.endswith(".json") and (not at or key[at - 1] == "/"):
        found.tables[key[:at]] = "delta"
    elif key.endswith(_ICEBERG_END):
        folder = posixpath.dirname(key)
        if posixpath.basename(folder) == _ICEBERG.rstrip("/"):
            found.tables[folder[: -len(_ICEBERG) + 1]] = "iceberg"


def table_above(store: LocalStore) -> str | None:
    """Return of which format the table is whose folder a place is, or is of; None if of none."""
    folder = store.path
    while True:
        with suppress(OSError):
            if any((folder / _DELTA).glob("*.json")):
                return "delta"
            if any((folder / _ICEBERG).glob(f"*{_ICEBERG_END}")):
                return "iceberg"
        if folder.name != _DATA and "=" not in folder.name:
            return None
        folder = folder.parent


def _without_marks(files: list[ObjectInfo]) -> list[ObjectInfo]:
    """Leave out empty objects that stand for folders, as some services show them."""
    empty = {info.key for info in files if not info.size}
    if not empty:
        return files
    folders: set[str] = set()
    for info in files:
        folder = posixpath.dirname(info.key)
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    return [info for info in files if info.size or info.key not in folders]


def neighbours(store: Store) -> tuple[int, str] | None:
    """Return how many files lie in a place, at most some, and the first; None if that is unknown.

    For messages.
    """
    try:
        keys = [info.key for info in islice(store.list(), _MOST_NEIGHBOURS)]
    except (StoreError, NotImplementedError):
        return None
    shown = [key for key in keys if not is_hidden(key)]
    return len(shown), shown[0] if shown else ""
