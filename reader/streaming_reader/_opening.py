"""A stream's index and sums, kept beside its shards, and whether they are still the remote's."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

from streaming_core._index import INDEX_NAME, MAX_INDEX_BYTES, load_index, parse_index
from streaming_core._read import SUMS, parse_sums
from streaming_core._store import LocalStore, Retry, open_store, public_url
from streaming_core.errors import (
    AccessDeniedError,
    ChecksumError,
    IndexInvalidError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
    WaitTimeoutError,
)
from streaming_reader._cache import CONTROL, SOURCE, lock_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index import ShardInfo, ShardTable
    from streaming_core._store import Store
    from streaming_reader.stream import Stream

__all__ = ["Source", "Verdict", "judge", "open_index", "outdated_files"]

_log = logging.getLogger("streaming_core.reader")
_RECORD: Final = f"{CONTROL}/{SOURCE}"
_RECORD_BYTES: Final = 1 << 16
_LOCK_SECONDS: Final = 300.0


class Source(NamedTuple):
    """Where a folder's files come from, as noted in the folder."""

    url: str
    """The remote, without secrets."""
    size: int
    """Bytes of its index."""
    digest: str
    """The index's hash."""
    etag: str
    """What the remote said of that version; nothing if it was not asked."""


class Verdict(Enum):
    """What to do with an index that lies in the folder."""

    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


def judge(noted: str | None, url: str, *, same: bool | None, grown: bool) -> Verdict:
    """Return what to do with a folder whose files came from `noted` (None: nobody knows).

    `same` tells whether its index is that of `url` now, None if that cannot be asked; `grown`
    whether that of `url` has all its files and more.

    Example:
        >>> judge("s3://a", "s3://b", same=False, grown=False)
        <Verdict.REFUSE: 'refuse'>
    """
    if same:
        return Verdict.KEEP
    if noted is not None and noted != url:
        return Verdict.REFUSE
    if same is None:
        return Verdict.KEEP
    return Verdict.REPLACE if grown or noted == url else Verdict.REFUSE


class _Documents(NamedTuple):
    """An index and the hashes beside it, as they were read."""

    data: bytes
    table: ShardTable
    sums: bytes | None
    """None if it is not known whether there are any."""

    def is_same(self, other: _Documents) -> bool:
        """Tell whether both describe the same files."""
        return self.data == other.data and (
            not (self.sums and other.sums) or self.sums == other.sums
        )

    @property
    def digest(self) -> str:
        """The index's hash."""
        return xxhash.xxh3_64_hexdigest(self.data)


def outdated_files(old: _Documents, new: _Documents) -> list[str]:
    """Return the files of `old` of which it is not known that `new` has the same."""
    old_sums, new_sums = _parsed(old.sums), _parsed(new.sums)
    there = {info.raw.basename: info for info in _shards(new.table)}
    return [
        file.basename
        for info in _shards(old.table)
        if not _agree(info, there.get(info.raw.basename), old_sums, new_sums)
        for file in info.files().values()
    ]


def _has_grown(old: _Documents, new: _Documents) -> bool:
    """Tell whether the new index has all files of the old one as they were."""
    old_sums, new_sums = _parsed(old.sums), _parsed(new.sums)

    def files(info: ShardInfo, sums: Mapping[str, str]) -> list[object]:
        return [
            (role, file.basename, file.bytes, file.hashes, sums.get(file.basename))
            for role, file in info.files().items()
        ]

    there = {info.raw.basename: info for info in _shards(new.table)}
    return all(
        (now := there.get(info.raw.basename)) is not None
        and files(info, old_sums) == files(now, new_sums if old_sums else {})
        for info in _shards(old.table)
    )


def _shards(table: ShardTable) -> list[ShardInfo]:
    return [table.shard(at) for at in range(table.num_shards)]


