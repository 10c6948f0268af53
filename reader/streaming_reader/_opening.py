"""A stream's index and sums, kept beside its shards, and whether they are still the remote's."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from streaming_core._index import (
    INDEX_NAME,
    MAX_INDEX_BYTES,
    load_index,
    parse_index,
    read_index,
)
from streaming_core._read import SUMS
from streaming_core._store import (
    LocalStore,
    Pieces,
    Retry,
    open_store,
    public_url,
    with_timeout,
)
from streaming_core.errors import (
    AccessDeniedError,
    IndexInvalidError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
    WaitTimeoutError,
)
from streaming_reader._cache import CONTROL, SOURCE, lock_file
from streaming_reader._documents import (
    Documents,
    Source,
    Verdict,
    has_grown,
    judge,
    outdated_files,
    parsed_sums,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from streaming_core._index import ShardTable
    from streaming_core._store import Store
    from streaming_reader._cache import Pace
    from streaming_reader.stream import Stream

__all__ = ["open_index"]

_log = logging.getLogger("streaming_core.reader")
_RECORD: Final = f"{CONTROL}/{SOURCE}"
_RECORD_BYTES: Final = 1 << 16
_LOCK_SECONDS: Final = 300.0
_T = TypeVar("_T")


def open_index(
    stream: Stream, pace: Pace, requests: Executor
) -> tuple[ShardTable, Mapping[str, str], Store | None]:
    """Return a stream's table, the hashes of its files, and the store its files come from.

    An index that lies in the stream's folder already is taken as it is when the remote's has not
    changed, cannot be asked, or another process of this node has asked just now, so that a filled
    cache needs no network, and a node one request. One that has changed takes its place, with
    whatever files it has otherwise removed. `requests` makes requests side by side, at `pace`.

    Raises:
        IndexMissingError: Neither place has one; says what was found instead.
        IndexInvalidError: It cannot be trusted; lists all that is wrong.
        SchemaError: The folder has the files of another remote.
    """
    folder = LocalStore(stream.folder, durable=False)
    url, settings = stream.url, stream.settings
    remote = None if url is None else open_store(url, stream.storage_options)
    if remote is None or _is_folder(remote, folder):
        return load_index(stream.folder), parsed_sums(_local_sums(folder)), None
    remote = with_timeout(remote, settings.download_timeout)
    asking = _Asking(pace, settings.download_retry + 1, settings.download_timeout, requests)
    documents = _Opening(folder, remote, asking).documents()
    return documents.table, parsed_sums(documents.sums), remote


def _is_folder(remote: Store, folder: LocalStore) -> bool:
    return isinstance(remote, LocalStore) and remote.path.resolve() == folder.path.resolve()


class _Asking(NamedTuple):
    """How requests are made."""

    pace: Pace
    tries: int
    timeout: float
    requests: Executor

    def whole(self, act: Callable[[], _T]) -> _T:
        """Return what `act` returns, tried again where that may help."""
        return self.pace.call(act, Retry(self.tries), self.timeout * self.tries)

    def once(self, act: Callable[[], _T]) -> _T:
        """Return what `act` returns, tried once, and not if the store is busy."""
        return self.pace.call(act, Retry(1), 0.0)


class _Opening:
    """One opening of one folder that caches one remote."""

    def __init__(self, folder: LocalStore, remote: Store, asking: _Asking) -> None:
        self._folder = folder
        self._remote = remote
        self._name = public_url(remote.url).rstrip("/")
        self._asking = asking

    def documents(self) -> Documents:
        """Return the index to be used, and its hashes; the folder then has them."""
        cached, noted = self._cached(), self._noted()
        if cached is None or not self._is_settled(noted):
            with ExitStack() as stack:
                self._lock(stack)
                now = self._noted()
                if cached is None or now != noted:
                    cached, noted = self._cached(), now
                if cached is None or not self._is_settled(noted):
                    return self._settled(cached, noted)
        return self._with_sums(cached)

    def _is_settled(self, noted: Source | None) -> bool:
        """Tell whether another process has just seen to it that the folder is up to date."""
        return noted is not None and noted.url == self._name and noted.is_fresh(time.time())

    def _settled(self, cached: Documents | None, noted: Source | None) -> Documents:
        """Compare the folder with the remote, and bring it up to that; the lock is held."""
        moved = noted is not None and noted.url != self._name
        if cached is not None and noted is not None and not moved:
            version = self._version()
            if version in {None, (noted.etag, noted.size)} and (version is None or noted.etag):
                self._note(cached, noted.etag)
                return self._with_sums(cached)
        try:
            coming, etag = self._fetched()
        except StoreError as failure:
            if cached is None:
                raise
            if moved:
                raise self._other_remote(noted) from failure
            _log.info("reading without asking the remote: %s", failure)
            self._note(cached, "" if noted is None else noted.etag)
            return self._with_sums(cached)
        if cached is None:
            same = noted is None or noted.digest == coming.digest
            grown = False
        else:
            same = cached.is_same(coming)
            grown = not same and has_grown(cached, coming)
        verdict = judge(noted and noted.url, self._name, same=same, grown=grown)
        if verdict is Verdict.REFUSE:
            raise self._other_remote(noted)
        if verdict is Verdict.REPLACE and not grown:
            self._clean(cached or coming._replace(sums=b""), coming)
        if cached is None or verdict is Verdict.REPLACE:
            self._keep(INDEX_NAME, coming.data)
        if coming.sums is not None:
            self._keep(SUMS, coming.sums)
        self._note(coming, etag)
        return coming

    # --- what is there ----------------------------------------------------------------------------

    def _cached(self) -> Documents | None:
        try:
            data = self._folder.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES)
            table = parse_index(data, f"{self._folder.url}/{INDEX_NAME}")
        except ObjectNotFoundError:
            return None
        except IndexInvalidError as error:
            _log.warning("fetching the index again, because the copy is broken: %s", error)
            return None
        return Documents(data, table, _local_sums(self._folder))

    def _noted(self) -> Source | None:
        try:
            return Source(**json.loads(self._folder.get(_RECORD, max_bytes=_RECORD_BYTES)))
        except (StoreError, ValueError, TypeError):
            return None

    def _version(self) -> tuple[str, int] | None:
        """Return etag and size of the remote's index; None if it does not answer."""
        try:
            info = self._asking.once(lambda: self._remote.head(INDEX_NAME))
        except StoreError as error:
            _log.info("not asking whether the index has changed: %s", error)
            return None
        return info.etag, info.size

    # --- what comes -------------------------------------------------------------------------------

    def _fetched(self) -> tuple[Documents, str]:
        """Return the remote's index with its hashes, both asked for at once, and its etag."""
        sums = self._asking.requests.submit(self._fetched_sums)
        try:
            data, etag = self._asking.whole(self._read)
        except ObjectNotFoundError:
            if self._cached() is not None:
                raise
            read_index(self._remote)  # which knows what to say, or was only late
            data, etag = self._read()
        table = parse_index(data, f"{self._remote.url}/{INDEX_NAME}")
        return Documents(data, table, sums.result()), etag

    def _read(self) -> tuple[bytes, str]:
        """Return the remote's index and its etag, nothing if that is not known."""
        pieces = self._remote.stream(INDEX_NAME, max_bytes=MAX_INDEX_BYTES)
        if isinstance(pieces, Pieces):
            with closing(pieces):
                data = b"".join(map(bytes, pieces))
                return data, pieces.etag
        # Asked before it is read: what is read later is not older.
        version = self._version()
        data = self._remote.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES)
        return data, "" if version is None else version[0]

    def _fetched_sums(self) -> bytes | None:
        """Return the hashes beside the remote's index, nothing if it has none."""
        try:
            return self._asking.whole(lambda: self._remote.get(SUMS, max_bytes=MAX_INDEX_BYTES))
        except ObjectNotFoundError:
            return b""  # noted by an empty file
        except StoreError as error:
            _log.warning("reading without the hashes beside the index: %s", error)
            return None

    def _with_sums(self, cached: Documents) -> Documents:
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

    def _clean(self, old: Documents, new: Documents) -> None:
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

    def _note(self, documents: Documents, etag: str) -> None:
        size, digest = len(documents.data), documents.digest
        source = Source(self._name, size, digest, etag, time.time(), os.getpid())
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
