"""The data set that a trainer iterates over or indexes."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from streaming_core._arguments import checked, suggests, unexpected
from streaming_core._attributes import engine_of, forget_assigned
from streaming_core._world import World, detect_world
from streaming_reader._access import checked_ids, sample_at, select
from streaming_reader._dataset_info import DatasetInfo
from streaming_reader._engine import Engine
from streaming_reader._epochs import Epochs
from streaming_reader._feed import decode_as
from streaming_reader._options import KeptOptions
from streaming_reader._order import OrderConfig
from streaming_reader._pipeline import Assembly, Transforms, begin_samples
from streaming_reader._setup import chosen_streams, open_streams, order_arrays, settle_weights
from streaming_reader._torch_base import join_torch
from streaming_reader.stream import StreamDefaults

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from streaming_core._store import StorageOptions
    from streaming_reader._batch import BatchFormat, RaggedForm
    from streaming_reader._order import (
        BatchingMethod,
        PartitionAlgo,
        SamplingMethod,
        ShuffleAlgo,
    )
    from streaming_reader.stream import ResolvedStream, Stream

__all__ = ["StreamingDataset"]

_log = logging.getLogger("streaming_core.reader")
_USED_RESOLVED = ("shuffle_block_size", "num_canonical_nodes", "shuffle_seed")
"""Settings that may be used as others than were given."""


class StreamingDataset(DatasetInfo):
    """Samples of one or several streams, in an order that any number of ranks and workers share.

    Iterating gives this rank's (and, in a DataLoader's worker, this worker's) samples of the next
    epoch; brackets give any sample. Ranks never wait for each other: who they are is taken from
    `world`, or from what their launcher left in the environment.

    Args:
        streams: What to mix; or give `remote`, `local` and `split` of a single one.
        remote: Where the shards lie: a folder or URL. None reads `local` in place.
        local: Where they are kept; see `Stream`.
        split: A sub-folder of both, such as `train`.
        download_retry: How often a failed download is tried again.
        download_timeout: Seconds after which a request that brings nothing has failed.
        validate_hash: A hash of the index that every fetched file must match.
        keep_zip: Keep compressed files beside the decompressed ones.
        storage_options: What the remote's store takes beyond the URL; see `Stream`.
        epoch_size: Samples of an epoch over all ranks, as a number or a text such as `100k`; None
            for all, or for what the streams' weights give.
        predownload: How many samples ahead of the last one given a worker fetches; eight batches
            if None.
        cache_limit: Bytes, or a text such as `100gb`, that shards on this machine may take.
        sampling_method: `balanced` draws the part of a stream that is used anew each epoch, `fixed`
            keeps it.
        sampling_granularity: How many samples of a shard are drawn together.
        partition_algo: `relaxed` lets a run go on with other numbers of nodes than `orig`.
        num_canonical_nodes: In how many pieces the order is made.
        batch_size: Samples of a batch of one rank; it must be the loader's.
        shuffle: Whether to shuffle.
        shuffle_algo: `py1e` and the other algorithms of the format's origin, or `windowed`, which
            starts at once at any size.
        shuffle_seed: What the order depends on, besides data and epoch.
        shuffle_block_size: How far a sample may travel.
        batching_method: `random`, `stratified`, `per_stream` or `device_per_stream`.
        allow_unsafe_types: Allow columns whose decoding can run code (`pkl`).
        replication: How many consecutive ranks are given the same samples.
        stream_name: The kind of stream made of `remote`, `local` and `split`.
        stream_config: What else that kind takes.
        world: Who this process is, where the environment does not tell.
        transforms: What becomes of rows and batches on their way, in the process that reads them.
            Iterating gives what they make of samples, brackets and `take` the samples themselves.

    Example:
        >>> import tempfile
        >>> from streaming_core import MDSWriter, StreamingDataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...         for x in range(6):
        ...             writer.write({"x": x})
        ...     dataset = StreamingDataset(local=folder, batch_size=2, shuffle=True)
        ...     sorted(sample["x"] for sample in dataset), dataset[-1]
        ([0, 1, 2, 3, 4, 5], {'x': 5})
    """

    @suggests()
    def __init__(  # noqa: PLR0913 - the reference's arguments
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | os.PathLike[str] | None = None,
        local: str | os.PathLike[str] | None = None,
        split: str | None = None,
        download_retry: int = 2,
        download_timeout: float = 60,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        storage_options: StorageOptions | None = None,
        epoch_size: int | str | None = None,
        predownload: int | None = None,
        cache_limit: int | str | None = None,
        sampling_method: SamplingMethod = "balanced",
        sampling_granularity: int = 1,
        partition_algo: PartitionAlgo = "relaxed",
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: ShuffleAlgo = "py1e",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        batching_method: BatchingMethod = "random",
        allow_unsafe_types: bool = False,
        replication: int | None = None,
        stream_name: str = "stream",
        stream_config: Mapping[str, Any] | None = None,
        world: World | None = None,
        transforms: Transforms | None = None,
    ) -> None:
        """Read the indexes; blocks for that alone, and waits for no other process."""
        given = checked(
            {
                "epoch_size": epoch_size,
                "predownload": predownload,
                "cache_limit": cache_limit,
                "allow_unsafe_types": allow_unsafe_types,
                "replication": replication,
                "stream_name": stream_name,
            }
        )
        objects: dict[type, Any] = {World: world, Transforms: transforms}
        for kind, value in objects.items():
            if value is not None and not isinstance(value, kind):
                raise unexpected(value, kind.__name__.lower(), f"a {kind.__name__}")
        defaults = StreamDefaults(
            remote=cast("str | None", remote),
            local=cast("str | None", local),
            split=split,
            download_retry=download_retry,
            download_timeout=download_timeout,
            validate_hash=validate_hash,
            keep_zip=keep_zip,
            storage_options=KeptOptions.of(storage_options),
        )
        order = OrderConfig(
            batch_size=1 if batch_size is None else batch_size,
            shuffle=shuffle,
            shuffle_algo=shuffle_algo,
            shuffle_seed=shuffle_seed,
            shuffle_block_size=shuffle_block_size,
            num_canonical_nodes=num_canonical_nodes,
            sampling_method=sampling_method,
            sampling_granularity=sampling_granularity,
            partition_algo=partition_algo,
            batching_method=batching_method,
        )
        replication = given["replication"]
        (world or detect_world()).replicated(replication)  # says at once if that cannot be
        chosen = chosen_streams(streams, defaults, given["stream_name"], stream_config)
        sources: list[ResolvedStream] = [engine_of(stream) for stream in chosen]
        catalogue = open_streams(
            sources, cache_limit=given["cache_limit"], allow_unsafe=given["allow_unsafe_types"]
        )
        weights = settle_weights(
            chosen, catalogue, epoch_size=given["epoch_size"], seed=order.shuffle_seed
        )
        arrays = order_arrays(sources)
        size = None if batch_size is None else order.batch_size
        ahead = given["predownload"]
        if size is not None and ahead is not None and ahead < size:
            _log.warning(
                "predownload=%d is less than batch_size=%d: shards are not fetched before a batch "
                "waits for them",
                ahead,
                size,
            )
        join_torch()
        forget_assigned(self)
        own = type(self)
        self._streaming_engine = Engine(
            chosen,
            sources,
            catalogue,
            Epochs(catalogue, weights, order, arrays, replication, size),
            transforms,
            world,
            {**given, **{name: getattr(order, name) for name in _USED_RESOLVED}},
            overrides_items=own.__getitem__ is not StreamingDataset.__getitem__
            or own.get_item is not StreamingDataset.get_item,
            overrides_iter=own.__iter__ is not StreamingDataset.__iter__,
        )

    # --- iteration --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin the next epoch, or the one that was loaded, and yield this worker's samples of it.

        Raises:
            SchemaError: Nobody gave a batch size, which the order of samples depends on.
        """
        engine = self._streaming_engine
        begun = engine.begin(None)
        return begin_samples(partial(engine.samples, self, begun), begun.place, engine.transforms)

    def batches(
        self,
        batch_size: int | None = None,
        *,
        batch_format: BatchFormat = "numpy",
        ragged: RaggedForm = "list",
        drop_last: bool = False,
    ) -> Iterator[Any]:
        """Begin the next epoch, as iterating does, and yield it in batches of whole columns.

        Args:
            batch_size: Samples of a batch; the data set's if None.
            batch_format: `numpy`, `torch`, `jax`, `arrow`, `dict` or `rows`: what samples become.
            ragged: What values of different lengths become: a `list`, `padded` with their lengths,
                one array of all with `offsets`, or `arrow` arrays.
            drop_last: Leave out a last batch that is smaller.
        """
        engine = self._streaming_engine
        counted = engine.counted_batches(
            self, batch_size, batch_format=batch_format, ragged=ragged, drop_last=drop_last
        )
        if drop_last:
            engine.warn_if_short(batch_size or engine.epochs.batch_size or 1)
        return (batch for batch, _ in counted)

    # --- any sample -------------------------------------------------------------------------------

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - a sample, or nested lists of samples
        """Return a sample by its number through all streams, fetching its shard if it must.

        Slices, arrays and nested lists of numbers give lists of the same shape; negative numbers
        count from the end.
        """
        size = self._streaming_engine.catalogue.num_samples
        if type(at) is int and 0 <= at < size:
            return self.get_item(at)
        return select(at, size, self.__getitem__, partial(self._streaming_engine.rows, self))

    def get_item(self, sample_id: int, retry: int = 7) -> dict[str, Any]:
        """Return a sample; `retry` is taken for compatibility, downloads are retried anyway."""
        del retry
        catalogue = self._streaming_engine.catalogue
        shard, row = catalogue.find(sample_at(sample_id, catalogue.num_samples))
        return catalogue.sample(shard, row)

    def take(
        self,
        ids: Any,  # noqa: ANN401 - arrays and lists
        *,
        batch_format: BatchFormat = "numpy",
        ragged: RaggedForm = "list",
    ) -> Any:  # noqa: ANN401 - the format's type
        """Return the samples `ids` in one batch of columns; see `batches` for the formats."""
        engine = self._streaming_engine
        flat = checked_ids(ids, engine.catalogue.num_samples)
        if engine.overrides_items:
            return Assembly(batch_format, ragged).of_rows(engine.rows(self, flat))
        return decode_as(engine.catalogue, flat, batch_format, ragged)
