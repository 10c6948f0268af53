"""What a writer finds at its output, and where it goes on."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from streaming_core._index import MAX_INDEX_BYTES, ROLES, ShardTable, parse_index
from streaming_core._read import SUMS, parse_sums
from streaming_core._store import LocalStore
from streaming_core.errors import (
    ObjectNotFoundError,
    OutputBusyError,
    OutputNotEmptyError,
    ResumeError,
    SchemaError,
)
from streaming_writer._journal import JOURNAL, SETTINGS, Journal, ShardRecord
from streaming_writer._output import INDEX, Output
from streaming_writer._ownership import WRITER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store import Store

__all__ = [
    "Base",
    "Finished",
    "Mode",
    "Opening",
    "begin",
    "check_finished",
    "check_settings",
    "prepare",
    "sweep",
]

_SHARD = re.compile(r"shard\.(\d{5,})\..+")
_log = logging.getLogger("streaming_core.writer")


@dataclass(frozen=True, slots=True)
class Mode:
    """What to do with what is already there."""

    exist_ok: bool = False
    resume: bool = False
    append: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.exist_ok and (self.resume or self.append):
            msg = (
                "exist_ok=True deletes what is there; it cannot go with resume=True or append=True"
            )
            raise SchemaError(msg)


@dataclass(frozen=True, slots=True)
class Base:
    """A finished data set that shards are appended to."""

    table: ShardTable
    sums: Mapping[str, str]
    next_number: int
    """The first shard number that no shard of the folder itself uses."""

    def identity(self) -> dict[str, Any]:
        """Return what tells this data set from the one it becomes."""
        return {"fingerprint": self.table.fingerprint(), "samples": self.table.num_samples}


@dataclass(frozen=True, slots=True)
class Finished:
    """A conversion that needs nothing more."""

    table: ShardTable
    samples: int
    """How many samples it wrote; with `append` fewer than the table has."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Where the writer goes on."""

    settings: Mapping[str, Any] | None = None
    """Those of the unfinished conversion that is continued, or None for a new one."""
    done: list[ShardRecord] = field(default_factory=list[ShardRecord])
    """Shards that are durable already, in order."""
    base: Base | None = None
    """The data set that is appended to."""
    finished: Finished | None = None
    """Given if the conversion to continue is found finished."""
    cleared: bool = False
    """Whether everything was deleted, so that what is there now came later."""

    @property
    def columns(self) -> Mapping[str, str] | None:
        """The columns of what is continued or appended to, or None if nothing says."""
        if self.settings is not None:
            columns: Mapping[str, str] = self.settings["columns"]
            return columns
        if self.base is None or not self.base.table.schemas:
            return None
        schema = self.base.table.schemas[-1]
        return dict(zip(schema.column_names, schema.column_encodings, strict=True))

    @property
    def first_number(self) -> int:
        """Number of the first shard of this conversion."""
        return self.base.next_number if self.base else 0


def sweep(store: LocalStore) -> None:
    """Remove the temporary files of a killed writer from a folder whose lock is held.

    Other folders below may be parts that live writers fill.
    """
    store.sweep(all=True)
    journal = store.child(JOURNAL)
    if journal.exists():
        with journal.lock():
            journal.sweep(all=True)


def prepare(output: Output, mode: Mode) -> Opening:
    """Look at the output, clean up what a killed writer left, and say where to go on.

    Raises `OutputNotEmptyError` if something is there and `mode` does not say what to do with it,
    and `ResumeError` if what is there cannot be continued.
    """
    with suppress(_EndedError):  # what was unfinished at the first look is not any more
        return _prepare(output, mode)
    try:
        return _prepare(output, mode)
    except _EndedError as error:
        raise OutputBusyError(str(error)) from error


class _EndedError(Exception): ...  # the writer that was to be gone on after had just ended well