def _agree(
    old: ShardInfo, new: ShardInfo | None, old_sums: Mapping[str, str], new_sums: Mapping[str, str]
) -> bool:
    """Tell whether two shards have files of the same sizes, and of hashes known to be equal."""
    if new is None:
        return False
    files, others = old.files(), new.files()
    if {role: (file.basename, file.bytes) for role, file in files.items()} != {
        role: (file.basename, file.bytes) for role, file in others.items()
    }:
        return False
    for role in ("zip", "zip_meta") if "zip" in files else ("raw", "raw_meta"):
        if role not in files:
            continue
        name = files[role].basename
        known = {**files[role].hashes, "sum": old_sums.get(name)}
        now = {**others[role].hashes, "sum": new_sums.get(name)}
        pairs = [(known[key], now[key]) for key in known if known[key] and now.get(key)]
        if not pairs or any(one != other for one, other in pairs):
            return False
    return True


def open_index(stream: Stream) -> tuple[ShardTable, Mapping[str, str], Store | None]:
    """Return a stream's table, the hashes of its files, and the store its files come from.

    An index that lies in the stream's folder already is taken as it is when the remote's has not
    changed or cannot be asked, so that a filled cache needs no network. One that has changed takes
    its place, with whatever files it has otherwise removed.

    Raises:
        IndexMissingError: Neither place has one; says what was found instead.
        IndexInvalidError: It cannot be trusted; lists all that is wrong.
        SchemaError: The folder has the files of another remote.
    """
    folder = LocalStore(stream.folder, durable=False)
    url = stream.url
    remote = None if url is None else open_store(url)
    if url is None or remote is None or _is_folder(remote, folder):
        return load_index(stream.folder), _parsed(_local_sums(folder)), None
    retry = Retry(
        tries=stream.settings.download_retry + 1, timeout=stream.settings.download_timeout
    )
    documents = _Opening(folder, remote, url, retry).documents()
    return documents.table, _parsed(documents.sums), remote


def _is_folder(remote: Store, folder: LocalStore) -> bool:
    return isinstance(remote, LocalStore) and remote.path.resolve() == folder.path.resolve()


