"""What the loader needs of torch's private iterators, all of it here."""

# torch's own annotations leave much unknown, and a loader that is one cannot do without these.
# ruff: noqa: SLF001, ANN401
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import multiprocessing
import os
import signal
import weakref
from contextlib import suppress
from multiprocessing.connection import wait
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader
from torch.utils.data._utils.collate import default_collate

from streaming_reader._metrics import Clock, log_end
from streaming_reader._transport._channel import Delivery
from streaming_reader._transport._failure import Failure
from streaming_reader._transport._source import BatchSource, Recipe, WorkerInit, rows_of

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from streaming_reader._transport._channel import Receiver

_SECONDS_TO_DIE = 5.0

__all__ = ["InProcess", "InWorkers", "LoaderView", "Tally", "is_default_collate"]


def is_default_collate(collate: object) -> bool:
    """Tell whether this is what torch collates lists of samples with."""
    return collate is default_collate


class Tally:
    """Samples received in one iteration; loader and iterator share it and not each other."""

    __slots__ = ("clock", "finished", "samples")

    def __init__(self) -> None:
        """Begin at 0."""
        self.samples = 0
        self.finished = False
        self.clock = Clock()
        """What was waited for; who knows what the workers count puts another in its place."""

    def received(self, samples: int) -> None:
        """Note that a batch was given."""
        self.samples += samples
        self.clock.given(samples)


class LoaderView:
    """A loader as torch's iterators are to see it: its data set is a source of finished batches."""

    _auto_collation = False

    def __init__(self, loader: DataLoader[Any], recipe: Recipe, receiver: Receiver | None) -> None:
        """Make batches by `recipe` and send them to `receiver`."""
        self._loader = loader
        sender = None if receiver is None else receiver.sender
        context: Any = loader.multiprocessing_context or multiprocessing
        self.dataset = BatchSource(
            loader.dataset, recipe, sender, start_method=context.get_start_method()
        )
        self.collate_fn = _as_it_is
        self.worker_init_fn = WorkerInit(loader.worker_init_fn)
        self._index_sampler = loader.sampler  # endless: the source says when it has no more
        self._IterableDataset_len_called = None  # counts samples, and items are batches here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _let_go(*_: object) -> None:
    """Be called with what was kept until now."""


def _as_it_is(batch: Any) -> Any:
    return batch


class _Counting:
    """What both kinds of iterators add to torch's: they open, count, and raise as it was raised."""

    tally: Tally
    """What was received since the iteration began."""
    _failed: Failure | None = None

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002 - torch's
        self.tally = Tally()
        self._failed = None
        super()._reset(loader, first_iter)  # type: ignore[misc]

    def _end(self) -> None:
        """Let go of what an iteration that failed does not need any more."""

    def _num_ready(self) -> int:
        """Return how many batches lie ready."""
        return 0

    def __next__(self) -> Any:
        """Return the next batch, or raise what its worker met."""
        if self._failed is not None:
            self._failed.reraise()
        self.tally.clock.asked(self._num_ready())
        try:
            item = super().__next__()  # type: ignore[misc]
        except StopIteration:
            if not self.tally.finished:
                log_end(self.tally.clock)
            self.tally.finished = True
            raise
        if isinstance(item, Failure):
            self._failed = item
            self._end()
            item.reraise()
        if isinstance(item, Delivery):
            self.tally.received(item.rows)
            return item.value
        self.tally.received(rows_of(item))
        return item


class InProcess(_Counting, dataloader._SingleProcessDataLoaderIter):
    """Batches made in the trainer's process."""

    def __init__(self, loader: Any) -> None:
        """Begin an iteration of `loader`, or of the view that stands for one."""
        self.tally = Tally()
        super().__init__(loader)


class InWorkers(_Counting, dataloader._MultiProcessingDataLoaderIter):
    """Batches made by workers."""

    def __init__(self, loader: Any, receiver: Receiver | None) -> None:
        """Begin an iteration of `loader`, or of the view that sends to `receiver`."""
        self._receiver = receiver
        self._owner = os.getpid()
        try:
            super().__init__(loader)
        except (AttributeError, TypeError, PicklingError) as error:
            if "pickle" in str(error):
                error.add_note(
                    "workers that are not forked get the dataset, its transforms, and collate_fn "
                    "by pickle: define functions at the top level of a module, not as lambdas or "
                    "inside of others; or give multiprocessing_context='fork'"
                )
            raise
        # An error's traceback often holds this iterator in a cycle. When that is collected, what
        # it needs to end its workers must not be closed before: then torch waits for seconds.
        needed = self._index_queues, self._worker_result_queue, self._workers
        weakref.finalize(self, _let_go, *needed).atexit = False

    def _shutdown_workers(self) -> None:
        if os.getpid() != self._owner:
            # A worker of a later iteration, which was forked with a copy of this one, has dropped
            # it. The workers are the trainer's, and torch would tell them to end.
            return
        # A worker's death is no news for whoever is about to end it; torch's handler may report it
        # here still, and has ended the others by then.
        with suppress(RuntimeError):
            super()._shutdown_workers()
        if self._receiver is not None:
            self._receiver.close()

    def _next_data(self) -> Any:
        try:
            return self._next_or_death()
        except Exception as error:
            # Until the iterator is gone, torch may raise the death of its worker anywhere.
            if any(worker.exitcode for worker in self._workers):
                if any(worker.exitcode == -signal.SIGKILL for worker in self._workers):
                    error.add_note(
                        "a worker was killed by SIGKILL, as the system does where memory runs out: "
                        "look at dmesg; fewer workers, a smaller prefetch_factor, or smaller "
                        "batches need less"
                    )
                self._shutdown_workers()
            raise

    def _next_or_death(self) -> Any:
        try:
            return super()._next_data()  # type: ignore[no-untyped-call]
        except (ConnectionError, EOFError, FileNotFoundError) as error:
            # What a worker sent cannot be fetched from it any more: torch asks whether it is still
            # alive, which a process that is just being killed may be for a moment.
            ended = wait([worker.sentinel for worker in self._workers], _SECONDS_TO_DIE)
            if not ended:
                raise
            dead = [worker for worker in self._workers if worker.sentinel in ended]
            for worker in dead:  # its files are closed a moment before it has ended
                worker.join(_SECONDS_TO_DIE)
            pids = ", ".join(str(worker.pid) for worker in dead)
            msg = f"DataLoader worker (pid(s) {pids}) exited unexpectedly"
            raise RuntimeError(msg) from error

    def _num_ready(self) -> int:
        ahead = sum(
            len(task) > 1 for task in self._task_info.values()
        )  # of others, and their batch
        with suppress(NotImplementedError):  # macOS cannot tell the length of a queue
            ahead += self._data_queue.qsize()
        return ahead

    @property
    def is_over(self) -> bool:
        """Tell whether workers have ended or died, so that a new iteration needs new ones."""
        return self._shutdown or any(worker.exitcode is not None for worker in self._workers)

    def _end(self) -> None:
        if not self._persistent_workers:
            self._shutdown_workers()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002 - torch's
        if not first_iter and isinstance(self._dataset, BatchSource):
            self._dataset.announce()
        super()._reset(loader, first_iter)
        if self._receiver is not None:  # torch would compare batches with the number of samples
            self._IterableDataset_len_called = None