def _prepare(output: Output, mode: Mode) -> Opening:
    if mode.exist_ok:
        output.clear()
        return Opening(cleared=True)
    keys = output.keys()
    base = _base(output.first) if INDEX in keys else None
    journal = output.journal
    begun = any(key.startswith(f"{JOURNAL}/") for key in keys)
    settings = journal.settings() if begun else None
    if base is not None:
        return _over_finished(output, mode, base, settings)
    if not keys:
        # An empty folder may stand before a URL that holds a data set, or the rest of one.
        for store, there in output.others():
            if there:
                unfinished = any(key.startswith(f"{JOURNAL}/") for key in there)
                raise OutputNotEmptyError(_not_empty(store, there, unfinished=unfinished))
        return Opening()
    foreign = [key for key in keys if not _ours(key)]
    if not mode.resume or (settings is None and foreign):
        raise OutputNotEmptyError(_not_empty(output.first, foreign or keys, unfinished=begun))
    if settings is not None and "base" in settings:
        msg = (
            f"{output.first.url}: shards were being appended, but the index they belong to is "
            "gone; put it back, or rebuild it with: streaming-core verify --fix"
        )
        raise ResumeError(msg)
    if settings is None:
        shards = [key for key in keys if _SHARD.fullmatch(key)]
        if shards:
            raise OutputNotEmptyError(_orphans(output.first, shards))
        # Notes without settings are what is left of a data set that was being deleted.
        # Or a writer that does not know its columns yet.
        if isinstance(output.first, LocalStore):
            output.end()
        else:
            _take_over(output, {}, None)
            journal.forget(journal.numbers())
        output.delete(SUMS)
        return Opening()
    keys = _take_over(output, settings, None)
    return Opening(settings, _durable(output, journal, keys, 0, frozenset()))


def _over_finished(
    output: Output, mode: Mode, base: Base, settings: Mapping[str, Any] | None
) -> Opening:
    """Decide for an output that has an index."""
    where, table = output.first.url, base.table
    if not mode.append and not mode.resume:
        raise OutputNotEmptyError(_not_empty(output.first, output.keys(), unfinished=False))
    appending = settings.get("base") if settings else None
    if not appending or appending["fingerprint"] != table.fingerprint():
        # The index is the last step: a journal beside a newer index only waits to be removed.
        if appending:
            _check_published(output.journal, frozenset(_basenames(table)), where)
        output.end()
        added = table.num_samples - (appending["samples"] if appending else 0)
        if mode.resume and (appending or not mode.append):
            return Opening(finished=Finished(table, added))
        return Opening(base=base)
    if not mode.append:
        msg = (
            f"{where}: the unfinished conversion appends; continue it with append=True, resume=True"
        )
        raise ResumeError(msg)
    journal, known = output.journal, frozenset(_basenames(table))
    keys = _take_over(output, settings or {}, base)
    if mode.resume:
        return Opening(settings, _durable(output, journal, keys, base.next_number, known), base)
    _log.warning("%s: dropping an unfinished append; resume=True would have continued it", where)
    # The other stores may have the index of the append already, which names what goes away now.
    output.mirror(INDEX)
    _remove(output, journal, keys, base.next_number, known)
    output.ownership.check()
    output.end()
    output.ownership.held = False
    return Opening(base=base)


def _take_over(output: Output, settings: Mapping[str, Any], base: Base | None) -> list[str]:
    """Let nobody else go on with what is unfinished here, and return what there is then.

    Only now it may be removed: before, its writer could have been about to publish it.
    """
    output.ownership.take(settings, over=True)
    try:
        _look_again(output, base, unfinished=True)
    except OutputBusyError as error:
        output.ownership.withdraw()
        raise _EndedError(str(error)) from error
    return output.keys()


def begin(output: Output, opening: Opening, settings: Mapping[str, Any] | None) -> None:
    """Note that somebody writes here, and with which settings, or None if they are not known yet.

    Raises `OutputBusyError` if somebody else has begun since `opening` was made.
    """
    if isinstance(output.first, LocalStore):  # which is locked
        if settings is None:
            output.journal.open()
        elif not opening.done:
            output.journal.begin(settings)
    ownership = output.ownership
    if ownership.held and opening.done:  # the settings are there, and the same
        ownership.check()
        return
    unseen = not ownership.held and opening.settings is None
    try:
        ownership.take(settings or {}, over=opening.settings is not None)
        if unseen and not opening.cleared:
            _look_again(output, opening.base)
    except OutputBusyError:
        if unseen:
            ownership.withdraw()
            if isinstance(output.first, LocalStore):
                output.journal.end()
        raise


def _look_again(output: Output, base: Base | None, *, unfinished: bool = False) -> None:
    """Raise `OutputBusyError` if somebody wrote, and ended, between the first look and the note."""
    for store in output.ownership.stores:
        if unfinished and store is not output.first:
            continue  # it may be ahead of the first one, which counts
        if base is None:
            keys = set(output.keys(store))
            changed = INDEX in keys if unfinished else bool(keys - {SETTINGS})
        else:
            changed = _fingerprint(store) != base.table.fingerprint()
        if changed:
            msg = (
                f"{store.url}: another writer has written here since this one looked, a moment "
                "ago; look at what is there, or write to another place"
            )
            raise OutputBusyError(msg)


