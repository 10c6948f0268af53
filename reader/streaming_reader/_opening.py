"""A stream's index and sums, kept beside its shards, and the cache of its files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from streaming_core._index import INDEX_NAME, MAX_INDEX_BYTES, ShardTable, load_index, parse_index
from streaming_core._read import SUMS, parse_sums
from streaming_core._store import LocalStore, Retry, Store, open_store
from streaming_core.errors import (
    AccessDeniedError,
    ChecksumError,
    IndexInvalidError,
    ObjectNotFoundError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_reader.stream import Stream

__all__ = ["open_index"]

_log = logging.getLogger("streaming_core.reader")


def open_index(stream: Stream) -> tuple[ShardTable, Mapping[str, str], Store | None]:
    """Return a stream's table, the hashes of its files, and the store its files come from.

    An index that lies in the stream's folder already is taken as it is, so that a filled cache
    needs no network; one that is broken there is fetched again.

    Raises:
        IndexMissingError: Neither place has one; says what was found instead.
        IndexInvalidError: It cannot be trusted; lists all that is wrong.
    """
    folder = LocalStore(stream.folder, durable=False)
    url = stream.url
    if url is None:
        return load_index(stream.folder), _local_sums(folder) or {}, None
    remote = open_store(url)
    retry = Retry(
        tries=stream.settings.download_retry + 1, timeout=stream.settings.download_timeout
    )
    table = _local_table(folder)
    if table is None:
        table = _fetched_table(remote, folder, url, retry)
        _fetch_sums(remote, folder, retry)
    sums = _local_sums(folder)
    if sums is None:
        sums = _fetch_sums(remote, folder, retry)
    return table, sums, remote


def _local_table(folder: LocalStore) -> ShardTable | None:
    try:
        data = folder.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES)
        return parse_index(data, f"{folder.url}/{INDEX_NAME}")
    except ObjectNotFoundError:
        return None
    except IndexInvalidError as error:
        _log.warning("fetching the index again, because the copy is broken: %s", error)
        return None


def _fetched_table(remote: Store, folder: LocalStore, url: str, retry: Retry) -> ShardTable:
    try:
        data = retry.call(lambda: remote.get(INDEX_NAME, max_bytes=MAX_INDEX_BYTES))
    except ObjectNotFoundError:
        return load_index(url)  # which knows what to say, or was only late
    table = parse_index(data, f"{remote.url}/{INDEX_NAME}")
    _keep(folder, INDEX_NAME, data)
    return table


def _keep(folder: LocalStore, name: str, data: bytes) -> None:
    """Keep a copy beside the shards, unless the folder is read-only and complete without it."""
    try:
        folder.put(name, [data])
    except AccessDeniedError as error:
        _log.info("not keeping a copy of %s: %s", name, error)


def _local_sums(folder: LocalStore) -> Mapping[str, str] | None:
    try:
        return parse_sums(folder.get(SUMS))
    except ObjectNotFoundError:
        return None
    except ChecksumError as error:
        _log.warning("reading without the hashes beside the index: %s", error)
        return {}


def _fetch_sums(remote: Store, folder: LocalStore, retry: Retry) -> Mapping[str, str]:
    """Fetch the hashes beside a remote index; without any, note that by an empty file."""
    try:
        data = retry.call(lambda: remote.get(SUMS, max_bytes=MAX_INDEX_BYTES))
    except ObjectNotFoundError:
        data = b""
    except StoreError as error:
        _log.warning("reading without the hashes beside the index: %s", error)
        return {}
    _keep(folder, SUMS, data)
    try:
        return parse_sums(data)
    except ChecksumError as error:
        _log.warning("reading without the hashes beside the index: %s", error)
        return {}
