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
    "wait_shard_ns",
    "wait_order_ns",
    "decode_ns",
)
"""What each worker counts, in the order of its row."""

_WORKERS: Final = 1024
"""Rows for workers; one more than these shares the row of another and only its counts suffer."""
_HEAD: Final = 8
_KEY_BITS: Final = 40
_WORD: Final = 8


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
        self.set(Position(0))
        self._words[5] = 0

    def _map(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._words: NDArray[np.int64] = np.frombuffer(memory, np.int64)

    # --- epochs -----------------------------------------------------------------------------------

    def set(self, position: Position) -> None:
        """Let the next iteration begin at `position`, whatever was begun before."""
        numbers = (position.canonical_nodes, position.seed, position.initial_nodes)
        self._begun[:] = 0
        self._words[:6] = [position.epoch, position.sample, *(_packed(n) for n in numbers), 1]

    def jump(self, epoch: int) -> None:
        """Let the next iteration begin `epoch` from its start, with the order's settings kept."""
        self.set(replace(self.start, epoch=epoch, sample=0))

    @property
    def start(self) -> Position:
        """The position last set."""
        epoch, sample, *numbers = (int(word) for word in self._words[:5])
        return Position(epoch, sample, *(None if n < 0 else n for n in numbers))

    @property
    def is_placed(self) -> bool:
        """Whether somebody has set where to begin."""
        return bool(self._words[5])

    @property
    def _begun(self) -> NDArray[np.int64]:
        """For each worker the epoch it began last, plus one, with a short hash of the iteration."""
        return self._words[_HEAD : _HEAD + _WORKERS]

    @property
    def next_epoch(self) -> int:
        """The epoch that an iteration begun now would give."""
        return max(int(self._words[0]), int((self._begun >> _KEY_BITS).max()))

    @property
    def current(self) -> Position | None:
        """Where the iteration that was begun last began, or None if none was since `set`."""
        begun = int((self._begun >> _KEY_BITS).max())
        return self.at(begun - 1) if begun else None

    def at(self, epoch: int) -> Position:
        """Return where `epoch` begins, which is within it only if it is the one that was set."""
        start = self.start
        sample = start.sample if epoch == start.epoch else 0
        return Position(epoch, sample, start.canonical_nodes, start.seed, start.initial_nodes)

    def name(self, run: int | None) -> str:
        """Return a name for the iteration that this process begins now.

        Workers of one `run` that begin as many iterations find the same names; None names a run
        that has no other workers.
        """
        self._iterations += 1
        return uuid.uuid4().hex if run is None else f"{run}:{self._iterations}"

    def begin(self, *, worker: int, iteration: str) -> Position:
        """Return where an iteration begins: all workers that name the same one get the same.

        A worker that has begun it already begins the next one of that name, as happens to all where
        torch's seed, which names a run, is set anew before each epoch.
        """
        digest = hashlib.blake2b(iteration.encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "little") & ((1 << _KEY_BITS) - 1)
        begun = self._begun.copy()  # each word is read whole, so it says both or nothing
        same = begun[(begun & ((1 << _KEY_BITS) - 1) == key) & (begun >> _KEY_BITS > 0)]
        if same.size:
            last = int(same.max())
            epoch = (last >> _KEY_BITS) - 1
            epoch += int(begun[worker % _WORKERS]) == last
        else:
            epoch = max(int(self._words[0]), int((begun >> _KEY_BITS).max()))
        return self.move(worker=worker, key=key, epoch=epoch)

    def move(self, *, worker: int, key: int, epoch: int) -> Position:
        """Note that `worker` gives `epoch` now, and return where that begins."""
        self._begun[worker % _WORKERS] = (epoch + 1) << _KEY_BITS | key
        return self.at(epoch)

    def skip(self, *, worker: int) -> Position:
        """Let `worker` go on to the next epoch, because the one it began has nothing left."""
        word = int(self._begun[worker % _WORKERS])
        key = word & ((1 << _KEY_BITS) - 1)
        return self.move(worker=worker, key=key, epoch=word >> _KEY_BITS)

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
        first = _HEAD + _WORKERS
        words = self._words[first : first + _WORKERS * len(COUNTERS)]
        return words.reshape(_WORKERS, len(COUNTERS))

    # --- to other processes -----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Send the block itself to a process that is being spawned; elsewhere its contents."""
        context: Any = sys.modules.get("multiprocessing.context")  # loaded by whoever spawns
        if sys.platform != "win32" and context and context.get_spawning_popen() is not None:
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


def _packed(number: int | None) -> int:
    return -1 if number is None else number


def _nbytes() -> int:
    words = _HEAD + _WORKERS * (1 + len(COUNTERS))
    return -(-words * _WORD // mmap.PAGESIZE) * mmap.PAGESIZE


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("streaming", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415 - of use only here

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
