"""What lies at a place: a data set, a conversion that did not finish, or parts to be merged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from streaming_core._index import MAX_INDEX_BYTES, ShardTable, load_index, parse_index
from streaming_core._read import SUMS, parse_sums
from streaming_core._store import LocalStore, Store, open_store
from streaming_core.errors import (
    IndexInvalidError,
    IndexMissingError,
    ObjectNotFoundError,
    ShardCorruptError,
)
from streaming_writer._journal import JOURNAL, Journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "INDEX",
    "Part",
    "Unfinished",
    "data_store",
    "find_parts",
    "find_unfinished",
    "load_table",
    "read_sums",
]

INDEX: Final = "index.json"
_MAX_LISTED: Final = 200_000
_MAX_PARTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A conversion that has begun and not ended, as its journal tells."""

    num_safe_samples: int
    """Samples that are durable, from the first of this conversion on: what a resumed one keeps."""
    num_safe_shards: int
    """Shards that hold them."""
    appends: bool
    """Whether it adds to a data set that was there before."""
    first_shard: int
    """Number of its first shard."""
    num_samples_before: int
    """Samples of the data set that it adds to."""
    settings: dict[str, Any]
    """What it was started with."""


@dataclass(frozen=True, slots=True)
class Part:
    """A data set in a sub-folder."""

    path: str
    """The folder, relative to the place asked for."""
    num_samples: int | None
    """Samples, or None where its index cannot be read."""
    state: str
    """`finished`, `unfinished` or `broken`."""


def data_store(url_or_path: str) -> Store:
    """Return the store of the data set's folder; the path of its index will do as well.

    A folder that is not there is an `IndexMissingError`.
    """
    folder, _, name = url_or_path.rpartition("/")
    if name == INDEX:
        url_or_path = folder or ("/" if url_or_path.startswith("/") else ".")
    store = open_store(url_or_path)
    if isinstance(store, LocalStore) and not store.exists():
        what = "is no folder" if os.path.lexists(store.path) else "does not exist"
        msg = f"{store.path} {what}; give the folder or URL that holds the data set's {INDEX}"
        raise IndexMissingError(msg)
    return store


def load_table(store: Store) -> ShardTable:
    """Return the index of the data set in `store`; raises as `load_index` does."""
    try:
        data = store.get(INDEX, max_bytes=MAX_INDEX_BYTES)
    except ObjectNotFoundError:
        # It looks again, and says what there is instead.
        return load_index(str(store.path) if isinstance(store, LocalStore) else store.url)
    return parse_index(data, f"{store.url}/{INDEX}")


def read_sums(store: Store) -> dict[str, str] | None:
    """Return the hash of each file by name, or None if there is no file of sums.

    Raises `ShardCorruptError` if the file is not what `xxhsum` would read.
    """
    try:
        data = store.get(SUMS, max_bytes=MAX_INDEX_BYTES)
    except ObjectNotFoundError:
        return None
    try:
        return parse_sums(data)
    except ValueError as error:
        msg = f"{SUMS}: required lines of a hash, two blanks and a name ({error}); write it again"
        raise ShardCorruptError(msg) from error


def find_unfinished(store: Store) -> Unfinished | None:
    """Return what the journal in `store` says, or None if there is none; changes nothing."""
    journal = Journal(store)
    settings = journal.settings()
    if settings is None:
        return None
    base: dict[str, Any] | None = settings.get("base")
    numbers = journal.numbers()
    first = min(numbers, default=0) if base else 0
    noted = set(numbers)
    shards = samples = 0
    while first + shards in noted:
        record = journal.read(first + shards)
        if not all(_has(store, name, size) for name, size in record.files().items()):
            break
        shards += 1
        samples += record.samples
    before = int(base["samples"]) if base else 0
    return Unfinished(samples, shards, base is not None, first, before, settings)


def find_parts(store: Store) -> list[Part]:
    """Return the data sets in folders below `store`, finished or not; at most a thousand."""
    keys = (info.key for info in islice(store.list(), _MAX_LISTED))
    return list(islice(_parts(store, keys), _MAX_PARTS))


def _folders(keys: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the folders that have an index, and those that have a journal."""
    journal = f"/{JOURNAL}/settings.json"
    finished: set[str] = set()
    begun: set[str] = set()
    for key in keys:
        if key.endswith(f"/{INDEX}"):
            finished.add(key.removesuffix(f"/{INDEX}"))
        elif key.endswith(journal):
            begun.add(key.removesuffix(journal))
    return finished, begun


def _parts(store: Store, keys: Iterable[str]) -> Iterator[Part]:
    finished, begun = _folders(keys)
    for path in sorted(finished | begun, key=lambda path: path.split("/")):
        if path not in finished:
            yield Part(path, None, "unfinished")
            continue
        try:
            table = parse_index(
                store.get(f"{path}/{INDEX}", max_bytes=MAX_INDEX_BYTES),
                f"{store.url}/{path}/{INDEX}",
            )
        except IndexInvalidError:
            yield Part(path, None, "broken")
        else:
            yield Part(path, table.num_samples, "finished")


def _has(store: Store, key: str, size: int) -> bool:
    try:
        return store.head(key).size == size
    except ObjectNotFoundError:
        return False