class _Opening:
    """One opening of one folder that caches one remote."""

    def __init__(self, folder: LocalStore, remote: Store, url: str, retry: Retry) -> None:
        self._folder = folder
        self._remote = remote
        self._url = url
        self._name = public_url(remote.url).rstrip("/")
        self._retry = retry

    def documents(self) -> _Documents:
        """Return the index to be used, and its hashes; the folder then has them."""
        cached, noted = self._cached(), self._noted()
        etag, size = self._version()
        if (
            cached is not None
            and noted is not None
            and noted.url == self._name
            and (etag is None or (etag, size) == (noted.etag, noted.size))
        ):
            return self._with_sums(cached)
        with ExitStack() as stack:
            self._lock(stack)
            return self._settled(self._cached(), self._noted(), etag)

    def _settled(
        self, cached: _Documents | None, noted: Source | None, etag: str | None
    ) -> _Documents:
        """Compare the folder with the remote, and bring it up to that; the lock is held."""
        moved = noted is not None and noted.url != self._name
        coming, failure = None, None
        if cached is None or moved or etag is not None:
            try:
                coming = self._fetched()
            except StoreError as error:
                failure = error
                if cached is None:
                    raise
        if coming is None:
            if moved or cached is None:
                raise self._other_remote(noted) from failure
            self._note(cached, "" if noted is None else noted.etag)
            return self._with_sums(cached)
        if cached is None:
            same = noted is None or noted.digest == coming.digest
            grown = False
        else:
            same = cached.is_same(coming)
            grown = not same and _has_grown(cached, coming)
        verdict = judge(noted and noted.url, self._name, same=same, grown=grown)
        if verdict is Verdict.REFUSE:
            raise self._other_remote(noted)
        if verdict is Verdict.REPLACE and not grown:
            self._clean(cached or coming._replace(sums=b""), coming)
        if cached is None or verdict is Verdict.REPLACE:
            self._keep(INDEX_NAME, coming.data)
        if coming.sums is not None:
            self._keep(SUMS, coming.sums)
        self._note(coming, etag or "")
        return coming

    # --- what is there ----------------------------------------------------------------------------

    def _cached(self) -> _Documents | None:
        try:
            data = self._folder.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES)
            table = parse_index(data, f"{self._folder.url}/{INDEX_NAME}")
        except ObjectNotFoundError:
            return None
        except IndexInvalidError as error:
            _log.warning("fetching the index again, because the copy is broken: %s", error)
            return None
        return _Documents(data, table, _local_sums(self._folder))

    def _noted(self) -> Source | None:
        try:
            return Source(**json.loads(self._folder.get(_RECORD, max_bytes=_RECORD_BYTES)))
        except (StoreError, ValueError, TypeError):
            return None

    def _version(self) -> tuple[str | None, int]:
        """Return etag and size of the remote's index; None if it does not answer."""
        try:
            info = self._remote.head(INDEX_NAME)
        except StoreError as error:
            _log.info("not asking whether the index has changed: %s", error)
            return None, 0
        return info.etag, info.size

    # --- what comes -------------------------------------------------------------------------------

    def _fetched(self) -> _Documents:
        try:
            data = self._retry.call(lambda: self._remote.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES))
        except ObjectNotFoundError:
            if self._cached() is not None:
                raise
            load_index(self._url)  # which knows what to say, or was only late
            data = self._remote.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES)
        table = parse_index(data, f"{self._remote.url}/{INDEX_NAME}")
        return _Documents(data, table, self._fetched_sums())

    def _fetched_sums(self) -> bytes | None:
        """Return the hashes beside the remote's index, nothing if it has none."""
        try:
            return self._retry.call(lambda: self._remote.get(SUMS, max_bytes=MAX_INDEX_BYTES))
        except ObjectNotFoundError:
            return b""  # noted by an empty file
        except StoreError as error:
            _log.warning("reading without the hashes beside the index: %s", error)
            return None

    def _with_sums(self, cached: _Documents) -> _Documents:
        if cached.sums is not None:
            return cached
        sums = self._fetched_sums()
        if sums is not None:
            self._keep(SUMS, sums)
        return cached._replace(sums=sums)

    # --- what stays -------------------------------------------------------------------------------

    def _lock(self, stack: ExitStack) -> None:
        """Let one process at a time change the folder, where it can be written to."""
        path = self._folder.path / CONTROL / f"{SOURCE}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            deadline = time.monotonic() + _LOCK_SECONDS
            lock = lock_file(str(path), deadline, f"comparing {self._folder.url} with its remote")
        except OSError as error:
            if isinstance(error, WaitTimeoutError):
                raise
            _log.info("not locking %s: %s", path, error)
            return
        stack.callback(lock.close)
        stack.callback(path.unlink, missing_ok=True)

    def _clean(self, old: _Documents, new: _Documents) -> None:
        """Remove the files of an index that is not the remote's any more."""
        gone = outdated_files(old, new)
        _log.warning(
            "the index of %s has changed: removing %d files from %s that may be others now",
            self._name,
            len(gone),
            self._folder.url,
        )
        for name in gone:
            self._folder.delete(name)

    def _note(self, documents: _Documents, etag: str) -> None:
        source = Source(self._name, len(documents.data), documents.digest, etag)
        if source != self._noted():
            self._keep(_RECORD, json.dumps(source._asdict()).encode())

    def _keep(self, name: str, data: bytes) -> None:
        """Keep a copy beside the shards, unless the folder is read-only and complete without it."""
        try:
            if not self._has(name, data):
                self._folder.put(name, [data])
        except AccessDeniedError as error:
            _log.info("not keeping a copy of %s: %s", name, error)

    def _has(self, name: str, data: bytes) -> bool:
        try:
            return self._folder.get(name, max_bytes=MAX_INDEX_BYTES) == data
        except ObjectNotFoundError:
            return False

    def _other_remote(self, noted: Source | None) -> SchemaError:
        before = "an unknown remote" if noted is None else noted.url
        return SchemaError(
            f"{os.fspath(self._folder.path)} holds the files of {before}, but the remote is now "
            f"{self._name}, whose index is not known to be the same; give another local folder, "
            "or delete this one"
        )


def _local_sums(folder: LocalStore) -> bytes | None:
    try:
        return folder.get(SUMS, max_bytes=MAX_INDEX_BYTES)
    except ObjectNotFoundError:
        return None


def _parsed(sums: bytes | None) -> Mapping[str, str]:
    try:
        return parse_sums(sums or b"")
    except ChecksumError as error:
        _log.warning("reading without the hashes beside the index: %s", error)
        return {}
