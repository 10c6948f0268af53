"""What a worker iterates instead of the data set: finished batches, packed for the way."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, final

from torch.utils.data import IterableDataset, get_worker_info

from streaming_core._attributes import engine_of
from streaming_reader._epochs import ITERATION
from streaming_reader._transport._channel import Counted, Delivery
from streaming_reader._transport._failure import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming_reader._transport._channel import Sender

__all__ = ["BatchSource", "Collated", "MadeByDataset", "Recipe", "WorkerInit", "rows_of"]


class Recipe(Protocol):
    """How a data set becomes batches."""

    def __call__(self, dataset: Any, /, *, lent: bool) -> Iterator[Counted]:  # noqa: ANN401 - duck-typed
        """Begin an epoch and return its batches.

        `lent` says that each is copied before the next is asked for, so that views will do.
        """
        ...


@final
class MadeByDataset:
    """Batches that the data set makes itself, column by column."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - as `dataset.batches` takes them
        """Ask `dataset.batches` with these options."""
        self._options = options

    def __call__(self, dataset: Any, /, *, lent: bool) -> Iterator[Counted]:  # noqa: ANN401 - duck-typed
        """Begin an epoch and return its batches."""
        # Asked for here and not in a generator: an epoch begins now.
        batches = engine_of(dataset).counted_batches(dataset, **self._options, lent=lent)
        return (Counted(*item) for item in batches)


@final
class Collated:
    """Samples in lists, collated by a function, as torch does it for data without an index."""

    def __init__(
        self, collate: Callable[[Any], Any], batch_size: int | None, *, drop_last: bool
    ) -> None:
        """Collate `batch_size` samples at a time, or each on its own if that is `None`."""
        self._collate = collate
        self._batch_size = batch_size
        self._drop_last = drop_last

    def __call__(self, dataset: Any, /, *, lent: bool) -> Iterator[Counted]:  # noqa: ANN401 - duck-typed
        """Begin an epoch and return its batches."""
        del lent  # samples are the function's own
        return self._batches(iter(dataset))

    def _batches(self, samples: Iterator[Any]) -> Iterator[Counted]:
        size = self._batch_size
        if size is None:
            for sample in samples:
                yield Counted(self._collate(sample), 1)
            return
        while listed := list(islice(samples, size)):
            rows = len(listed)
            if rows < size and self._drop_last:
                return
            yield Counted(self._collate(listed), rows)


@final
class BatchSource(IterableDataset[Any]):
    """Stands in for the data set in torch's workers; each item is a finished batch.

    Yields a `Parcel` in a worker and a `Delivery` in the trainer's own process; a worker's error
    is yielded as a `Failure`, the last item then.
    """

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - duck-typed
        recipe: Recipe,
        sender: Sender | None,
        *,
        start_method: str,
    ) -> None:
        """Make batches of `dataset` by `recipe`, in workers that are started like this.

        Without `sender`, batches go the way on which torch sends everything.
        """
        self.dataset = dataset
        # A fork server, and not the trainer, is the parent of those it starts.
        self._trainer = None if start_method == "forkserver" else os.getpid()
        self._recipe = recipe
        self._sender = sender
        self._running: Iterator[Any] | None = None
        self._name = uuid.uuid4().hex
        self._begun = 0
        self._announced = 0
        self.announce()

    def announce(self) -> None:
        """Settle in the trainer's process which epoch the next iteration gives.

        Workers begin it later, when the data set may have been iterated or set otherwise.
        """
        self._announced += 1
        epochs = engine_of(self.dataset).epochs
        epochs.shared.announce(f"{self._name}:{self._announced}")

    def _begin(self, *, lent: bool) -> Iterator[Counted]:
        """Begin the iteration that was announced for this turn."""
        self._begun += 1
        token = ITERATION.set(f"{self._name}:{self._begun}")
        try:
            batches = self._recipe(self.dataset, lent=lent)
            if engine_of(self.dataset).overrides_iter:
                # Such a generator begins the epoch with its first sample: now, under this name.
                first = list(islice(batches, 1))
                return chain(first, batches)
            return batches
        finally:
            ITERATION.reset(token)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, at once; the one before, if any, is ended first."""
        info = get_worker_info()
        if info is None or self._sender is None:
            return (Delivery(item.batch, item.rows) for item in self._begin(lent=False))
        self._sender.attach(info.id)
        where = f"in DataLoader worker process {info.id}"
        if self._running is not None:
            _close(self._running)
        try:
            batches = self._begin(lent=True)
        except Exception as error:  # noqa: BLE001 - the trainer raises it
            self._running = iter((Failure(error, where),))
        else:
            self._running = self._sent(batches, self._sender, where)
        if self._is_orphan():
            raise SystemExit(1)
        return self._running

    def _is_orphan(self) -> bool:
        """Tell whether the trainer has died; torch takes note of those only that die later."""
        if self._trainer is not None:
            return os.getppid() != self._trainer
        parent = multiprocessing.parent_process()
        return parent is not None and not parent.is_alive()

    @staticmethod
    def _sent(batches: Iterator[Counted], sender: Sender, where: str) -> Iterator[Any]:
        try:
            for item in batches:
                yield sender.send(item.batch, item.rows)
        except Exception as error:  # noqa: BLE001 - the trainer raises it
            yield Failure(error, where)
        finally:
            _close(batches)


@final
class WorkerInit:
    """The user's `worker_init_fn`, to which torch's worker info names the data set as ever."""

    def __init__(self, user: Callable[[int], None] | None) -> None:
        """Call `user` if there is one."""
        self._user = user

    def __call__(self, worker: int) -> None:
        """Run in the worker, before the data set is touched."""
        info = get_worker_info()
        source: Any = getattr(info, "dataset", None)
        if isinstance(source, BatchSource):
            object.__setattr__(info, "dataset", source.dataset)  # is locked, and is torch's
        if self._user is not None:
            self._user(worker)


def _close(iterator: Iterator[Any]) -> None:
    close = getattr(iterator, "close", None)  # generators have one, and iterators may
    if close is not None:
        close()


def rows_of(batch: Any) -> int:  # noqa: ANN401 - any batch
    """Return the number of samples in a batch, as checkpoints have always counted them.

    That is the length of a dict's first value, of a tensor, of a table, and else that of the
    first item; 1 where none of these has a length.

    Example:
        >>> rows_of({"x": [1, 2], "y": 3}), rows_of(([1, 2, 3], [4])), rows_of(7)
        (2, 3, 1)
    """
    try:
        if hasattr(batch, "keys"):
            return len(next(iter(batch.values())))
        if hasattr(batch, "shape") or hasattr(batch, "num_rows"):
            return len(batch)
        return len(batch[0])
    except (TypeError, LookupError, StopIteration):
        return 1
