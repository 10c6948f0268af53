"""What the processes of one rank share: where the epochs are, and what the workers have counted.

An anonymous block of memory, inherited by forked workers and sent to spawned ones. Nobody locks or
waits: each process writes words of its own, and reads those of others whole.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COUNTERS", "Position", "SharedBlock"]

COUNTERS: Final = (
    "samples",
    "batches",
    "shards_opened",
    "shards_fetched",
    "bytes_fetched",
    "bytes_used",
    "retries",
    "refusals",
    "wait_pace_ns",
    "fill_ns",
    "make_ns",
    "range_requests",
    "range_bytes",
    "wait_shard_ns",
    "wait_order_ns",
    "decode_ns",
    "transform_ns",
    "format_ns",
)
"""What each worker counts, in the order of its row."""

_WORKERS: Final = 1024
"""Rows for workers; one more than these shares the row of another and only its counts suffer."""
_HEAD: Final = 12
_RECORDS: Final = 256
"""How many iterations are remembered, for workers that begin late."""
_TAIL: Final = _HEAD + _WORKERS + _RECORDS * _HEAD
"""Where the words begin that follow head, marks, and records."""
_PLACE: Final = slice(8)
_HOW, _SETS, _KEY = 8, 9, 11
_SIZE: Final = 10
_NUM_WORKERS: Final = 11
_WORD: Final = 8
_JUMPED, _RESUMED = 1, 2
"""Who has set where to begin: somebody who counts epochs, or a checkpoint."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where an epoch begins, or goes on."""

    epoch: int
    sample: int = 0
    """Samples of all ranks that the epoch has given already."""
    canonical_nodes: int | None = None
    """Those of the run that began, or None for this run's own."""
    seed: int | None = None
    """The run's that began, or None for this one's own."""
    initial_nodes: int | None = None
    """Physical nodes of the run that began, or None if it begins here."""
    began: tuple[int, int, int] | None = None
    """Nodes, ranks of each, and samples of a rank's batch that this epoch began with, if known."""


