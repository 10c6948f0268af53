"""Whether the files that are in the folder are those of the data set."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import xxhash

from streaming_core._codec import hash_names
from streaming_core._read import FileCheck
from streaming_core._store import LocalStore
from streaming_core._store._os_errors import store_error
from streaming_core.errors import ChecksumError, SchemaError
from streaming_reader._cache._ledger import Entry, State
from streaming_reader._cache._locks import FileHandle
from streaming_reader._cache._mapped import READ_FLAGS, content_digest, hold, map_file
from streaming_reader._cache._places import file_stamp
from streaming_reader._cache._shelf import combined, file_pairs, raw_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index import FileInfo, ShardInfo
    from streaming_reader._cache._shelf import Shelf

__all__ = ["Inspector", "Known"]

_LEDGER_SECONDS: Final = 10.0
_CHEAP: Final = frozenset(name for name in hash_names() if name.startswith("xxh"))


class Known:
    """The hashes that are compared: beside the index, the cheap ones in it, one asked for."""

    __slots__ = ("_hashes", "_required", "_sums")

    def __init__(self, sums: Mapping[str, str], required: str | None) -> None:
        self._sums = sums
        self._required = required
        self._hashes = _CHEAP if required is None else _CHEAP | {required}

    @property
    def validates(self) -> bool:
        """Whether somebody asked for a hash to be checked."""
        return self._required is not None

    def check(self, file: FileInfo) -> FileCheck:
        """Return what judges the bytes of a file."""
        return FileCheck(file, self._sums, hashes=self._hashes)

    def require(self, info: ShardInfo) -> None:
        """Raise `SchemaError` if the index lacks the hash that was asked for."""
        if self._required is None:
            return
        for pair in file_pairs(info):
            if self._required not in pair.stored.hashes:
                has = ", ".join(pair.stored.hashes) or "none"
                msg = (
                    f"validate_hash={self._required!r}, but for {pair.stored.basename} the index "
                    f"has {has}; choose one it has, or write the data set with that hash"
                )
                raise SchemaError(msg)


class Inspector:
    """Maps the files of shards that are there, and tells the right from the wrong.

    Sizes are compared each time; hashes when a file was written since the ledger says that it was
    right, in a folder that is a cache. In any other folder only a hash that was asked for is, once
    in a process.
    """

    __slots__ = ("_checked_here", "_is_cache", "_known", "_shelf")

    def __init__(self, shelf: Shelf, known: Known, *, is_cache: bool) -> None:
        self._shelf = shelf
        self._known = known
        self._is_cache = is_cache
        self._checked_here: set[int] = set()

    def mapped(self, info: ShardInfo) -> list[memoryview] | None:
        """Map the files that are there; None if one is missing, or is another user's in a cache.

        Raises:
            ShardCorruptError: One is not what it should be.
            AccessDeniedError: One cannot be read, and there is no remote to fetch it from.
        """
        with ExitStack() as stack:
            handles: list[FileHandle] = []
            for file in raw_files(info):
                path = self._shelf.places.file(file.basename)
                try:
                    if file_stamp(path) is None:
                        return None
                    handle = FileHandle.at(path, READ_FLAGS)
                except FileNotFoundError:
                    return None  # evicted meanwhile
                except PermissionError as error:
                    if self._is_cache:  # fetched again, where the folder allows it
                        return None
                    url = LocalStore(self._shelf.places.folder).url
                    raise store_error(error, url=url, key=file.basename, operation="get") from error
                stack.callback(handle.close)
                handles.append(handle)
            hold(handles[0])
            return self._checked(info, handles)

    def _checked(self, info: ShardInfo, handles: list[FileHandle]) -> list[memoryview]:
        """Map open files and compare them with what is known of them, unless that was done."""
        changed = 0
        for file, handle in zip(raw_files(info), handles, strict=True):
            state = os.fstat(handle.number)
            changed = combined(changed, state.st_mtime_ns)
            if state.st_size != file.bytes and not info.schema.is_made:
                raise FileCheck(file).wrong_size(state.st_size, self._shelf.places.folder)
        views = [map_file(handle) for handle in handles]
        if not self._is_cache:
            if self._known.validates and info.index not in self._checked_here:
                self._check_hashes(info, views)
                self._checked_here.add(info.index)
            return views
        entry = self._shelf.ledger.peek(info.index)
        if entry.changed != changed:
            self._check_changed(info, views, entry, changed)
        return views

    def _check_changed(
        self, info: ShardInfo, views: list[memoryview], entry: Entry, changed: int
    ) -> None:
        """Judge files that were written since they were last checked, or never were."""
        known = self._check_hashes(info, views)
        if not known and not entry.digest:
            return  # nothing is known but their sizes
        digest = content_digest([xxhash.xxh3_64_intdigest(view) for view in views])
        if not known and digest != entry.digest:
            msg = (
                f"{info.raw.basename}: the file in {self._shelf.places.folder} was changed since "
                "it was fetched; leave the files of a cache alone"
            )
            raise ChecksumError(msg)
        deadline = time.monotonic() + _LEDGER_SECONDS
        with suppress(OSError), self._shelf.ledger.locked(deadline) as page:
            size = self._shelf.bytes_there(info)
            now = page.get(info.index)
            if now.state != State.FETCHING:
                page.set(info.index, Entry(State.PRESENT, size, now.last_use, changed, digest))

    def _check_hashes(self, info: ShardInfo, views: list[memoryview]) -> bool:
        """Compare mapped files with the known hashes; tell whether there were any for all."""
        known = True
        for pair, view in zip(file_pairs(info), views, strict=True):
            check = self._known.check(pair.raw)
            known = known and check.has_hash
            if check.has_hash:
                check.update(view)
                check.finish(self._shelf.places.folder)
        return known
