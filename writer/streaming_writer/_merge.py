"""Joining data sets that lie in sub-folders into one, by its index."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from streaming_core._index import (
    MAX_INDEX_BYTES,
    ROLES,
    ShardTable,
    dump_index,
    merge_tables,
    parse_index,
    require_same_columns,
)
from streaming_core._read import SUMS, format_sums, parse_sums
from streaming_core._store import (
    LocalStore,
    RequestPolicy,
    Store,
    open_store,
    release_all,
    with_timeout,
)
from streaming_core._workers import in_order
from streaming_core.errors import (
    IndexMissingError,
    ObjectNotFoundError,
    OutputNotEmptyError,
    ResumeError,
    SchemaError,
    StreamingError,
)
from streaming_writer._journal import JOURNAL
from streaming_writer._output import INDEX, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._store import StorageOptions

__all__ = ["merge_index"]

_LISTINGS = 8
"""How often a place is listed that changes each time."""
_SHARD = re.compile(r"shard\.\d{5,}\.[^/]+")
_Part = tuple[str, ShardTable, dict[str, str]]


class _Listing(NamedTuple):
    """What the listing of one store says of data sets."""

    url: str
    indexes: dict[str, str]
    """The etag of each index in a sub-folder, by key."""
    journals: set[str]
    """Folders that a writer is filling, or left unfinished."""
    shards: set[str]
    """The keys of shard files in folders without an index."""


def merge_index(
    index_file_urls: Sequence[Target] | Target,
    out: Target | None = None,
    keep_local: bool = True,  # noqa: FBT001, FBT002 - the reference takes it by position
    download_timeout: int = 60,
    *,
    storage_options: StorageOptions | None = None,
) -> None:
    """Write one index over data sets in sub-folders, of any depth; their files stay where they are.

    `merge_index(root)` joins every data set below the folder or URL `root`, in order of their
    paths. `merge_index([index, …], root)` joins those whose `index.json` are listed, in that order;
    all must lie below `root`. A pair (folder, URL) names the same place twice: it is read where it
    is found first, and the index is written to both (only to the URL without `keep_local`). A
    request that brings nothing for `download_timeout` seconds is made again, twice at most.
    `storage_options` are what the store of a URL takes beyond it; see `open_store`.

    Raises:
        IndexMissingError: There is nothing to join, or a listed index is not there.
        IndexInvalidError: An index is broken, that of `root` included, or two data sets
            have a file of the same name.
        ResumeError: A data set below `root` is not finished, or has shards and no index; listed
            ones are not asked.
        OutputNotEmptyError: The index of `root` names shards of its own, which would be lost.
        SchemaError: A listed index does not lie below `root`, or data sets have columns of other
            names, or of types that cannot be in one batch.

    Example:
        >>> import tempfile
        >>> from streaming_core import MDSWriter, load_index, merge_index
        >>> root = tempfile.mkdtemp()
        >>> for part in range(2):
        ...     with MDSWriter(out=root, columns={"a": "int"}, part=part) as writer:
        ...         writer.write({"a": part})
        >>> merge_index(root)
        >>> load_index(root).num_samples
        2
    """
    root, listed = _arguments(index_file_urls, out)
    stores = _stores(root, download_timeout, storage_options)
    _refuse_own_shards(stores)
    if listed is None:
        parts = _all_parts(stores)
    else:
        parts = _parts(stores, [_relative(item, root) for item in listed])
    merged = merge_tables([(prefix, table) for prefix, table, _ in parts])
    known = {name for role in ROLES for name in merged.basenames(role)}
    sums = {f"{prefix}/{name}": value for prefix, _, own in parts for name, value in own.items()}
    sums = {name: value for name, value in sums.items() if name in known}
    index = dump_index(merged.entries(), merged=True, extras=merged.extras)
    require_same_columns(
        {prefix: table for prefix, table, _ in parts}, "convert them with the same columns"
    )
    kept = stores if keep_local else stores[-1:]
    locks = [store.lock() for store in kept if isinstance(store, LocalStore)]
    try:
        for lock in locks:
            lock.acquire()
        for store in kept:
            if sums:
                store.put(SUMS, [format_sums(sums)])
            store.put(INDEX, [index])
    finally:
        try:
            release_all(locks)
        finally:  # the first may have been interrupted
            release_all(locks)


def _arguments(
    first: Sequence[Target] | Target, out: Target | None
) -> tuple[Target, Sequence[Target] | None]:
    """Return the root and the listed indexes, None for all that are found below it."""
    if isinstance(first, str | os.PathLike | tuple):
        one = cast("Target", first)
        return (one, None) if out is None else (out, [one])
    if out is None:
        msg = (
            "merge_index of a list needs the folder or URL above all of them: "
            "merge_index([...], out)"
        )
        raise SchemaError(msg)
    return out, first


def _parts(stores: Sequence[Store], keys: Sequence[str]) -> list[_Part]:
    """Read the data sets of which the keys of the indexes are given."""
    if not keys:
        msg = f"{stores[0].url}: no data set in any folder below it (no {INDEX})"
        raise IndexMissingError(msg)
    tables = list(in_order(partial(_table, stores), keys))
    sums = list(in_order(partial(_sums, stores), keys))
    folders = (key.removesuffix(INDEX).rstrip("/") for key in keys)
    return list(zip(folders, tables, sums, strict=True))


def _all_parts(stores: Sequence[Store]) -> list[_Part]:
    """Read all data sets in sub-folders, again until a listing before and one after are the same.

    A part that finishes while a listing runs may be missing in it, with and without a trace.
    """
    listings = _listings(stores)
    for _ in range(_LISTINGS):
        failure, parts = None, []
        try:
            _refuse_unfinished(listings)
            keys = sorted(listings[-1].indexes, key=lambda key: key.split("/"))
            parts = _parts(stores, keys)
            _refuse_without_index(listings[-1], parts)
        except StreamingError as error:  # it may be due to the change
            failure = error
        before, listings = listings, _listings(stores)
        if listings == before:
            if failure is not None:
                raise failure
            return _without_joined(parts)
    msg = (
        f"{stores[0].url}: data sets below it changed during each of {_LISTINGS} listings; merge "
        "once their writers have finished, or list the parts to merge"
    )
    raise ResumeError(msg)


def _without_joined(parts: list[_Part]) -> list[_Part]:
    """Leave out indexes over others: what is below them speaks for itself, and may be newer."""
    folders = [f"{prefix}/" for prefix, _, _ in parts]

    def joins_others(prefix: str, table: ShardTable) -> bool:
        own = f"{prefix}/"
        below = tuple(folder for folder in folders if folder.startswith(own) and folder != own)
        names = table.basenames("raw")
        return bool(names and below) and all(f"{own}{name}".startswith(below) for name in names)

    return [part for part in parts if not joins_others(part[0], part[1])]


def _stores(target: Target, timeout: float, options: StorageOptions | None) -> list[Store]:
    """Return the stores that a target names; the options are those of its URL."""
    if isinstance(target, tuple):
        folder, url = target
        stores = [open_store(folder), open_store(url, options)]
    else:
        stores = [open_store(target, options)]
    return [with_timeout(store, timeout) for store in stores]


def _listings(stores: Sequence[Store]) -> list[_Listing]:
    """List the stores, up to the first that has indexes in sub-folders."""
    found: list[_Listing] = []
    for store in stores:
        listing = _Listing(store.url, {}, set(), set())
        for info in store.list():
            folder, _, name = info.key.rpartition("/")
            if f"/{JOURNAL}/" in info.key:
                listing.journals.add(info.key.partition(f"/{JOURNAL}/")[0])
            elif folder and name == INDEX:
                listing.indexes[info.key] = info.etag
            elif folder and _SHARD.fullmatch(name):
                listing.shards.add(info.key)
        indexed = {key.removesuffix(f"/{INDEX}") for key in listing.indexes}
        loose = {key for key in listing.shards if key.rpartition("/")[0] not in indexed}
        found.append(listing._replace(journals=listing.journals - indexed, shards=loose))
        if listing.indexes:
            break
    return found


def _refuse_unfinished(listings: Sequence[_Listing]) -> None:
    """Raise `ResumeError` if a part is not finished: its samples would be missing silently."""
    for listing in listings:
        if listing.journals:
            raise _unfinished(listing.url, listing.journals)


def _refuse_without_index(listing: _Listing, parts: Sequence[_Part]) -> None:
    """Raise `ResumeError` if a folder has shards that no index names."""
    if not listing.shards:
        return
    named = {
        f"{prefix}/{name}"
        for prefix, table, _ in parts
        for role in ROLES
        for name in table.basenames(role)
    }
    folders = {key.rpartition("/")[0] for key in listing.shards - named}
    if folders:
        raise _unfinished(listing.url, folders)


def _unfinished(url: str, folders: set[str]) -> ResumeError:
    shown = ", ".join(sorted(folders)[:8]) + (", …" if len(folders) > 8 else "")  # noqa: PLR2004
    return ResumeError(
        f"{url}: {len(folders)} part(s) are not finished: {shown}. "
        "Finish them with resume=True, or list the parts to merge"
    )


def _refuse_own_shards(stores: Sequence[Store]) -> None:
    """Raise `OutputNotEmptyError` if the index to be replaced names shards beside itself."""
    for store in stores:
        try:
            table = parse_index(_got(store, INDEX), f"{store.url}/{INDEX}")
        except ObjectNotFoundError:
            continue
        own = [name for name in table.basenames("raw") if "/" not in name]
        if own:
            msg = (
                f"{store.url}/{INDEX} belongs to {len(own)} shards of its own, such as {own[0]}, "
                "which a merge would drop; move them into a folder beside the other parts first"
            )
            raise OutputNotEmptyError(msg)


def _relative(item: Target, root: Target) -> str:
    """Return the key below `root` of a listed index."""
    items = item if isinstance(item, tuple) else (item,)
    roots = root if isinstance(root, tuple) else (root,)
    for one in items:
        for base in roots:
            key = _key_below(open_store(base), open_store(one))
            if key is not None:
                return key if key.endswith(f"/{INDEX}") else f"{key}/{INDEX}"
    msg = (
        f"{items[0]!s} does not lie in a folder below {roots[0]!s}, so an index there cannot "
        "name its shards"
    )
    raise SchemaError(msg)


def _key_below(root: Store, store: Store) -> str | None:
    """Return the key in `root` of the place that `store` names, None if it is not below it."""
    if isinstance(root, LocalStore) and isinstance(store, LocalStore):
        below = store.path.is_relative_to(root.path)
        key = store.path.relative_to(root.path).as_posix() if below else ""
    else:
        lead = root.url.rstrip("/") + "/"
        key = store.url.removeprefix(lead).rstrip("/") if store.url.startswith(lead) else ""
    return None if key in {"", ".", INDEX} else key


def _got(store: Store, key: str) -> bytes:
    """Return an object, asked for again where that may help."""
    return RequestPolicy().call(partial(store.get, key, max_bytes=MAX_INDEX_BYTES))


def _table(stores: Sequence[Store], key: str) -> ShardTable:
    for store in stores:
        try:
            return parse_index(_got(store, key), f"{store.url}/{key}")
        except ObjectNotFoundError:
            continue
    msg = f"{stores[0].url}/{key}: no index there; did that part's writer finish?"
    raise IndexMissingError(msg)


def _sums(stores: Sequence[Store], key: str) -> dict[str, str]:
    for store in stores:
        try:
            return parse_sums(_got(store, key.removesuffix(INDEX) + SUMS))
        except ObjectNotFoundError:
            continue
    return {}