class SharedBlock:
    """The block of one data set object and its copies in worker processes.

    Example:
        >>> block = SharedBlock()
        >>> [block.begin(worker=worker, iteration="first").epoch for worker in (0, 1)]
        [0, 0]
        >>> block.begin(worker=0, iteration="second").epoch
        1
    """

    __slots__ = ("_handle", "_iterations", "_memory", "_words")

    def __init__(self) -> None:
        """Make an empty block; it takes memory only where it is written."""
        self._iterations = 0
        self._handle: int | None = None
        self._map(mmap.mmap(-1, _nbytes()))
        self._words[_PLACE] = _numbers(Position(0))

    def _map(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._words: NDArray[np.int64] = np.frombuffer(memory, np.int64)

    # --- epochs -----------------------------------------------------------------------------------

    def set(
        self, position: Position, *, run: int | None = None, worker: int = 0, resumed: bool = True
    ) -> None:
        """Let the next iteration begin at `position`; those that were begun go on as they are.

        Workers of one `run` may each set the same, which then counts once. `resumed` says that it
        is from a checkpoint.
        """
        self._words[_PLACE] = _numbers(position)
        self._words[_HOW] = _RESUMED if resumed else _JUMPED
        self._words[_SETS] = (uuid.uuid4().int if run is None else run) & ((1 << 62) - 1)
        self._begun[worker % _WORKERS] = 0

    def jump(self, epoch: int) -> None:
        """Let the next iteration begin `epoch` from its start, with the order's settings kept."""
        self.set(replace(self.start, epoch=epoch, sample=0, began=None), resumed=False)

    @property
    def start(self) -> Position:
        """The position last set."""
        return _position(self._words[_PLACE])

    @property
    def is_placed(self) -> bool:
        """Whether somebody has set where to begin."""
        return bool(self._words[_HOW])

    @property
    def is_resumed(self) -> bool:
        """Whether that was a checkpoint, and nothing else since."""
        return int(self._words[_HOW]) == _RESUMED

    @property
    def _records(self) -> NDArray[np.int64]:
        """The last iterations: where each begins, what was `set` before, and its key."""
        first = _HEAD + _WORKERS
        return self._words[first : first + _RECORDS * _HEAD].reshape(_RECORDS, _HEAD)

    def _snapshot(self) -> NDArray[np.int64]:
        """Return the records that are whole, as they are at one moment."""
        records = self._records
        keys = records[:, _KEY].copy()  # read first, as they are written last
        copy = records.copy()
        whole: NDArray[np.int64] = copy[(keys != 0) & (records[:, _KEY] == keys)]
        return whole

    def _last(self, records: NDArray[np.int64]) -> int:
        """Return the last epoch that was begun since `set`, or -1."""
        return int(records[records[:, _SETS] == self._words[_SETS], 0].max(initial=-1))

    def _next(self, records: NDArray[np.int64]) -> Position:
        return self.at(max(int(self._words[0]), self._last(records) + 1))

    @property
    def next_epoch(self) -> int:
        """The epoch that an iteration begun now would give."""
        return self._next(self._snapshot()).epoch

    @property
    def current(self) -> Position | None:
        """Where the iteration that was begun last began, or None if none was since `set`."""
        last = self._last(self._snapshot())
        return None if last < 0 else self.at(last)

    def at(self, epoch: int) -> Position:
        """Return where `epoch` begins, which is within it only if it is the one that was set."""
        start = self.start
        if epoch == start.epoch:
            return start
        return replace(start, epoch=epoch, sample=0, began=None)

    def name(self, run: int | None) -> str:
        """Return a name for the iteration that this process begins now.

        Workers of one `run` that begin as many iterations find the same names; None names a run
        that has no other workers.
        """
        self._iterations += 1
        if run is None:
            return uuid.uuid4().hex
        # A run has its seed, and with it its name, from a checkpoint where torchdata resumes it.
        return f"{run}:{self._iterations}:{int(self._words[_SETS])}"

    def announce(self, iteration: str) -> Position:
        """Settle now where an iteration begins whose workers may begin it later."""
        return self._record(_key(iteration), self._next(self._snapshot()))

    def begin(self, *, worker: int, iteration: str, num_workers: int = 1) -> Position:
        """Return where an iteration begins: all workers that name the same one get the same.

        That was settled by `announce`, else by the first of them. A worker that has begun it
        already begins the next one of that name, as happens to all where torch's seed, which names
        a run, is set anew before each epoch.
        """
        key, records = _key(iteration), self._snapshot()
        # Whoever does not see that another has begun it does not see the epoch taken, either.
        found = _found(records, key)
        if found is None or self._begun[worker % _WORKERS] == _mark(key, found):
            found = self._record(key, self._next(records))
        self._words[_NUM_WORKERS] = num_workers
        self._begun[worker % _WORKERS] = _mark(key, found)
        return found

    def note_end(self, worker: int) -> None:
        """Note that `worker` has given all samples of the iteration it began last."""
        self._ended[worker % _WORKERS] = self._begun[worker % _WORKERS]

    @property
    def is_over(self) -> bool:
        """Whether all workers have given all samples of the iteration that was begun last."""
        workers = slice(min(int(self._words[_NUM_WORKERS]), _WORKERS))
        marks = {*self._begun[workers].tolist(), *self._ended[workers].tolist()}
        return len(marks) == 1 and 0 not in marks

    def skip(self, *, worker: int, iteration: str) -> Position:
        """Let `worker` go on to the next epoch, because the one it began has nothing left."""
        key = _key(iteration)
        found = _found(self._snapshot(), key)
        if found is None or self._begun[worker % _WORKERS] == _mark(key, found):
            epoch = self.start.epoch if found is None else found.epoch
            found = self._record(key, self.at(epoch + 1))
        self._begun[worker % _WORKERS] = _mark(key, found)
        return found

    @property
    def _begun(self) -> NDArray[np.int64]:
        """For each worker a mark of what it began last."""
        return self._words[_HEAD : _HEAD + _WORKERS]

    @property
    def _ended(self) -> NDArray[np.int64]:
        """For each worker the mark of what it has given to its end."""
        return self._words[_TAIL : _TAIL + _WORKERS]

    def _record(self, key: int, position: Position) -> Position:
        record = self._records[key % _RECORDS]
        # Whoever finds the key finds the rest: it is taken away first, and written last.
        record[_KEY] = 0
        record[_PLACE] = _numbers(position)
        record[_SETS] = self._words[_SETS]
        record[_KEY] = key
        return position

    @property
    def batch_size(self) -> int | None:
        """The batch size that the last iteration was begun with, None if none was."""
        return int(self._words[_SIZE]) or None

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        self._words[_SIZE] = size

    # --- counters ---------------------------------------------------------------------------------

    def counters(self, worker: int) -> NDArray[np.int64]:
        """Return the row that `worker` counts in, in the order of `COUNTERS`."""
        row: NDArray[np.int64] = self._counts[worker % _WORKERS]
        return row

    def totals(self) -> dict[str, int]:
        """Return the sum of all workers' counts by name."""
        return dict(zip(COUNTERS, self._counts.sum(axis=0).tolist(), strict=True))

    @property
    def _counts(self) -> NDArray[np.int64]:
        """A row of counts for each worker."""
        first = _TAIL + _WORKERS
        words = self._words[first : first + _WORKERS * len(COUNTERS)]
        return words.reshape(_WORKERS, len(COUNTERS))

    # --- to other processes -----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Send the block itself to a process that is being spawned; elsewhere its contents."""
        context: Any = sys.modules.get("multiprocessing.context")  # loaded by whoever spawns
        if context and context.get_spawning_popen() is not None:
            from multiprocessing.reduction import DupFd  # noqa: PLC0415 - of use only here

            return {"handle": DupFd(self._share())}
        return {"words": self._words.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the sender's block, or make one with the same contents."""
        self._iterations = 0
        self._handle = None
        if "handle" in state:
            handle = state["handle"].detach()
            self._map(mmap.mmap(handle, _nbytes()))
            os.close(handle)  # the mapping has a descriptor of its own
            return
        self._map(mmap.mmap(-1, _nbytes()))
        self._words[:] = state["words"]

    def _share(self) -> int:
        """Return a descriptor of the block; the first call moves it into an anonymous file."""
        if self._handle is None:
            words = self._words
            self._handle = _anonymous_file()
            os.ftruncate(self._handle, _nbytes())
            self._map(mmap.mmap(self._handle, _nbytes()))
            self._words[:] = words
        return self._handle

    def __del__(self) -> None:
        """Close the descriptor that spawned processes were given."""
        handle: int | None = getattr(self, "_handle", None)
        if handle is not None:
            os.close(handle)


def _key(iteration: str) -> int:
    digest = hashlib.blake2b(iteration.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 | 1  # positive, and never 0


def _found(records: NDArray[np.int64], key: int) -> Position | None:
    same = records[records[:, _KEY] == key]
    return _position(same[0, _PLACE]) if len(same) else None


def _mark(key: int, position: Position) -> int:
    return (key + position.epoch) & ((1 << 63) - 1)


def _numbers(position: Position) -> list[int]:
    optional = (position.canonical_nodes, position.seed, position.initial_nodes)
    numbers = [-1 if number is None else number for number in optional]
    return [position.epoch, position.sample, *numbers, *(position.began or (0, 0, 0))]


def _position(words: NDArray[np.int64]) -> Position:
    epoch, sample, *numbers, nodes, ranks, batch = (int(word) for word in words)
    canonical, seed, initial = (None if number < 0 else number for number in numbers)
    began = (nodes, ranks, batch) if nodes else None
    return Position(epoch, sample, canonical, seed, initial, began)


def _nbytes() -> int:
    words = _TAIL + _WORKERS * (1 + len(COUNTERS))
    return -(-words * _WORD // mmap.PAGESIZE) * mmap.PAGESIZE


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("streaming", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415 - of use only here

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
