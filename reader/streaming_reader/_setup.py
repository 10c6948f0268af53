"""From what a user gives to the streams of a data set, opened."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from streaming_core._arguments import checked, unexpected
from streaming_core._format._mds import refuse_unsafe
from streaming_core._store import Store, is_final
from streaming_core._workers import Workers
from streaming_core.errors import SchemaError, StoreError, StreamsError
from streaming_reader._cache import (
    CacheGroup,
    CacheSettings,
    NodeRateLimiter,
    ShardCache,
    SharedArrays,
)
from streaming_reader._cache_home import user_cache
from streaming_reader._catalogue import Catalogue
from streaming_reader._opening import open_index
from streaming_reader._order import ArrayMaker, Weight, Weights, in_memory, resolve_weights
from streaming_reader._ranged import Origin
from streaming_reader.stream import Stream, streams_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._index import ShardTable
    from streaming_reader._cache import Maker
    from streaming_reader.stream import ResolvedStream, StreamDefaults

__all__ = ["OrderArrays", "chosen_streams", "open_streams", "order_arrays", "settle_weights"]


class _Opened(NamedTuple):
    """One stream, ready to be read."""

    table: ShardTable
    remote: Store | Maker | None
    folder: str
    """Where its files are kept, or lie."""
    sums: Mapping[str, str]


_AT_A_TIME = 16
_MOST_SHOWN = 8
_SHARE_FROM = 1 << 20
"""Numbers from which on an order is computed once per node; below, faster than a file."""


def chosen_streams(
    streams: Sequence[Stream] | None,
    defaults: StreamDefaults,
    kind: str,
    config: Mapping[str, Any] | None,
) -> list[Stream]:
    """Return the streams with their defaults, or the one of that `kind` that these describe.

    Streams that were given are copied, so that another data set may use them as they are.

    Raises `SchemaError` if both are given, or neither.
    """
    if not _is_given(streams):
        config = checked({"stream_config": config})["stream_config"]
        made = streams_registry.find(kind)
        try:
            streams = [made(**(config or {}))]
        except TypeError as error:
            if isinstance(error, SchemaError):
                raise
            msg = f"stream_config: the stream {kind!r} cannot be made of it: {error}"
            raise SchemaError(msg) from error
    elif defaults.remote is not None or defaults.local is not None:
        msg = "give either streams, or remote and local of a single one"
        raise SchemaError(msg)
    given: object = streams
    listed = cast("Sequence[object]", given) if isinstance(given, Sequence) else [None]
    if not all(isinstance(each, Stream) for each in listed):
        raise unexpected(streams, "streams", "a list of Stream")
    return [copy(stream).apply_default(defaults) for stream in cast("list[Stream]", listed)]


def _is_given(streams: object) -> bool:
    """Whether there are streams: an empty list says nothing, as in a configuration without any."""
    return streams is not None and streams not in ([], ())


def open_streams(
    streams: Sequence[ResolvedStream], *, cache_limit: int | None, allow_unsafe: bool
) -> Catalogue:
    """Read all indexes, several at a time, and get the caches ready; nothing else is fetched."""
    _refuse_shared_folders(streams)
    group = CacheGroup(cache_limit) if cache_limit is not None else None
    limiters = _limiters(streams)
    opened = _opened(streams, limiters)
    caches: list[ShardCache] = []
    origins: list[Origin] = []
    for stream, (table, remote, folder, sums), limiter in zip(
        streams, opened, limiters, strict=True
    ):
        settings = CacheSettings(
            keep_zip=stream.settings.keep_zip,
            validate_hash=stream.settings.validate_hash,
            tries=stream.settings.download_retry + 1,
            timeout=stream.settings.download_timeout,
            allow_unsafe=allow_unsafe,
        )
        if not allow_unsafe:
            for schema in table.schemas:
                refuse_unsafe(schema, stream.url or str(stream.folder))
        caches.append(
            ShardCache(table, remote, folder, settings, group, sums=sums, limiter=limiter)
        )
        store = remote if isinstance(remote, Store) else None
        origins.append(Origin(table, store, settings, limiter=limiter))
    # A little longer than what fetches a shard, whose error says more.
    timeout = max(cache.stall_seconds for cache in caches)
    timeout += max(stream.settings.download_timeout for stream in streams)
    tables = [one.table for one in opened]
    return Catalogue(tables, caches, timeout=timeout, origins=origins)


def _limiters(streams: Sequence[ResolvedStream]) -> list[NodeRateLimiter]:
    """Return the limiter of each stream's remote; those of one host share that of the first."""
    known: dict[str, NodeRateLimiter] = {}
    own = [NodeRateLimiter.of(stream.folder) for stream in streams]
    hosts = ["/".join((stream.url or "").split("/", 3)[:3]) for stream in streams]
    return [known.setdefault(host, limiter) for host, limiter in zip(hosts, own, strict=True)]


