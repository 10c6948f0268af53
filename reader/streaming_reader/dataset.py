"""The data set that a trainer iterates over or indexes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from streaming_core._arguments import checked, unexpected
from streaming_core._world import World, detect_world
from streaming_core.errors import SchemaError
from streaming_reader._access import checked_ids, each_of, sample_at, select
from streaming_reader._batch import batched_rows
from streaming_reader._divider import find_divider
from streaming_reader._epochs import Epochs
from streaming_reader._feed import Feed, decode_as, decode_list
from streaming_reader._options import KeptOptions
from streaming_reader._order import OrderConfig
from streaming_reader._pipeline import Assembly, Transforms, begin_samples
from streaming_reader._setup import chosen_streams, open_streams, order_arrays, settle_weights
from streaming_reader._surface import Surface
from streaming_reader.stream import StreamDefaults

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._store import StorageOptions
    from streaming_reader._batch import BatchFormat, RaggedForm
    from streaming_reader._divider import Divider
    from streaming_reader.stream import Stream

__all__ = ["StreamingDataset"]

_AHEAD_BATCHES = 8
_AHEAD_SAMPLES = 64


class StreamingDataset(Surface):
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
        sampling_method: Any = "balanced",  # noqa: ANN401 - checked by OrderConfig
        sampling_granularity: int = 1,
        partition_algo: Any = "relaxed",  # noqa: ANN401 - checked by OrderConfig
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: Any = "py1e",  # noqa: ANN401 - checked by OrderConfig
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        batching_method: Any = "random",  # noqa: ANN401 - checked by OrderConfig
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
        self.transforms = transforms
        """What becomes of rows and batches on their way."""
        self.predownload = predownload
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
        self._world = world
        replication = given["replication"]
        self.world.replicated(replication)  # says at once if that cannot be
        self.streams = chosen_streams(streams, defaults, given["stream_name"], stream_config)
        """The streams, with the weights that came out."""
        self._catalogue = open_streams(
            self.streams,
            cache_limit=given["cache_limit"],
            allow_unsafe=given["allow_unsafe_types"],
        )
        weights = settle_weights(
            self.streams,
            self._catalogue,
            epoch_size=given["epoch_size"],
            seed=order.shuffle_seed,
        )
        arrays = order_arrays(self.streams)
        size = None if batch_size is None else order.batch_size
        self._epochs = Epochs(self._catalogue, weights, order, arrays, replication, size)
        self._divider: Divider | None = None  # as a worker is told that cannot find out

    # --- who and how much -------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many samples an epoch has for each rank, some of which may come twice."""
        return self._epochs.length(self.world, self._divider or find_divider())

    @property
    def batch_size(self) -> int | None:
        """Samples of a batch of one rank, or None if that is left to the loader."""
        return self._epochs.batch_size

    @property
    def replication(self) -> int | None:
        """How many consecutive ranks are given the same samples; None means one."""
        return self._epochs.replication

    def __getstate__(self) -> dict[str, Any]:
        """Send what a worker needs, who we are included: it may not be able to find out."""
        found = {"_world": self._world or detect_world(), "_divider": find_divider()}
        return {**self.__dict__, **found}

    # --- iteration --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin the next epoch, or the one that was loaded, and yield this worker's samples of it.

        Raises:
            SchemaError: Nobody gave a batch size, which the order of samples depends on.
        """
        feed, place = self._begin(None)
        own = self._own_items
        return begin_samples(
            lambda skip: self._samples(feed(skip), own=own), place, self.transforms
        )

    def _samples(self, feed: Feed, *, own: bool) -> Generator[dict[str, Any]]:
        with feed:
            if not own:
                yield from feed.samples()
                return
            for number in feed.ids():  # `map` would take a StopIteration in there for the end
                yield feed.use(self.__getitem__, number)

    @property
    def _own_items(self) -> bool:
        """Whether a subclass makes samples of its own, which iterating must give then."""
        own = type(self)
        return (
            own.__getitem__ is not StreamingDataset.__getitem__
            or own.get_item is not StreamingDataset.get_item
        )

    @property
    def iterates_itself(self) -> bool:
        """Whether a subclass has an `__iter__` of its own, which may begin late."""
        return type(self).__iter__ is not StreamingDataset.__iter__

    @property
    def _makes_rows(self) -> bool:
        """Whether a subclass or transforms make rows of their own, with whatever columns."""
        changed = self.transforms is not None and self.transforms.changes_rows
        return changed or self._own_items or self.iterates_itself

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
        counted = self.counted_batches(
            batch_size, batch_format=batch_format, ragged=ragged, drop_last=drop_last
        )
        return (batch for batch, _ in counted)

    def counted_batches(
        self,
        batch_size: int | None = None,
        *,
        batch_format: BatchFormat = "numpy",
        ragged: RaggedForm = "list",
        drop_last: bool = False,
        lent: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> Iterator[tuple[Any, int]]:
        """Return what `batches` does, each with the number of samples that were read for it.

        With `lent`, large bytes may come as views that are valid until the next batch. With
        `collate`, that makes the batch from a list of rows.
        """
        given = checked({"batch_size": batch_size, "drop_last": drop_last})
        drop_last = given["drop_last"]
        make = Assembly(batch_format, ragged, collate, self.transforms)
        size = given["batch_size"] or self.batch_size
        if self._own_items or self.iterates_itself:
            rows = batched_rows(self._own_samples(size), size or 1, drop_last=drop_last)
            return ((make.of_rows(some), len(some)) for some in rows)
        if collate is None:
            self._refuse_mixed(batch_format, size or 1)
        feed, _ = self._begin(size)
        return make.batches(feed(0), size or 1, drop_last=drop_last, lent=lent)

    def _own_samples(self, size: int | None) -> Iterator[Any]:
        """Return what a subclass makes of samples, before the transforms."""
        if self.transforms is None:
            return iter(self)
        if self.iterates_itself:
            msg = f"{type(self).__name__} has an __iter__ of its own: transform the samples there"
            raise SchemaError(msg)
        return self._samples(self._begin(size)[0](0), own=True)

    def announce(self, iteration: str) -> None:
        """Settle now which epoch, from where on, the iteration of that name gives.

        For loaders, whose workers begin it later.
        """
        self._epochs.shared.announce(iteration)

    def _begin(self, batch_size: int | None) -> tuple[Callable[[int], Feed], dict[str, Any]]:
        """Begin an epoch at once, so that it counts even if nobody takes its first sample.

        Returns what gives its samples without so many of the first ones, and what names them.
        """
        world = self.world
        size = self.batch_size or batch_size
        if size is None:
            msg = (
                "batch_size is needed to iterate, because the order of samples depends on it; give "
                "StreamingDataset the batch_size of the loader"
            )
            raise SchemaError(msg)
        share, begun = self._epochs.begin(world, size, self._divider or find_divider())
        ahead = self.predownload
        if ahead is None:
            ahead = _AHEAD_BATCHES * size if self.batch_size else _AHEAD_SAMPLES

        def feed(skip: int) -> Feed:
            then = partial(self._epochs.prepare, world, begun.epoch + 1, size)
            return Feed(
                self._catalogue,
                share.windows(then, skip=skip),
                ahead=ahead,
                timeout=self._catalogue.timeout,
                counters=self._epochs.shared.counters(world.worker),
                outlook=self._epochs.outlook(share),
            )

        return feed, {"epoch": begun.epoch, "from_sample": begun.sample, **share.place()}

    # --- any sample -------------------------------------------------------------------------------

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - a sample, or nested lists of samples
        """Return a sample by its number through all streams, fetching its shard if it must.

        Slices, arrays and nested lists of numbers give lists of the same shape; negative numbers
        count from the end.
        """
        if type(at) is int and 0 <= at < self._catalogue.num_samples:
            return self.get_item(at)
        return select(at, self._catalogue.num_samples, self.__getitem__, self._rows)

    def get_item(self, sample_id: int, retry: int = 7) -> dict[str, Any]:
        """Return a sample; `retry` is taken for compatibility, downloads are retried anyway."""
        del retry
        catalogue = self._catalogue
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
        flat = checked_ids(ids, self._catalogue.num_samples)
        if self._own_items:
            return Assembly(batch_format, ragged).of_rows(self._rows(flat))
        return decode_as(self._catalogue, flat, batch_format, ragged)

    def _rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        if self._own_items:
            return each_of(self.__getitem__, ids)
        return decode_list(self._catalogue, ids)
