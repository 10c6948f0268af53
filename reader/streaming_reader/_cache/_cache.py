"""The shards of one data set as files in a local folder, fetched when they are needed."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH100, PTH103

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from streaming_core._format import open_shard
from streaming_core._store import LocalStore, ProgressDeadline, note_progress
from streaming_core._store._os_errors import store_error
from streaming_core.errors import (
    ShardCorruptError,
    StreamingError,
    WaitTimeoutError,
)
from streaming_reader._cache._filling import Filler
from streaming_reader._cache._group import while_held
from streaming_reader._cache._inspector import Inspector, Known
from streaming_reader._cache._kin import bring_kin
from streaming_reader._cache._locks import FileHandle
from streaming_reader._cache._mapped import map_file
from streaming_reader._cache._opened import NO_DESCRIPTORS, Opened, with_descriptors
from streaming_reader._cache._places import file_stamp, same_folder
from streaming_reader._cache._rate_limit import NodeRateLimiter
from streaming_reader._cache._settings import CacheSettings
from streaming_reader._cache._shelf import Shelf, raw_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming_core._format import Shard
    from streaming_core._index import ShardInfo, ShardTable
    from streaming_core._store import Store
    from streaming_core.errors import StoreError
    from streaming_reader._cache._counts import Counts
    from streaming_reader._cache._group import CacheGroup, Held
    from streaming_reader._cache._made import Maker

__all__ = ["ShardCache"]

_log = logging.getLogger("streaming_core.reader")
_T = TypeVar("_T")
_LEDGER_SECONDS: Final = 30.0
_ROLES: Final = ("raw", "raw_meta")


class ShardCache:
    """Opens the shards of `table` from files in `folder`, which it fetches from `remote`.

    Any number of threads, processes and users may work on one folder at once, and any of them may
    be killed: a file is there whole and checked, or not at all, and each is fetched once. Without a
    remote, or where the remote is the folder itself, nothing is ever removed. Pickles, and survives
    a fork: the copy opens its files anew.
    """

    def __init__(
        self,
        table: ShardTable,
        remote: Store | Maker | None,
        folder: str | os.PathLike[str],
        settings: CacheSettings | None = None,
        group: CacheGroup | None = None,
        *,
        sums: Mapping[str, str] | None = None,
        limiter: NodeRateLimiter | None = None,
    ) -> None:
        """Look for files in `folder`, made when something is fetched.

        `sums` are the hashes beside the index, by basename; `limiter` is the remote's, if the
        folder is not the only one that is filled from there. What killed processes left of
        unfinished files is removed.

        Raises:
            SchemaError: The group's limit is too small, or the index lacks the hash to validate.
        """
        path: str = os.path.abspath(os.fspath(folder))
        if isinstance(remote, LocalStore) and same_folder(str(remote.path), path):
            remote = None
        self._settings = settings or CacheSettings()
        self._remote = remote
        self._group = group if remote is not None else None
        self._shelf = Shelf(table, path)
        known = Known(sums or {}, self._settings.validate_hash)
        if table.num_shards:
            known.require(table.shard(0))
        self._known = known
        limiter = limiter or NodeRateLimiter.of(path)
        self._filler = Filler(self._shelf, remote, self._settings, known, limiter)
        self._inspector = Inspector(self._shelf, known, is_cache=remote is not None)
        if self._group is not None:
            self._group.add(self._shelf)
        self._opened = self._new_opened()
        self._shelf.places.sweep()

    def __getstate__(self) -> dict[str, object]:
        """Leave out what belongs to this process."""
        return {**self.__dict__, "_opened": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._opened = self._new_opened()

    def __repr__(self) -> str:
        return f"ShardCache({self._shelf.table!r}, {self._remote!r}, {self.folder!r})"

    @property
    def folder(self) -> str:
        """Where the files lie, absolute."""
        return self._shelf.places.folder

    @property
    def source(self) -> str:
        """Where the files come from, without secrets: the remote's URL, or the folder."""
        return self.folder if self._remote is None else self._remote.url

    @property
    def group(self) -> CacheGroup | None:
        """The limit this folder is under; None without one, and without a remote."""
        return self._group

    @property
    def stall_seconds(self) -> float:
        """Seconds without a byte after which a shard cannot be had, unless `open` is told."""
        return self._settings.stall_seconds

    @property
    def counts(self) -> Counts:
        """What this process has done through this object so far."""
        return replace(self._filler.counts)

    # --- reading ----------------------------------------------------------------------------------

    def open(self, shard: int, *, timeout: float | None = None) -> Shard:
        """Return the samples of a shard, fetched first if it is not there.

        Its bytes stay readable as long as the result is referred to, whatever becomes of the file.
        It is waited for as long as something comes, to this process or to another that fetches it,
        and then for `timeout` seconds; by default, what the settings allow for all tries together.

        Raises:
            ShardFetchError: It could not be fetched.
            ShardCorruptError: It is wrong, and there is no remote to fetch it from.
            WaitTimeoutError: Another process that fetches it got nothing for too long.
            StoreError: The folder cannot take it; names the folder and what is needed.
        """
        opened = self._here()
        found = opened.get(shard)
        if found is not None:
            return found
        progress = self._progress(timeout)
        info = self._shelf.table.shard(shard)
        found = with_descriptors(lambda: self._read(info, progress))
        self._filler.counts.shards_opened += 1
        files = raw_files(info)
        nbytes = sum(file.bytes for file in files)
        paths = [self._shelf.places.file(file.basename) for file in files]
        now = opened.put(shard, found, nbytes=nbytes, files=len(files), paths=paths)
        if self._remote is not None:
            self._shelf.ledger.touch(now)
        return found

    def prepare(self, shard: int, *, timeout: float | None = None) -> None:
        """Let the files of a shard be there, for now, without mapping them; raises as `open`."""
        if not self.has(shard):
            info, progress = self._shelf.table.shard(shard), self._progress(timeout)
            with_descriptors(lambda: self._fetch(info, progress))

    def has(self, shard: int) -> bool:
        """Tell whether the files of a shard are there, by their sizes."""
        return self._shelf.changed(self._shelf.table.shard(shard)) is not None

    def is_near(self, shard: int) -> bool:
        """Tell, by a look at its files, whether opening a shard needs no download."""
        return self._here().is_whole(shard) or self.has(shard)

    def is_mapped(self, shard: int) -> bool:
        """Tell whether a shard is mapped, without a look at its files."""
        return shard in self._here()

    # --- room -------------------------------------------------------------------------------------

    def evict(self, shard: int) -> bool:
        """Remove the files of a shard; tell whether there were any.

        Who has it mapped goes on reading. Without a remote nothing is removed.
        """
        self._shelf.table.shard(shard)  # refuses a number that is none
        self._here().drop(shard)
        if self._remote is None:
            return False
        return self._while_held(lambda held: held.remove(self._shelf, shard))

    def evict_coldest(self) -> int | None:
        """Remove the files of the shard that was unused for longest; return it, None if none is.

        One that nobody has mapped goes first. Without a remote nothing is removed.
        """
        if self._remote is None:
            return None
        self._note_uses()

        def evict(held: Held) -> int | None:
            held.settle()
            held.page(self._shelf).replace(self._shelf.scan())
            coldest = held.coldest(self._shelf)
            if coldest is not None:
                held.remove(self._shelf, coldest)
                self._here().drop(coldest)
            return coldest

        return self._while_held(evict)

    def usage(self) -> int:
        """Return the bytes that the shards have in the folder, by looking."""
        return int(self._shelf.scan().sum())

    # --- what is not there ------------------------------------------------------------------------

    def _fetch(
        self,
        info: ShardInfo,
        progress: ProgressDeadline,
        *,
        distrusted: bool = False,
        given: memoryview | None = None,
    ) -> list[memoryview]:
        """Make the files of a shard and return them mapped, unless another has made them now.

        With `distrusted` those that are there are made anew in any case; `given` is what was made
        together with others.
        """
        places, name = self._shelf.places, info.raw.basename
        self._known.require(info)
        if not self._filler.has_source(info):
            raise self._filler.no_source(info)
        if not distrusted and given is None:
            limit = None if self._group is None else self._group.limit
            bring_kin(self._shelf, self._filler, info, progress, limit, self._keep)
        try:
            os.makedirs(places.parts, exist_ok=True)
            note_progress()  # whoever waits for us knows from here on that somebody is at it
            later = partial(self._later, name, progress)
            lock = FileHandle.locked(
                places.lock(name), progress.deadline, f"fetching {name}", later
            )
        except OSError as error:
            if isinstance(error, WaitTimeoutError):
                raise
            if error.errno in NO_DESCRIPTORS:
                raise self._folder_error(info, error) from error
            return self._unwritable(info, error)
        try:
            with lock:
                try:
                    views = None if distrusted else self._mapped_if_right(info)
                    return self._remade(info, progress, given) if views is None else views
                finally:
                    with suppress(OSError):
                        places.clear(name)
        except OSError as error:
            if isinstance(error, StreamingError):
                raise
            raise self._folder_error(info, error) from error
        finally:
            if self._remote is None:
                places.leave()

    def _later(self, name: str, progress: ProgressDeadline) -> float:
        """Return until when to wait for another process that fetches a shard."""
        written = self._shelf.places.last_write(name)
        if written is not None:
            # Never later than now, whatever the clock of the file system says.
            progress.renew(time.monotonic() - max(0.0, time.time() - written))
        return progress.deadline

    def _keep(self, info: ShardInfo, data: memoryview) -> None:
        """Put a file into place that was made together with others."""
        with_descriptors(lambda: self._fetch(info, self._progress(None), given=data))

    def _remade(
        self, info: ShardInfo, progress: ProgressDeadline, given: memoryview | None
    ) -> list[memoryview]:
        """Make the files of a shard whose lock is held; what is there is wrong."""
        self._discard(info)
        if self._group is None:
            return self._filled(info, progress, given)
        self._note_uses()
        size = self._filler.size(info)
        return self._group.with_room(
            self._shelf, info.index, size, progress, lambda: self._filled(info, progress, given)
        )

    def _filled(
        self, info: ShardInfo, progress: ProgressDeadline, given: memoryview | None
    ) -> list[memoryview]:
        """Make the files of a shard, for which there is room."""
        group = self._group
        with ExitStack() as stack:
            made = self._filler.make(info, stack, progress, keep_bad=group is None, given=given)
            # Nothing that was fetched is given up because the time has come.
            enough = max(progress.deadline, time.monotonic() + _LEDGER_SECONDS)
            appear = partial(self._filler.publish, made)
            if group is not None:
                group.publish(self._shelf, info.index, made.entry, appear, enough)
            elif self._remote is not None:
                self._shelf.publish(info.index, made.entry, appear, enough)
            else:
                appear()
            return [map_file(handle) for handle in made.handles]

    def _mapped_if_right(self, info: ShardInfo) -> list[memoryview] | None:
        try:
            return self._inspector.mapped(info)
        except ShardCorruptError:
            if self._remote is None:
                raise
            return None

    def _discard(self, info: ShardInfo) -> None:
        """Move decompressed files away that are there although they are wrong."""
        places = self._shelf.places
        for file in raw_files(info) if self._remote is not None else ():
            path = places.file(file.basename)
            if file_stamp(path) is not None:
                _log.warning("fetching %s again: the copy in %s is wrong", file.basename, path)
                if self._group is None:
                    places.set_aside(path, info.raw.basename)
            places.remove(file.basename)

    def _unwritable(self, info: ShardInfo, error: OSError) -> list[memoryview]:
        """Return the files of a shard whose folder takes nothing, from compressed ones in it."""
        views: list[memoryview] | None = None
        with suppress(PermissionError):  # this user cannot read what is there either
            views = self._filler.expand_here(info)
        if views is None:
            raise self._folder_error(info, error) from error
        return views

    def _folder_error(self, info: ShardInfo, error: OSError) -> StoreError:
        url = LocalStore(self.folder).url
        failure = store_error(error, url=url, key=info.raw.basename, operation="keep")
        needed = self._filler.size(info)
        elsewhere = "local= names another folder, STREAMING_CACHE_DIR one for all caches"
        failure.args = (f"{failure} ({needed} bytes are needed for the shard; {elsewhere})",)
        return failure

    # --- within -----------------------------------------------------------------------------------

    def _read(self, info: ShardInfo, progress: ProgressDeadline) -> Shard:
        """Return a shard from its files, fetched if they are missing or wrong."""
        fetches = 0
        try:
            views = self._mapped_if_right(info)
            fetches = 0 if views is not None else 1
            return self._opened_from(info, views or self._fetch(info, progress))
        except ShardCorruptError as error:
            if self._remote is None:
                error.add_note(f"to look for more, run: streaming-core verify {self.folder}")
                raise
        views = self._fetch(info, progress, distrusted=True)
        try:
            return self._opened_from(info, views)
        except ShardCorruptError as error:
            raise self._filler.unreadable(info, error, fetches + 1) from error

    def _opened_from(self, info: ShardInfo, views: list[memoryview]) -> Shard:
        unsafe = self._settings.allow_unsafe
        return open_shard(info, dict(zip(_ROLES, views, strict=False)), allow_unsafe=unsafe)

    def _progress(self, timeout: float | None) -> ProgressDeadline:
        return ProgressDeadline(self._settings.stall_seconds if timeout is None else timeout)

    def _here(self) -> Opened:
        if self._opened.owner != os.getpid():  # forked
            self._opened = self._new_opened()
        return self._opened

    def _new_opened(self) -> Opened:
        together = None if self._group is None else self._group.mapped
        return Opened(self._settings.max_open, together, self._shelf.ledger.identity)

    def _while_held(self, act: Callable[[Held], _T]) -> _T:
        deadline = time.monotonic() + _LEDGER_SECONDS
        if self._group is not None:
            return self._group.while_held(deadline, act)
        return while_held([self._shelf], deadline, act)

    def _note_uses(self) -> None:
        """Tell the others when this process last used what it has mapped."""
        self._shelf.ledger.touch(self._here().news())
