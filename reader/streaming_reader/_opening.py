"""A stream's index and sums, kept beside its shards, and whether they are still the remote's."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import xxhash

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
)
from streaming_reader._cache import CONTROL, SOURCE, same_folder, while_locked
from streaming_reader._documents import (
    ABSENT,
    Came,
    Documents,
    Source,
    Verdict,
    gained_sums,
    has_grown,
    is_copy,
    judge,
    lacking_sums,
    outdated_files,
    parsed_sums,
    version_text,
    witnesses,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._index import ShardTable
    from streaming_core._store import RequestPolicy, Store
    from streaming_core._workers import Workers
    from streaming_reader._cache import NodeRateLimiter
    from streaming_reader.stream import ResolvedStream

__all__ = ["open_index"]

_log = logging.getLogger("streaming_core.reader")
_RECORD: Final = f"{CONTROL}/{SOURCE}"
_LEDGER: Final = f"{CONTROL}/ledger"
_RECORD_BYTES: Final = 1 << 16
_LOCK_SECONDS: Final = 300.0


def open_index(
    stream: ResolvedStream, limiter: NodeRateLimiter, requests: Workers
) -> tuple[ShardTable, Mapping[str, str], Store | None]:
    """Return a stream's table, the hashes of its files, and the store its files come from.

    An index that lies in the stream's folder already is taken as it is when the remote's has not
    changed, cannot be asked, or another process of this node has asked just now, so that a filled
    cache needs no network, and a node asks once: for the versions of the index and of the sums,
    or, where shards have no hashes at all, of the first and the last shard. What has changed takes
    its place, with whatever files it has otherwise removed. What came only once, and is not proven
    by an etag that is its hash, is read once more by the next opening instead. `requests` makes
    requests side by side, as fast as `limiter` lets them.

    Raises:
        IndexMissingError: Neither place has one; says what was found instead.
        IndexInvalidError: It cannot be trusted; lists all that is wrong.
        SchemaError: The folder has the files of another remote.
    """
    folder = LocalStore(stream.folder, durable=False)
    url, settings = stream.url, stream.settings
    remote = None if url is None else open_store(url, stream.storage_options)
    if remote is None or (
        isinstance(remote, LocalStore) and same_folder(str(remote.path), str(folder.path))
    ):
        return load_index(stream.folder), parsed_sums(_local_sums(folder)), None
    remote = with_timeout(remote, settings.download_timeout)
    documents = _Opening(folder, remote, settings.policy(limiter), requests).documents()
    return documents.table, parsed_sums(documents.sums), remote


class _Opening:
    """One opening of one folder that caches one remote."""

    def __init__(
        self, folder: LocalStore, remote: Store, policy: RequestPolicy, requests: Workers
    ) -> None:
        self._folder = folder
        self._remote = remote
        self._name = public_url(remote.url).rstrip("/")
        self._requests = requests
        self._patient = policy
        # Tried until the time for one request is over, half of it for a store that is busy:
        # afterwards all others leave it alone for as long.
        self._bounded = replace(policy, total=policy.timeout, busy=policy.timeout / 2)
        self._once = replace(policy, tries=1, busy=0.0)

    def documents(self) -> Documents:
        """Return the index to be used, and its hashes; the folder then has them."""
        cached, noted = self._cached(), self._noted()
        if cached is not None and self._is_settled(noted):
            return self._with_sums(cached)

        def settle() -> Documents:
            now = self._noted()
            found = self._cached() if cached is None or now != noted else cached
            if found is None or not self._is_settled(now):
                return self._settled(found, now)
            return self._with_sums(found)

        path = self._folder.path / CONTROL / f"{SOURCE}.lock"
        what = f"comparing {self._folder.url} with its remote"
        return while_locked(str(path), _LOCK_SECONDS, what, settle)

    def _is_settled(self, noted: Source | None) -> bool:
        """Tell whether another process has just seen to it that the folder is up to date."""
        return noted is not None and noted.url == self._name and noted.is_fresh(time.time())

    def _is_copy(self, coming: Documents) -> bool:
        with suppress(StoreError):  # who cannot tell takes it for another
            return self._bounded.call(lambda: is_copy(self._folder, self._remote, coming))
        return False

    def _settled(self, cached: Documents | None, noted: Source | None) -> Documents:
        """Compare the folder with the remote, and bring it up to that; the lock is held."""
        moved = noted is not None and noted.url != self._name
        patient = True
        now: dict[str, str | None] = {}
        if cached is not None and noted is not None and not moved:
            if noted.sure:
                now = self._versions([INDEX_NAME, SUMS, *witnesses(cached)])
                if noted.is_current(now):
                    self._note(noted.with_versions(now))
                    return self._with_sums(cached)
            elif noted.etag:
                patient = False  # as if only asked whether it has changed
        try:
            coming, source = self._fetched(patient=patient)
        except StoreError as failure:
            if cached is None:
                raise
            if moved:
                raise self._other_remote(noted) from failure
            _log.info("reading without asking the remote: %s", failure)
            self._note(noted or Source(self._name, len(cached.data), cached.digest, ""))
            return self._with_sums(cached)
        if cached is not None and coming.sums is None:
            coming = coming._replace(sums=cached.sums)
        before: Mapping[str, str] = {} if moved or noted is None else noted.versions
        now |= self._versions(sorted({*witnesses(coming), *before} - {SUMS, *now}))
        # Without the sums it had, nobody knows whether the shards are the same.
        lost = bool(before and cached and cached.sums) and coming.sums == b""
        rewritten = lost or bool(before and noted and noted.is_rewritten(now))
        self._take(cached, noted, coming, rewritten=rewritten)
        twice = cached is not None and cached[::2] == coming[::2]  # index and sums
        shards = {name: now.get(name) or before.get(name) for name in witnesses(coming)}
        self._note(source._replace(sure=source.sure or twice).with_versions(shards))
        return coming

    def _take(
        self, cached: Documents | None, noted: Source | None, coming: Documents, *, rewritten: bool
    ) -> None:
        """Let what comes take the place of what is cached, where it is another."""
        same = grown = False
        if cached is None:
            same = not rewritten and (noted is None or noted.digest == coming.digest)
        elif not rewritten and ((noted and noted.url == self._name) or self._is_copy(coming)):
            same = cached.is_same(coming)
            grown = not same and has_grown(cached, coming)
        verdict = judge(noted and noted.url, self._name, same=same, grown=grown)
        if verdict is Verdict.REFUSE:
            raise self._other_remote(noted)
        if verdict is Verdict.REPLACE and not grown:
            self._clean(cached or coming._replace(sums=b""), coming)
        if cached is None or verdict is Verdict.REPLACE:
            self._keep(INDEX_NAME, coming.data)
        self._keep_sums(cached, coming)

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
            found = Source(**json.loads(self._folder.get(_RECORD, max_bytes=_RECORD_BYTES)))
        except (StoreError, ValueError, TypeError):
            return None
        return found.with_sound_versions()

    def _version(self, name: str) -> str | None:
        """Return the version of a file of the remote; None if that does not answer."""
        try:
            info = self._once.call(lambda: self._remote.head(name))
        except ObjectNotFoundError:
            return ABSENT
        except StoreError as error:
            _log.info("not asking whether %s has changed: %s", name, error)
            return None
        return version_text(info.etag, info.size)

    def _versions(self, names: Sequence[str]) -> dict[str, str | None]:
        """Return the versions of files of the remote, all asked for at once."""
        others = [self._requests.submit(partial(self._version, name)) for name in names[1:]]
        first = [self._version(name) for name in names[:1]]
        return dict(zip(names, [*first, *(other.result() for other in others)], strict=True))

    # --- what comes -------------------------------------------------------------------------------

    def _fetched(self, *, patient: bool) -> tuple[Documents, Source]:
        """Return the remote's index with its sums, both asked for at once, and what to note."""
        policy = self._patient if patient else self._once
        bounded = self._bounded if patient else self._once
        task = self._requests.submit(partial(self._fetched_sums, bounded))
        try:
            index, table = self._read_index(policy)
        except ObjectNotFoundError:
            if self._cached() is not None:
                raise
            read_index(self._remote)  # which knows what to say, or was only late
            index, table = self._read_index(policy)
        sums, complete = self._checked_sums(task.result(), table, bounded)
        documents = Documents(index.data, table, None if sums is None else sums.data)
        versions = {SUMS: sums.version} if sums is not None and complete else {}
        sure = index.sure and sums is not None and sums.sure and complete
        noted = Source(self._name, len(index.data), documents.digest, index.etag)
        return documents, noted._replace(sure=sure, versions=versions)

    def _read_index(self, policy: RequestPolicy) -> tuple[Came, ShardTable]:
        """Return the remote's index; an invalid one is asked for again.

        The same one twice is an error, and so are other ones once all tries are made.
        """
        place = f"{self._remote.url}/{INDEX_NAME}"
        before: set[bytes] = set()
        while True:
            came = self._read(INDEX_NAME, policy)
            try:
                return came, parse_index(came.data, place)
            except IndexInvalidError as error:
                digest = xxhash.xxh3_128_digest(came.data)
                if digest in before or len(before) == self._patient.tries:
                    raise
                before.add(digest)
                _log.warning("reading the index again, because it is invalid: %s", error)

    def _read(self, name: str, policy: RequestPolicy) -> Came:
        """Return a document of the remote, read again if its etag says that something else came."""
        came = policy.call(lambda: self._read_once(name))
        if not came.claims_md5 or came.is_proven:
            return came._replace(sure=came.is_proven)
        # Either it was changed on the way, or the etag is not its hash.
        again = policy.call(lambda: self._read_once(name))
        return again._replace(sure=again.is_proven or again == came)

    def _read_once(self, name: str) -> Came:
        pieces = self._remote.stream(name, max_bytes=MAX_INDEX_BYTES)
        if isinstance(pieces, Pieces):
            with closing(pieces):
                data = b"".join(map(bytes, pieces))
                return Came(data, pieces.etag)
        # Asked before it is read: what is read later is not older.
        etag = ""
        with suppress(StoreError):
            etag = self._remote.head(name).etag
        return Came(self._remote.get(name, max_bytes=MAX_INDEX_BYTES), etag)

    def _fetched_sums(self, policy: RequestPolicy) -> Came | None:
        """Return the sums beside the remote's index; empty and `ABSENT` if it has none."""
        try:
            return self._read(SUMS, policy)
        except ObjectNotFoundError:
            return Came(b"", ABSENT, sure=True)  # noted by an empty file
        except StoreError as error:
            _log.warning("reading without the hashes beside the index: %s", error)
            return None

    def _checked_sums(
        self, sums: Came | None, table: ShardTable, policy: RequestPolicy
    ) -> tuple[Came | None, bool]:
        """Return the sums and whether they have all files; if not, they were read once more."""
        for again in (True, False):
            if sums is None or sums.etag == ABSENT:
                return sums, True
            lacking = lacking_sums(table, sums.data)
            if not lacking:
                return sums, True
            if again:
                sums = self._fetched_sums(policy) or sums
        _log.warning(
            "%s/%s has no line for %d files that the index names, such as %s: they are not checked "
            "by it; write it again with xxhsum -H2, or delete it",
            self._name,
            SUMS,
            len(lacking),
            lacking[0],
        )
        return sums, False

    def _with_sums(self, cached: Documents) -> Documents:
        if cached.sums is not None:
            return cached
        sums = self._fetched_sums(self._bounded)
        sums, _ = self._checked_sums(sums, cached.table, self._bounded)
        if sums is None:
            return cached
        coming = cached._replace(sums=sums.data)
        self._keep_sums(cached, coming)
        return coming

    # --- what stays -------------------------------------------------------------------------------

    def _clean(self, old: Documents, new: Documents) -> None:
        """Remove the files of an index that is not the remote's any more."""
        gone = outdated_files(old, new)
        _log.warning(
            "what is in %s has changed: removing %d files from %s that may be others now",
            self._name,
            len(gone),
            self._folder.url,
        )
        for name in gone:
            self._folder.delete(name)

    def _keep_sums(self, cached: Documents | None, coming: Documents) -> None:
        """Keep the sums; files that came while theirs were not known are checked when used."""
        if coming.sums is None:
            return
        if cached is not None and gained_sums(cached, coming):
            try:
                self._folder.delete(_LEDGER)  # which says that they were found right
            except AccessDeniedError as error:
                _log.info("not checking anew what is in %s: %s", self._folder.url, error)
        self._keep(SUMS, coming.sums)

    def _note(self, source: Source) -> None:
        now = source._replace(url=self._name, asked=time.time(), by=os.getpid())
        self._keep(_RECORD, json.dumps(now.with_versions({})._asdict()).encode())

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
