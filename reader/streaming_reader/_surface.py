"""What a data set tells of itself and of its cache; iteration and access stand on top of it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, overload

from streaming_core._arguments import checked, unexpected
from streaming_core._index import require_same_columns
from streaming_core._world import World, detect_world, torch_worker
from streaming_core.errors import StreamingError
from streaming_reader._order import resample_streams
from streaming_reader._threads import start_thread
from streaming_reader.stream import is_url

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._index import ShardInfo
    from streaming_reader._batch import BatchFormat
    from streaming_reader._cache import ShardCache
    from streaming_reader._catalogue import Catalogue
    from streaming_reader._epochs import Epochs
    from streaming_reader.stream import Stream

__all__ = ["Surface"]

_log = logging.getLogger("streaming_core.reader")


class _Infos(Sequence["ShardInfo"]):
    """All shards as the indexes describe them, made when looked at."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __len__(self) -> int:
        return self._catalogue.num_shards

    @overload
    def __getitem__(self, at: int) -> ShardInfo: ...
    @overload
    def __getitem__(self, at: slice) -> list[ShardInfo]: ...
    def __getitem__(self, at: int | slice) -> ShardInfo | list[ShardInfo]:
        if isinstance(at, slice):
            return [self._catalogue.info(i) for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            msg = f"shard {at} is out of range: there are {len(self)}, counted from 0"
            raise IndexError(msg)
        return self._catalogue.info(at % len(self))


class _Spanner:
    """From a sample's number to its shard and its row in there."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __getitem__(self, sample: int) -> tuple[int, int]:
        if not 0 <= sample < self._catalogue.num_samples:
            msg = f"sample {sample} is out of range: there are {self._catalogue.num_samples}"
            raise IndexError(msg)
        return self._catalogue.find(sample)


def _quietly(cache: ShardCache, shard: int) -> None:
    try:
        cache.prepare(shard)
    except StreamingError as error:
        _log.warning("fetching a shard in the background failed: %s", error)


if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    _Base = IterableDataset[dict[str, Any]]
else:
    # Torch takes the class for one of its own without being loaded; see `StreamingDataset`.
    _Base = object


class Surface(_Base):
    """Numbers, shards and cache of a data set."""

    streams: list[Stream]
    _catalogue: Catalogue
    _epochs: Epochs
    _world: World | None
    _predownload: int | None

    @property  # type: ignore[misc]
    def __class__(self) -> type[Self]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class, which torch is told of when it first looks.

        A DataLoader that took this for a map would go through it in the wrong order without a word.
        Inheriting from torch's class, or registering there early, would load torch for those who do
        not use it.
        """
        torch: Any = sys.modules.get("torch.utils.data")
        if torch is not None and hasattr(torch, "IterableDataset"):
            torch.IterableDataset.register(Surface)
        return type(self)

    # --- settings ---------------------------------------------------------------------------------

    @property
    def predownload(self) -> int | None:
        """How many samples ahead of the last one given a worker fetches; None: the default.

        The next iteration uses what is set.
        """
        return self._predownload

    @predownload.setter
    def predownload(self, predownload: int | None) -> None:
        self._predownload = checked({"predownload": predownload})["predownload"]

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of samples of all streams, each counted once."""
        return self._catalogue.num_samples

    @property
    def num_samples(self) -> int:
        """Number of samples of all streams, each counted once."""
        return self._catalogue.num_samples

    @property
    def num_shards(self) -> int:
        """Number of shards of all streams."""
        return self._catalogue.num_shards

    @property
    def num_streams(self) -> int:
        """Number of streams."""
        return len(self._catalogue.tables)

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch over all ranks."""
        return self._epochs.weights.epoch_size

    @property
    def length(self) -> int:
        """Samples of an epoch for each rank."""
        return len(self)

    def __len__(self) -> int:
        """Return the samples of an epoch for each rank."""
        raise NotImplementedError

    @property
    def shards(self) -> Sequence[ShardInfo]:
        """What the indexes say of each shard."""
        return _Infos(self._catalogue)

    @property
    def spanner(self) -> _Spanner:
        """Gives shard and row of a sample by its number."""
        return _Spanner(self._catalogue)

    @property
    def stream_per_shard(self) -> NDArray[np.int64]:
        """The stream that each shard is of."""
        return self._catalogue.stream_per_shard

    @property
    def shards_per_stream(self) -> NDArray[np.int64]:
        """Number of shards of each stream."""
        return self._catalogue.shards_per_stream

    @property
    def shard_offset_per_stream(self) -> NDArray[np.int64]:
        """Number of each stream's first shard."""
        return self._catalogue.shard_offsets[:-1]

    @property
    def samples_per_stream(self) -> NDArray[np.int64]:
        """Number of samples of each stream."""
        return self._catalogue.samples_per_stream

    @property
    def sample_offset_per_stream(self) -> NDArray[np.int64]:
        """Number of each stream's first sample."""
        return self._catalogue.sample_offsets[:-1]

    @property
    def samples_per_shard(self) -> NDArray[np.int64]:
        """Number of samples of each shard."""
        return self._catalogue.samples_per_shard

    @property
    def sample_offset_per_shard(self) -> NDArray[np.int64]:
        """Number of each shard's first sample."""
        return self._catalogue.shard_starts[:-1]

    # --- epochs -----------------------------------------------------------------------------------

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iteration gives; set it to begin another one."""
        return self._epochs.shared.next_epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        self._epochs.shared.jump(checked({"epoch": epoch})["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin `epoch`, in workers that go on as well.

        Trainers that count epochs call this before each, which changes nothing, as epochs advance
        by themselves; any other number begins that epoch. But after a checkpoint was loaded, an
        earlier epoch than is to come is not begun: one who counts from 0 again in a new process
        does not undo it. Set `next_epoch` to go back even then.
        """
        shared = self._epochs.shared
        epoch = checked({"epoch": epoch})["epoch"]
        coming = shared.next_epoch
        is_other = epoch > coming or (epoch < coming and not shared.is_resumed)
        if is_other or not shared.is_placed:
            shared.jump(epoch)

    def resample_streams(
        self, epoch: int, stream_id: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sizes of the units that `epoch` shuffles, and the samples they hold, in order.

        With `stream_id`, those of one stream alone.
        """
        catalogue = self._catalogue
        sizes = [table.samples for table in catalogue.tables]
        epochs = self._epochs
        given = checked({"epoch": epoch, "stream_id": stream_id})
        stream = given["stream_id"]
        if stream is not None and stream >= len(sizes):
            raise unexpected(stream_id, "stream_id", f"at most {len(sizes) - 1}")
        return resample_streams(sizes, epochs.weights, epochs.order, given["epoch"], stream)

    @property
    def world(self) -> World:
        """Who this process is: as given, or as its launcher says now."""
        world = self._world or detect_world()
        worker = torch_worker()
        return world.for_worker(worker.worker, worker.workers) if worker else world

    # --- state ------------------------------------------------------------------------------------

    def state_dict(
        self,
        num_samples: int | None = None,
        from_beginning: bool = True,  # noqa: FBT001, FBT002 - the reference's signature
        *,
        finished: bool = False,
    ) -> dict[str, Any]:
        """Return a JSON-able checkpoint of the epoch that was begun last.

        Args:
            num_samples: Samples of all ranks that training has had; None if none since the epoch
                was begun or resumed.
            from_beginning: Whether they count from the epoch's beginning, not where it was resumed.
            finished: Whether the epoch is over, though samples may have been left out at its end.
        """
        given = {
            "num_samples": num_samples,
            "from_beginning": from_beginning,
            "finished": finished,
        }
        return self._epochs.state(self.world, **checked(given))

    def load_state_dict(self, obj: Mapping[str, Any]) -> None:
        """Let the next iteration go on where `obj`, a checkpoint of this data, was taken.

        It counts whatever was iterated or loaded before. A checkpoint at the end of an epoch goes
        on with the next one.

        Raises:
            CheckpointError: It belongs to other data or settings; says what differs.
        """
        self._epochs.load(self.world, obj)

    # --- counters ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Return what all workers of this rank have counted so far: samples, bytes, waits."""
        return self._epochs.shared.totals()

    @property
    def _makes_rows(self) -> bool:
        """Whether a subclass or transforms make rows of their own, with whatever columns."""
        raise NotImplementedError

    @property
    def _is_local(self) -> bool:
        """Whether all data lies in folders of this machine."""
        return not any(is_url(stream.url or "") for stream in self.streams)

    def _refuse_mixed(self, batch_format: BatchFormat, size: int) -> None:
        """Raise `SchemaError` if batches will have samples of several columns, but cannot.

        Only rows can; and where each batch is of one stream, others may have other columns.
        """
        if size == 1 or batch_format == "rows" or self._makes_rows:
            return
        catalogue, epochs = self._catalogue, self._epochs
        purpose = (
            "only samples of the same columns can form a batch of the format "
            f"{batch_format!r}. Take batch_format='rows', a transform of rows that makes them "
            "alike, or batching_method='per_stream' where the streams differ"
        )
        used = {
            f"stream {at} ({stream.url or stream.folder})": table
            for at, (stream, table) in enumerate(zip(self.streams, catalogue.tables, strict=True))
            if epochs.weights.choose[at]
        }
        if epochs.order.batching_method in {"random", "stratified"}:
            require_same_columns(used, purpose, batch_format)
        else:
            for name, table in used.items():
                require_same_columns({name: table}, purpose, batch_format)

    # --- cache ------------------------------------------------------------------------------------

    @property
    def cache_usage(self) -> int:
        """Bytes of the files that this machine holds of all streams."""
        return sum(cache.usage() for cache in self._catalogue.caches)

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:  # noqa: FBT001, FBT002 - the reference's signature
        """Fetch a shard if it is not here; without `blocking`, in the background."""
        given = checked({"shard_id": shard_id, "blocking": blocking})
        cache, number = self._catalogue.place(given["shard_id"])
        if given["blocking"]:
            cache.prepare(number)
        else:
            # An error shows again, and is raised, when the shard is used.
            start_thread(partial(_quietly, cache, number), "streaming-prepare")

    def evict_shard(self, shard_id: int) -> bool:
        """Remove a shard's files from this machine if they can be fetched again; tell whether."""
        cache, number = self._catalogue.place(checked({"shard_id": shard_id})["shard_id"])
        return cache.evict(number)

    def evict_coldest_shard(self) -> bool:
        """Remove the shard that was not used for longest; tell whether there was one."""
        return self._catalogue.evict_coldest()