def _opened(
    streams: Sequence[ResolvedStream], limiters: Sequence[NodeRateLimiter]
) -> list[_Opened]:
    """Open all streams, several at a time; raises what became of those that cannot be opened."""
    with (
        Workers(_AT_A_TIME, "streaming-request") as requests,
        Workers(_AT_A_TIME, "streaming-open") as openers,
    ):
        if len(streams) == 1:
            return [_open(streams[0], limiters[0], requests)]
        hopeless: list[StoreError] = []

        def open_one(stream: ResolvedStream, limiter: NodeRateLimiter) -> _Opened:
            try:
                return _open(stream, limiter, requests)
            except StoreError as error:
                # The store did not even answer, after all tries: others would wait in vain too.
                if not is_final(error):
                    hopeless.append(error)
                raise

        tasks = [
            openers.submit(partial(open_one, stream, limiter))
            for stream, limiter in zip(streams, limiters, strict=True)
        ]
        for task in tasks:
            while not hopeless and not task.wait():
                pass
        openers.stop()
    failures = [task.error for task in tasks if task.error is not None]
    errors = [error for error in failures if not isinstance(error, CancelledError)]
    if errors:
        raise _joined(errors, len(failures) - len(errors), len(streams))
    return [task.result() for task in tasks]


def _open(stream: ResolvedStream, limiter: NodeRateLimiter, requests: Workers) -> _Opened:
    reading = stream.reading
    if reading is not None:
        # Whoever reads shards need not wait for all that formats take.
        from streaming_reader._virtual import open_virtual  # noqa: PLC0415

        virtual = open_virtual(stream, reading)
        return _Opened(virtual.table, virtual.decoder, virtual.folder, {})
    table, sums, remote = open_index(stream, limiter, requests)
    return _Opened(table, remote, str(stream.folder), sums)


def _joined(errors: Sequence[BaseException], untried: int, total: int) -> BaseException:
    """Return one error for all streams that cannot be opened."""
    other = next((error for error in errors if not isinstance(error, Exception)), None)
    if other is not None or len(errors) == 1:
        return other or errors[0]
    shown = [f"  {error}" for error in errors[:_MOST_SHOWN]]
    if len(errors) > _MOST_SHOWN:
        shown.append(f"  … and {len(errors) - _MOST_SHOWN} more")
    left = f", and {untried} were not tried" if untried else ""
    head = f"{len(errors)} of {total} streams cannot be opened{left}:"
    found = tuple(error for error in errors if isinstance(error, Exception))
    return StreamsError("\n".join([head, *shown]), errors=found)


def _refuse_shared_folders(streams: Sequence[ResolvedStream]) -> None:
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


def order_arrays(streams: Sequence[ResolvedStream]) -> OrderArrays:
    """Return what keeps orders as long as the data: beside the first cache, else for the user."""
    first = next((stream for stream in streams if stream.url is not None), None)
    folder = user_cache(str(streams[0].folder.absolute())) if first is None else first.folder
    return OrderArrays(SharedArrays(folder))


def settle_weights(
    streams: Sequence[Stream], catalogue: Catalogue, *, epoch_size: int | None, seed: int
) -> Weights:
    """Return how much of each stream an epoch takes, and note that on the streams."""
    names = ("proportion", "repeat", "choose")  # which may have been set since the stream was made
    wanted = [Weight(**checked({name: getattr(one, name) for name in names})) for one in streams]
    weights = resolve_weights(catalogue.samples_per_stream, wanted, epoch_size, seed)
    for at, stream in enumerate(streams):
        stream.proportion = float(weights.proportion[at])
        stream.repeat = float(weights.repeat[at])
        stream.choose = int(weights.choose[at])
    return weights
