"""From what a user gives to the streams of a data set, opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streaming_core.errors import SchemaError
from streaming_reader._cache import CacheGroup, CacheSettings, ShardCache, SharedArrays
from streaming_reader._catalogue import Catalogue
from streaming_reader._opening import open_index
from streaming_reader._order import ArrayMaker, Weight, Weights, in_memory, resolve_weights
from streaming_reader.stream import user_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streaming_reader.stream import Stream

__all__ = ["OrderArrays", "open_streams", "order_arrays", "settle_weights"]

_AT_A_TIME = 16
_SHARE_FROM = 1 << 20
"""Numbers from which on an order is computed once per node; below, faster than a file."""


def open_streams(
    streams: Sequence[Stream], *, cache_limit: int | str | None, allow_unsafe: bool
) -> Catalogue:
    """Read all indexes, several at a time, and get the caches ready; nothing else is fetched."""
    if not streams:
        msg = "streams is an empty list; give at least one, or remote and local of a single one"
        raise SchemaError(msg)
    _refuse_shared_folders(streams)
    group = CacheGroup(cache_limit) if cache_limit is not None else None
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="streaming-open") as pool:
        opened = list(pool.map(open_index, streams))
    caches = [
        ShardCache(
            table,
            remote,
            stream.folder,
            sums=sums,
            settings=CacheSettings(
                keep_zip=stream.settings.keep_zip,
                validate_hash=stream.settings.validate_hash,
                tries=stream.settings.download_retry + 1,
                timeout=stream.settings.download_timeout,
                allow_unsafe=allow_unsafe,
            ),
            group=group,
        )
        for stream, (table, sums, remote) in zip(streams, opened, strict=True)
    ]
    timeout = max(
        stream.settings.download_timeout * (stream.settings.download_retry + 1)
        for stream in streams
    )
    return Catalogue([table for table, _, _ in opened], caches, timeout=timeout)


def _refuse_shared_folders(streams: Sequence[Stream]) -> None:
    """Two remotes in one folder would take each other's files for their own."""
    known: dict[str, str | None] = {}
    for stream in streams:
        folder = str(stream.folder.absolute())
        if known.setdefault(folder, stream.url) != stream.url:
            msg = (
                f"two streams with different remotes, {known[folder]!r} and {stream.url!r}, share "
                f"the folder {folder}; give each a local folder of its own"
            )
            raise SchemaError(msg)


class OrderArrays:
    """Keeps small orders in memory, and shares large ones with the other processes of the node."""

    def __init__(self, shared: ArrayMaker) -> None:
        """Have large ones made and shared by `shared`."""
        self._shared = shared
        self.shares = False
        """Whether an order was large, so far."""

    def __call__(
        self, key: str, count: int, make: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Return the array that `make` makes, or another process of this node has made."""
        if count < _SHARE_FROM:
            return in_memory(key, count, make)
        self.shares = True
        return self._shared(key, count, make)


def order_arrays(streams: Sequence[Stream]) -> OrderArrays:
    """Return what keeps orders as long as the data: beside the first cache, else for the user."""
    first = next((stream for stream in streams if stream.url is not None), None)
    folder = user_cache(str(streams[0].folder.absolute())) if first is None else first.folder
    return OrderArrays(SharedArrays(folder))


def settle_weights(
    streams: Sequence[Stream], catalogue: Catalogue, *, epoch_size: int | None, seed: int
) -> Weights:
    """Return how much of each stream an epoch takes, and note that on the streams."""
    wanted = [
        Weight(proportion=stream.proportion, repeat=stream.repeat, choose=stream.choose)
        for stream in streams
    ]
    weights = resolve_weights(catalogue.samples_per_stream, wanted, epoch_size, seed)
    for at, stream in enumerate(streams):
        stream.proportion = float(weights.proportion[at])
        stream.repeat = float(weights.repeat[at])
        stream.choose = int(weights.choose[at])
    return weights