def _check_published(journal: Journal, known: frozenset[str], where: str) -> None:
    """Raise `ResumeError` if the newer index is not the one that the append was to end with."""
    for record in journal.read_all(journal.numbers()):
        names = [] if isinstance(record, ResumeError) else list(record.files())
        if not known.issuperset(names):
            msg = (
                f"{where}: the data set has changed since the append began, and does not have its "
                f"shard {names[0]!r}; remove {JOURNAL!r} there to drop the append"
            )
            raise ResumeError(msg)


def _fingerprint(store: Store) -> str | None:
    try:
        return _base(store).table.fingerprint()
    except ObjectNotFoundError:
        return None


def _base(store: Store) -> Base:
    table = parse_index(store.get(INDEX, max_bytes=MAX_INDEX_BYTES), f"{store.url}/{INDEX}")
    try:
        sums = parse_sums(store.get(SUMS, max_bytes=MAX_INDEX_BYTES))
    except ObjectNotFoundError:
        sums = {}
    # An append that was killed and dropped may have left its own sums.
    known = frozenset(_basenames(table))
    sums = {name: value for name, value in sums.items() if name in known}
    numbers = [_SHARD.fullmatch(name) for name in table.basenames("raw")]
    return Base(table, sums, max((int(match[1]) + 1 for match in numbers if match), default=0))


def _basenames(table: ShardTable) -> list[str]:
    return [name for role in ROLES for name in table.basenames(role) if name]


def _ours(key: str) -> bool:
    return bool(_SHARD.fullmatch(key)) or key.startswith(f"{JOURNAL}/") or key == SUMS


def _durable(
    output: Output, journal: Journal, keys: list[str], first: int, known: frozenset[str]
) -> list[ShardRecord]:
    """Return the unbroken run of shards that are whole, and remove what lies beyond it."""
    noted = set(journal.numbers())
    unbroken = list(takewhile(noted.__contains__, count(first)))
    sizes = output.sizes(prefix="shard.")
    done: list[ShardRecord] = []
    for number, record in zip(unbroken, journal.read_all(unbroken), strict=True):
        if isinstance(record, ResumeError):
            _log.warning("writing shards again from number %d: %s", number, record)
            break
        if not all(own.get(name) == size for own in sizes for name, size in record.files().items()):
            break
        done.append(record)
    _remove(output, journal, keys, first + len(done), known)
    return done


def _remove(
    output: Output, journal: Journal, keys: list[str], first: int, known: frozenset[str]
) -> None:
    """Remove shards and notes from number `first` on, but never a file of the index."""
    output.forget_uploads()
    journal.forget([number for number in journal.numbers() if number >= first])
    matches = [_SHARD.fullmatch(key) for key in keys if key not in known]
    output.delete(*(match[0] for match in matches if match and int(match[1]) >= first))


def _orphans(store: Store, shards: list[str]) -> str:
    return (
        f"{store.url}: there are {len(shards)} shards, such as {shards[0]!r}, but neither an index "
        "nor the journal of an unfinished conversion; rebuild the index with streaming-core "
        "verify --fix, or delete everything with exist_ok=True"
    )


def _not_empty(store: Store, keys: list[str], *, unfinished: bool) -> str:
    where = store.url
    if unfinished:
        return (
            f"{where}: an unfinished conversion is here; continue it with resume=True, "
            "or delete it and start anew with exist_ok=True"
        )
    what = "a finished data set" if INDEX in keys else f"{keys[0]!r}" if keys else "a folder"
    more = f" and {len(keys) - 1} more" if INDEX not in keys and len(keys) > 1 else ""
    ways = ["exist_ok=True deletes everything in it first"]
    if INDEX in keys:
        ways.insert(0, "append=True adds to it")
    return (
        f"{where}: the output is not empty, it holds {what}{more}; "
        f"{', '.join(ways)}, or give another folder"
    )


def check_settings(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise `ResumeError` naming each setting that differs from those of before."""
    differing = [
        f"{key}: {found.get(key)!r} then, {wanted.get(key)!r} now"
        for key in sorted({*found, *wanted} - {"base", WRITER})
        if found.get(key) != wanted.get(key)
    ]
    if differing:
        msg = f"{where}: cannot continue with other settings; {'; '.join(differing)}"
        raise ResumeError(msg)


def check_finished(table: ShardTable, config: Mapping[str, Any], where: str) -> None:
    """Raise `ResumeError` if a finished data set is not what these settings would have written."""
    keys = ("format", "column_names", "column_encodings", "columns")
    wanted = {key: config[key] for key in keys if key in config}
    if table.num_shards:
        entry = table.entry(table.num_shards - 1)
        check_settings({key: entry.get(key) for key in wanted}, wanted, where)
