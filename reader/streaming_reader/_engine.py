"""What a dataset is made of, where no attribute of a subclass can be in its way."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from streaming_core._arguments import checked
from streaming_core._index import require_same_columns
from streaming_core._world import World, detect_world, torch_worker
from streaming_core.errors import SchemaError
from streaming_reader._access import each_of
from streaming_reader._batch import batched_rows
from streaming_reader._cache_home import is_url
from streaming_reader._divider import find_divider
from streaming_reader._feed import Feed, decode_list
from streaming_reader._pipeline import Assembly

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streaming_reader._batch import BatchFormat, RaggedForm
    from streaming_reader._catalogue import Catalogue
    from streaming_reader._divider import Divider
    from streaming_reader._epochs import Epochs
    from streaming_reader._pipeline import Transforms
    from streaming_reader.stream import ResolvedStream, Stream

__all__ = ["Begun", "Engine"]

_log = logging.getLogger("streaming_core.reader")
_AHEAD_BATCHES: Final = 8
_AHEAD_SAMPLES: Final = 64
_MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Begun:
    """An epoch that was begun."""

    feed: Callable[[int], Feed]
    """Gives its samples, without so many of the first ones."""
    place: dict[str, Any]
    """Names the sequence of its samples: equal places have equal samples."""
    world: World
    num_samples: int
    """How many samples this process is to give."""


@dataclass(slots=True)
class Engine:
    """All that iterating, access, and checkpoints of one dataset need."""

    streams: list[Stream]
    sources: list[ResolvedStream]
    """Where the data of each stream lies."""
    catalogue: Catalogue
    epochs: Epochs
    transforms: Transforms | None
    named_world: World | None
    """Who this process is, if the user said so."""
    given: dict[str, Any]
    """Settings as they were given, where they are used as something else."""
    overrides_items: bool
    """Whether a subclass makes samples of its own, which iterating must give then."""
    overrides_iter: bool
    """Whether a subclass has an `__iter__` of its own, which may begin late."""
    divider: Divider | None = field(default=None)
    """As a worker is told that cannot find out."""

    def __getstate__(self) -> dict[str, Any]:
        """Send what a worker needs, who we are included: it may not be able to find out."""
        found = {"named_world": self.named_world or detect_world(), "divider": find_divider()}
        return {name: getattr(self, name) for name in self.__slots__} | found

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    # --- who and how much -------------------------------------------------------------------------

    @property
    def world(self) -> World:
        """Who this process is: as given, or as its launcher says now."""
        world = self.named_world or detect_world()
        worker = torch_worker()
        return world.for_worker(worker.worker, worker.workers) if worker else world

    @property
    def num_ranks(self) -> int:
        """How many ranks are given different samples."""
        return self.world.num_ranks // (self.epochs.replication or 1)

    @property
    def length(self) -> int:
        """How many samples an epoch has for each rank, some of which may come twice."""
        return self.epochs.length(self.world, self.divider or find_divider())

    def warn_if_short(self, batch_size: int) -> None:
        """Warn if an epoch has no batch, where a batch that is not full is left out."""
        if self.length < batch_size:
            _log.warning(
                "no batch: the epoch has %d samples for this rank, a batch %d, and drop_last=True "
                "leaves out what is less",
                self.length,
                batch_size,
            )

    @property
    def ahead(self) -> int:
        """How many samples ahead of the last one given a worker fetches."""
        given: int | None = self.given["predownload"]
        if given is not None:
            return given
        size = self.epochs.batch_size
        return _AHEAD_BATCHES * size if size else _AHEAD_SAMPLES

    @property
    def facts(self) -> dict[str, Any]:
        """What a dataset shows of itself."""
        catalogue, order = self.catalogue, self.epochs.order
        return {
            "samples": catalogue.num_samples,
            "shards": catalogue.num_shards,
            "epoch_size": self.epochs.weights.epoch_size,
            "batch_size": self.epochs.batch_size,
            "shuffle": order.shuffle_algo if order.shuffle else False,
            "cache_limit": self.given["cache_limit"],
            "streams": [cache.source for cache in catalogue.caches[:_MOST_SHOWN]]
            + ["..."][: len(catalogue.caches) - _MOST_SHOWN],
        }

    @property
    def is_local(self) -> bool:
        """Whether all data lies in folders of this machine."""
        return not any(is_url(stream.url or "") for stream in self.sources)

    @property
    def makes_rows(self) -> bool:
        """Whether a subclass or transforms make rows of their own, with whatever columns."""
        changed = self.transforms is not None and self.transforms.changes_rows
        return changed or self.overrides_items or self.overrides_iter

    # --- iteration --------------------------------------------------------------------------------

    def begin(self, batch_size: int | None) -> Begun:
        """Begin an epoch at once, so that it counts even if nobody takes its first sample.

        Raises:
            SchemaError: Nobody gave a batch size, which the order of samples depends on.
        """
        world, epochs = self.world, self.epochs
        size = epochs.batch_size or batch_size
        if size is None:
            msg = (
                "batch_size is needed to iterate, because the order of samples depends on it; give "
                "StreamingDataset the batch_size of the loader"
            )
            raise SchemaError(msg)
        share, begun = epochs.begin(world, size, self.divider or find_divider())

        def feed(skip: int) -> Feed:
            then = partial(epochs.prepare, world, begun.epoch + 1, size)
            return Feed(
                self.catalogue,
                share.windows(then, skip=skip),
                ahead=self.ahead,
                timeout=self.catalogue.timeout,
                counters=epochs.shared.counters(world.worker),
                outlook=epochs.outlook(share),
            )

        place = {"epoch": begun.epoch, "from_sample": begun.sample, **share.place()}
        return Begun(feed, place, world, share.num_samples)

    def samples(self, dataset: Any, begun: Begun, skip: int = 0) -> Generator[Any]:  # noqa: ANN401 - any subclass
        """Return the samples of an epoch, those that the dataset's class makes if it does."""
        return self._samples(dataset, begun, skip)

    def _samples(self, dataset: Any, begun: Begun, skip: int) -> Generator[Any]:  # noqa: ANN401 - any subclass
        with begun.feed(skip) as feed:
            if self.overrides_items:
                # `map` would take a StopIteration in there for the end.
                samples: Iterator[Any] = (
                    feed.use(dataset.__getitem__, number) for number in feed.ids()
                )
            else:
                samples = feed.samples()
            # Whoever takes no more than there are does not ask for one after the last.
            yield from islice(samples, max(0, begun.num_samples - skip - 1))
            for sample in samples:
                self.epochs.shared.note_end(begun.world.worker)
                yield sample
        self.epochs.shared.note_end(begun.world.worker)

    def counted_batches(
        self,
        dataset: Any,  # noqa: ANN401 - any subclass
        batch_size: int | None = None,
        *,
        batch_format: BatchFormat = "numpy",
        ragged: RaggedForm = "list",
        drop_last: bool = False,
        lent: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> Iterator[tuple[Any, int]]:
        """Begin the next epoch; return its batches, each with the number of samples read for it.

        With `lent`, large bytes may come as views that are valid until the next batch. With
        `collate`, that makes the batch from a list of rows.
        """
        given = checked({"batch_size": batch_size, "drop_last": drop_last})
        drop_last = given["drop_last"]
        make = Assembly(batch_format, ragged, collate, self.transforms)
        size = given["batch_size"] or self.epochs.batch_size
        if self.overrides_items or self.overrides_iter:
            rows = batched_rows(self._own_samples(dataset, size), size or 1, drop_last=drop_last)
            return ((make.of_rows(some), len(some)) for some in rows)
        if collate is None:
            self.refuse_mixed(batch_format, size or 1)
        begun = self.begin(size)
        batches = make.batches(begun.feed(0), size or 1, drop_last=drop_last, lent=lent)
        return self._to_the_end(batches, begun)

    def _to_the_end(
        self, batches: Iterator[tuple[Any, int]], begun: Begun
    ) -> Iterator[tuple[Any, int]]:
        left = begun.num_samples
        for batch, size in batches:
            left -= size
            if left <= 0:
                self.epochs.shared.note_end(begun.world.worker)
            yield batch, size
        self.epochs.shared.note_end(begun.world.worker)

    def _own_samples(self, dataset: Any, size: int | None) -> Iterator[Any]:  # noqa: ANN401 - any subclass
        """Return what a subclass makes of samples, before the transforms."""
        if self.transforms is None:
            return iter(dataset)
        if self.overrides_iter:
            kind = type(dataset).__name__
            msg = f"{kind} has an __iter__ of its own: transform the samples there"
            raise SchemaError(msg)
        return self.samples(dataset, self.begin(size))

    def rows(self, dataset: Any, ids: NDArray[np.int64]) -> list[Any]:  # noqa: ANN401 - any subclass
        """Return samples by their numbers, those that the dataset's class makes if it does."""
        if self.overrides_items:
            return each_of(dataset.__getitem__, ids)
        return decode_list(self.catalogue, ids)

    def refuse_mixed(self, batch_format: BatchFormat, size: int) -> None:
        """Raise `SchemaError` if batches will have samples of several columns, but cannot.

        Only rows can; and where each batch is of one stream, others may have other columns.
        """
        if size == 1 or batch_format == "rows" or self.makes_rows:
            return
        purpose = (
            "only samples of the same columns can form a batch of the format "
            f"{batch_format!r}. Take batch_format='rows', a transform of rows that makes them "
            "alike, or batching_method='per_stream' where the streams differ"
        )
        tables = zip(self.sources, self.catalogue.tables, strict=True)
        used = {
            f"stream {at} ({stream.url or stream.folder})": table
            for at, (stream, table) in enumerate(tables)
            if self.epochs.weights.choose[at]
        }
        if self.epochs.order.batching_method in {"random", "stratified"}:
            require_same_columns(used, purpose, batch_format)
        else:
            for name, table in used.items():
                require_same_columns({name: table}, purpose, batch_format)
