"""The torch DataLoader that moves finished batches and knows where training stands."""

# torch's own annotations leave much unknown.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from streaming_core._extras import require

require("torch", extra="torch", purpose="StreamingDataLoader")

from torch.utils.data import DataLoader  # noqa: E402 - see above

from streaming_core._arguments import checked, suggests  # noqa: E402 - see above
from streaming_core._attributes import ENGINE  # noqa: E402 - see above
from streaming_core._shown import Shown  # noqa: E402 - see above
from streaming_core.errors import CheckpointError, SchemaError  # noqa: E402 - see above
from streaming_reader._accelerate import placed  # noqa: E402 - see above
from streaming_reader._metrics import Clock, metrics_of  # noqa: E402 - see above
from streaming_reader._transport import Receiver  # noqa: E402 - see above
from streaming_reader._transport._source import Collated, MadeByDataset  # noqa: E402 - see above
from streaming_reader._transport._torch import (  # noqa: E402 - see above
    InProcess,
    InWorkers,
    LoaderView,
    Tally,
    is_default_collate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.context import BaseContext
    from typing import Unpack

    from torch import Generator
    from torch.utils.data import Dataset, Sampler

    from streaming_reader._engine import Engine

__all__ = ["BatchFormat", "LoaderOptions", "StreamingDataLoader"]

BatchFormat = Literal["torch", "numpy", "jax", "arrow", "dict", "rows"]

_log = logging.getLogger("streaming_core.reader")


class _OfDataset(int):
    """Stands for the batch size that the dataset has."""

    def __repr__(self) -> str:
        return "the dataset's"


_OF_DATASET = _OfDataset(1)
# A worker has as many batches under way as it prefetches; the trainer holds the one it works on
# and, until it has asked for the next, the one before.
_SLOTS_IN_HAND = 2


class LoaderOptions(TypedDict, total=False):
    """What else `torch.utils.data.DataLoader` takes."""

    sampler: Sampler[Any] | Iterable[Any] | None
    batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None
    num_workers: int
    collate_fn: Callable[[Any], Any] | None
    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: BaseContext | str | None
    generator: Generator | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool


def _engine_of(dataset: object) -> Engine | None:
    engine: Engine | None = getattr(dataset, "__dict__", {}).get(ENGINE)
    return engine


class StreamingDataLoader(Shown, DataLoader[Any]):
    """A torch DataLoader for streaming data sets.

    Without a `collate_fn`, batches are assembled from columns where the samples are read, equal to
    what torch's default collate gives. They come from workers in memory that is used again once
    the last tensor of a batch is gone; whoever keeps tensors keeps that memory. With a
    `collate_fn`, it gets lists of samples as ever. Other data sets are loaded as torch loads them.

    A worker's error is raised with its own type and attributes, and ends the iteration.

    Accelerate's `prepare` leaves it as it is, as each rank has its own samples already; from then
    on batches come on Accelerate's device, and its `save_state` keeps where training stands.
    """

    @suggests(*LoaderOptions.__annotations__)
    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = _OF_DATASET,
        shuffle: bool | None = None,  # noqa: FBT001 - third by position in torch too
        *,
        batch_format: BatchFormat = "torch",
        ragged: str = "list",
        **options: Unpack[LoaderOptions],
    ) -> None:
        """Load `dataset`; what is not named here is as in torch.

        Args:
            dataset: What to load.
            batch_size: Samples in a batch: by default the dataset's `batch_size`, else 1. `None`
                gives single samples.
            shuffle: For map-style data sets; a streaming one is told when it is made.
            batch_format: What a batch consists of.
            ragged: How values of different length are given, as in `dataset.batches`.
            **options: As torch's DataLoader takes them.
        """
        if batch_size is _OF_DATASET:
            engine = _engine_of(dataset)
            batch_size = (engine and engine.epochs.batch_size) or 1
        given = checked(
            {
                "batch_size": batch_size,
                "shuffle": False if shuffle is None else shuffle,
                "batch_format": batch_format,
                "ragged": ragged,
                **options,
            }
        )
        self.batch_format: BatchFormat = given.pop("batch_format")
        self.ragged: str = given.pop("ragged")
        self._tally = Tally()
        self._clock = Clock()
        self._prepared = False
        super().__init__(dataset, **given)
        engine, batch_size = self._engine, self.batch_size
        if engine is None or batch_size is None:
            if engine is not None and engine.transforms is not None:
                msg = (
                    "the dataset has transforms, and a loader of single samples (batch_size=None) "
                    "cannot tell how many of these a row came from; give both the same batch_size"
                )
                raise SchemaError(msg)
            return
        self._check_batch_size()
        if is_default_collate(self.collate_fn):
            engine.refuse_mixed(self.batch_format, batch_size)

    def _streaming_facts(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "batch_size": self.batch_size,
            "num_workers": self.num_workers,
            "batch_format": self.batch_format if is_default_collate(self.collate_fn) else None,
            "collate_fn": None if is_default_collate(self.collate_fn) else self.collate_fn,
            "drop_last": self.drop_last,
        }

    def _check_batch_size(self) -> None:
        """Raise `SchemaError` if the dataset has another batch size, as it may be set late."""
        wanted = None if self._engine is None else self._engine.epochs.batch_size
        if self.batch_size is not None and wanted not in {None, self.batch_size}:
            msg = (
                f"the loader has batch_size={self.batch_size}, its dataset {wanted}: the order of "
                "samples, and where a checkpoint goes on, depend on it; give both the same"
            )
            raise SchemaError(msg)

    @property
    def num_samples_yielded(self) -> int:
        """Samples that this rank's trainer has received since it began to iterate."""
        return self._tally.samples

    @num_samples_yielded.setter
    def num_samples_yielded(self, samples: int) -> None:
        self._tally.samples = checked({"num_samples": samples})["num_samples"]

    def state_dict(self) -> dict[str, Any] | None:
        """Return where training stands, prefetched batches left out; `None` for other data sets."""
        engine = self._engine
        if engine is None:
            return None
        if self._tally.samples and self.num_workers > 1 and not getattr(self, "in_order", True):
            msg = (
                "with in_order=False batches overtake each other, so their number does not say "
                "which were given, and no checkpoint can; use in_order=True, torch's default"
            )
            raise CheckpointError(msg)
        received = self._tally.samples * engine.num_ranks
        if self._tally.finished and self.drop_last:
            received = max(received, engine.epochs.left(engine.world))
        # Subclasses may have a method of their own, which takes as much as the reference's does.
        state: dict[str, Any] = cast("Any", self.dataset).state_dict(received, False)  # noqa: FBT003
        return state

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Go on from `state` with the next iteration.

        Raises:
            TypeError: There is a state, but the data set is none that can use it.
        """
        if self._engine is not None:
            cast("Any", self.dataset).load_state_dict(state)
            self._tally = Tally()  # nothing was received since
        elif state is not None:
            msg = (
                f"a state was given, but {type(self.dataset).__name__} is no streaming data set, "
                "so nothing can go on from it; load it into the loader that saved it"
            )
            raise TypeError(msg)

    def __iter__(self) -> Any:  # noqa: ANN401 - torch's iterators are private
        """Begin an iteration; the count of samples starts at 0."""
        if isinstance(self._iterator, InWorkers) and self._iterator.is_over:
            self._iterator = None  # persistent workers of which one has died
        engine = self._engine
        if engine is None:
            self._clock = Clock(dict, self.num_workers)
        else:
            self._check_batch_size()
            if self.drop_last:
                engine.warn_if_short(self.batch_size or 1)
            stats = engine.epochs.shared.totals
            self._clock = Clock(stats, self.num_workers, is_local=engine.is_local)
        iterator = cast("InProcess | InWorkers", super().__iter__())
        iterator.tally.clock = self._clock
        if self._prepared:
            self._tally = Tally()
            return placed(self, iterator, self._tally)
        self._tally = iterator.tally
        return iterator

    def metrics(self) -> dict[str, Any]:
        """Return what the iteration that was begun last took until now, and what holds it up.

        All are numbers but `bound`, which names that, and `hint`, which says what may help; see
        `docs/how-to/any-format.md`. They are of this rank and its workers, begin at 0 with each
        iteration, and may be asked for at any time. Those of a finished iteration are in the log
        `streaming_core.reader` too, at level INFO, as `metrics` of the record.
        """
        return metrics_of(self._clock)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin `epoch`; see the data set's."""
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)

    # --- what Accelerate asks and says ------------------------------------------------------------

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Whether Accelerate is to leave this loader alone."""
        return self._engine is not None

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, prepared: bool) -> None:
        self._prepared = prepared

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether Accelerate is to save and load this loader's state with its own."""
        return self._engine is not None

    # --- batches ----------------------------------------------------------------------------------

    @property
    def _engine(self) -> Engine | None:
        """What a streaming dataset is made of; None for all other datasets."""
        return _engine_of(self.dataset)

    def _get_iterator(self) -> Any:  # noqa: ANN401 - torch's iterators are private
        engine = self._engine
        if self.num_workers == 0:
            view = None if engine is None else LoaderView(self, self._recipe(engine), None)
            return InProcess(view or self)
        self.check_worker_number_rationality()
        if engine is None:
            return InWorkers(self, None)
        receiver = self._receiver()
        return InWorkers(LoaderView(self, self._recipe(engine), receiver), receiver)

    def _receiver(self) -> Receiver | None:
        """Return slots for all workers, or `None` where batches have to go torch's way."""
        per_worker = (self.prefetch_factor or 2) + _SLOTS_IN_HAND
        try:
            return Receiver(self.num_workers, per_worker)
        except OSError as error:
            _log.warning("no anonymous memory for batches, which makes loading slower: %s", error)
            return None

    def _recipe(self, engine: Engine) -> MadeByDataset | Collated:
        # Lightning and others make a loader anew from its attributes, and so name the default.
        collate = cast("Callable[[Any], Any]", self.collate_fn)
        is_default = is_default_collate(collate)
        if self.batch_size is not None and (is_default or engine.transforms is not None):
            return MadeByDataset(
                batch_format=self.batch_format,
                ragged=self.ragged,
                batch_size=self.batch_size,
                drop_last=self.drop_last,
                **({} if is_default else {"collate": collate}),
            )
        return Collated(collate, self.batch_size, drop_last=self.drop_last)
