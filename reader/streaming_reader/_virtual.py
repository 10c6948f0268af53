"""Opening data that nobody converted: files are listed and looked at once per node, or never."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import xxhash

from streaming_core._store import (
    LocalStore,
    version_of,
)
from streaming_core._virtual import Decoder, build_index, dump, parse
from streaming_core._virtual._filed import Filed, digest_of
from streaming_core._virtual._index_file import MAX_SOURCE_INDEX_BYTES, filed_index, index_digest
from streaming_core._virtual._keep import dump_keep, filed_keep
from streaming_core._virtual._select import selected_rows
from streaming_core.errors import (
    AccessDeniedError,
    IndexInvalidError,
    IndexMissingError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
)
from streaming_reader._cache import CONTROL, SOURCE, tidy, while_locked
from streaming_reader._documents import Source
from streaming_reader._sought import sought

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._index import ShardTable
    from streaming_core._store import RequestPolicy, Store
    from streaming_core._virtual import VirtualIndex
    from streaming_core._virtual._filter import Filter
    from streaming_core._virtual._keep import Keep
    from streaming_reader._reading import Reading
    from streaming_reader._sought import IndexPlace, Sought
    from streaming_reader.stream import ResolvedStream

__all__ = ["Virtual", "open_virtual"]

_T = TypeVar("_T")
_log = logging.getLogger("streaming_core.reader")
_LOCK_SECONDS: Final = 1800.0
"""Looking at many files for the first time takes long, and is done by one process of the node."""
_RECORD_BYTES: Final = 1 << 16


class Virtual(NamedTuple):
    """Opened data of another format."""

    table: ShardTable
    decoder: Decoder
    folder: str
    """Where decoded copies are kept."""


def open_virtual(stream: ResolvedStream, reading: Reading) -> Virtual:
    """Return the units of a stream's files as shards, and what makes the files of these.

    An index that was published beside the data, or is given, is taken as it is. Otherwise the files
    are listed, by one process of the node, and those looked at that are not known from before. So
    is what filters keep.

    Raises:
        SchemaError: There are no such files, they do not go together, or no row is left.
        IndexMissingError: The index that is given is not there.
        StoreError: The store failed.
    """
    found = sought(stream, reading)
    folder = LocalStore(str(stream.folder), durable=False)
    opening = _Opening(found, folder, stream.settings.policy())
    index = opening.index()
    store = found.store(index)
    wanted = reading.filter
    keep = None if wanted is None else opening.kept(index, store, wanted)
    decoder = Decoder(index, store, reading.view, keep)
    table = decoder.table()
    if keep is not None and not table.num_samples and index.num_samples:
        msg = f"{found.name}: filters keep none of {index.num_samples} rows; see what they say"
        raise SchemaError(msg)
    told = [found.name, found.told, found.version(index), wanted and wanted.identity]
    name = f"{found.format or index.kind}-{reading.view.digest(told)}"
    decoded = os.path.join(str(stream.folder), name)  # noqa: PTH118 - as the cache's
    tidy(decoded, lambda: table.basenames("raw"))
    return Virtual(table, decoder, decoded)


class _Opening:
    """One opening of one place."""

    def __init__(self, found: Sought, folder: LocalStore, policy: RequestPolicy) -> None:
        self._sought = found
        self._folder = folder
        self._policy = policy
        told = [found.name, found.told]
        self._stem = f"{CONTROL}/{SOURCE}-{xxhash.xxh3_64_hexdigest(repr(told).encode())}"

    def index(self) -> VirtualIndex:
        """Return the index: published, known or made now."""
        noted = self._noted()
        cached = self._cached(noted)
        if cached is not None and self._is_settled(noted):
            return cached

        def look() -> VirtualIndex:
            now = self._noted()
            known = cached if now == noted else self._cached(now)
            if known is not None and self._is_settled(now):
                return known
            try:
                return self._published(known, now) or self._made(known)
            except StoreError as error:
                if known is None:
                    raise
                _log.warning("reading what was known of %s: %s", self._sought.name, error)
                return known

        return self._while_locked(look)

    def kept(self, index: VirtualIndex, store: Store, wanted: Filter) -> Keep:
        """Return which rows a filter keeps; looked at once per node, and version of the data."""
        told = f"{index_digest(index)} {wanted.identity}".encode()
        stem = f"{self._stem}.{xxhash.xxh3_64_hexdigest(told)}"
        known = self._known_keep(stem)
        if known is not None:
            return known

        def select() -> Keep:
            known = self._known_keep(stem)
            if known is not None:
                return known
            keep = selected_rows(index, store, wanted, policy=self._policy)
            data = dump_keep(keep)
            digest = digest_of(data)
            name = f"{stem}-{digest}.keep"
            if not self._put(name, data):
                return keep
            return filed_keep(Filed(self._path(name), digest, filed_keep))

        return self._while_locked(select)

    # --- where it comes from ----------------------------------------------------------------------

    def _published(self, cached: VirtualIndex | None, noted: Source | None) -> VirtualIndex | None:
        """Return the index that is published or given, if there is one that fits."""
        at = self._sought.at
        if at is None:
            return None
        is_cached = cached is not None and noted is not None and bool(noted.etag)
        known = noted.etag if noted is not None and is_cached else ""
        try:
            data, version = self._policy.call(lambda: _fetched(at, known))
        except (ObjectNotFoundError, AccessDeniedError) as error:
            if at.is_given:
                msg = f"no index in {at.url}: {error}; write it with: streaming-core index"
                raise IndexMissingError(msg) from error
            return None
        if data is None:
            self._note(noted._replace(asked=time.time(), by=os.getpid()) if noted else None)
            return cached
        index = parse(data, at.url)
        other = self._unfit(index)
        if other is None:
            return self._keep(index, data, version)
        if at.is_given:
            msg = f"the index {at.url} is {other}; write it anew with: streaming-core index"
            raise SchemaError(msg)
        _log.warning("the index %s is %s, and not used", at.url, other)
        return None

    def _unfit(self, index: VirtualIndex) -> str | None:
        """Return why an index is not the one that is needed, None if it is."""
        wanted = self._sought
        if wanted.format not in {None, index.kind}:
            return f"of {index.kind!r} files, not of {wanted.format!r}"
        if wanted.options and dict(wanted.options) != dict(index.options):
            return f"made with options {dict(index.options)}, not {dict(wanted.options)}"
        is_given = wanted.at is not None and wanted.at.is_given  # else its name tells the pattern
        if is_given and index.pattern != wanted.pattern:
            return f"of files that match {index.pattern!r}, not {wanted.pattern!r}"
        return None

    def _made(self, known: VirtualIndex | None) -> VirtualIndex:
        """List the files, look at those that are new, and keep the result; the lock is held."""
        policy, pattern = self._policy, self._sought.pattern
        store, kind, options, files = self._sought.find(policy)
        index = build_index(
            store, files, kind, options, pattern=pattern, known=known, policy=policy
        )
        return self._keep(index, dump(index), "")

    # --- what is kept -----------------------------------------------------------------------------

    def _cached(self, noted: Source | None) -> VirtualIndex | None:
        if noted is None:
            return None
        try:
            return filed_index(self._filed(noted.digest))
        except IndexInvalidError as error:
            _log.info("looking at all files again: %s", error)
            self._forget(f"{self._stem}-{noted.digest}.index")
            return None

    def _filed(self, digest: str) -> Filed:
        return Filed(self._path(f"{self._stem}-{digest}.index"), digest, filed_index)

    def _path(self, name: str) -> str:
        return str(self._folder.path / name)

    def _known_keep(self, stem: str) -> Keep | None:
        with suppress(StoreError):
            for info in self._folder.list(f"{stem}-"):
                digest = info.key.removeprefix(f"{stem}-").removesuffix(".keep")
                try:
                    return filed_keep(Filed(self._path(info.key), digest, filed_keep))
                except IndexInvalidError as error:
                    _log.info("looking at all rows again: %s", error)
                    self._forget(info.key)
        return None

    def _noted(self) -> Source | None:
        try:
            data = self._folder.get(f"{self._stem}.json", max_bytes=_RECORD_BYTES)
            return Source(**json.loads(data))
        except (StoreError, ValueError, TypeError):
            return None

    def _is_settled(self, noted: Source | None) -> bool:
        """Tell whether another process has just seen to it that the index is up to date."""
        return noted is not None and noted.is_fresh(time.time())

    def _keep(self, index: VirtualIndex, data: bytes, version: str) -> VirtualIndex:
        """Keep an index for other processes, and return it as they have it."""
        digest = digest_of(data)
        name = f"{self._stem}-{digest}.index"
        before = [info.key for info in self._folder.list(self._stem)]
        if name not in before:
            if not self._put(name, data):
                return index
            with suppress(StoreError):
                for old in before:  # of what the files were; who still has that keeps it mapped
                    if old.endswith((".index", ".keep")):
                        self._folder.delete(old)
        self._note(Source(self._sought.name, len(data), digest, version, time.time(), os.getpid()))
        try:
            return filed_index(self._filed(digest))
        except IndexInvalidError as error:  # in a folder that cannot be written to
            _log.info("not using what is kept: %s", error)
            return index

    def _note(self, source: Source | None) -> None:
        if source is not None:
            told = source._replace(versions={})._asdict()
            self._put(f"{self._stem}.json", json.dumps(told).encode())

    def _forget(self, name: str) -> None:
        """Remove a file that is not what it should be, so that it is made again."""
        with suppress(StoreError):
            self._folder.delete(name)

    def _put(self, name: str, data: bytes) -> bool:
        try:
            self._folder.put(name, [data])
        except StoreError as error:
            _log.info("not keeping %s: %s", name, error)
            return False
        return True

    def _while_locked(self, act: Callable[[], _T]) -> _T:
        """Let one process at a time look, where the folder can be written to."""
        path = self._folder.path / f"{self._stem}.lock"
        what = f"looking at the files of {self._sought.name}"
        return while_locked(str(path), _LOCK_SECONDS, what, act)


def _fetched(at: IndexPlace, known: str) -> tuple[bytes | None, str]:
    """Return an index and its version; of one that is `known` already nothing but the beginning."""
    pieces = at.store.stream(at.name, max_bytes=MAX_SOURCE_INDEX_BYTES)
    found = bytearray()
    with closing(pieces):
        for piece in pieces:
            if not found and known and version_of(pieces) == known:
                return None, known
            found += piece
        version = version_of(pieces)
    return bytes(found), version
