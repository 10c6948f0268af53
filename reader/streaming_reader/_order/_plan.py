"""The order of one epoch: which samples each rank and worker gets at each step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from streaming_core.errors import CheckpointError, OrderError
from streaming_reader._order._batching import (
    DeviceBatching,
    Rows,
    SharedBatching,
    StratifiedBatching,
    StreamBatching,
    portions,
)
from streaming_reader._order._partition import partition
from streaming_reader._order._sequence import in_memory
from streaming_reader._order._sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Sequence as Items

    from numpy.typing import NDArray

    from streaming_reader._order._batching import Batching
    from streaming_reader._order._config import OrderConfig
    from streaming_reader._order._partition import Evened, Partition
    from streaming_reader._order._sequence import ArrayMaker, Sequence
    from streaming_reader._order._weights import Weights

__all__ = ["EpochPlan", "Place"]

_log = logging.getLogger("streaming_core.reader")


class Place(NamedTuple):
    """Where in an epoch a sample is."""

    step: int
    """Which batch of the rank, counted from the plan's position."""
    rank: int
    slot: int
    """Which sample of the batch."""


@final
class EpochPlan:
    """Answers who gets which samples when, for any window of an epoch.

    Pure: equal arguments give equal answers in any process. Nothing is computed before it is asked
    for, and arrays as long as the epoch (for the reference's shuffles, and for samples drawn from
    part of a shard) come from `arrays`. Sample ids count through all streams and shards.

    Example:
        >>> from streaming_reader._order import OrderConfig, Weight, resolve_weights
        >>> weights = resolve_weights([10], [Weight()], None, seed=0)
        >>> plan = EpochPlan([np.array([4, 6])], weights, OrderConfig(batch_size=2), num_nodes=2)
        >>> plan.num_steps, plan.batches(1, 0, 3).tolist()
        (3, [[5, 6], [7, 8], [9, -1]])
    """

    def __init__(  # noqa: PLR0913 - all that an order depends on
        self,
        shard_sizes: Items[NDArray[np.int64]],
        weights: Weights,
        config: OrderConfig,
        *,
        num_nodes: int = 1,
        ranks_per_node: int = 1,
        workers_per_rank: int = 1,
        epoch: int = 0,
        position: int = 0,
        initial_nodes: int | None = None,
        began: tuple[int, int, int] | None = None,
        arrays: ArrayMaker = in_memory,
    ) -> None:
        """Plan the rest of `epoch`, after `position` samples of all ranks together.

        Nodes and ranks are those that share nothing (replicas count once). The workers matter only
        for the empty batches at the end. `initial_nodes` are those the run began on, `began` the
        nodes, ranks of each and batch size that this epoch began with, if they were others: where
        streams are dealt out by global batches, it goes on with those of then.
        """
        _check(shard_sizes, weights, num_nodes, ranks_per_node, workers_per_rank, epoch, position)
        self.canonical_nodes = config.canonical_nodes(initial_nodes or num_nodes)
        """In how many pieces the order is made."""
        self.block_size = config.block_size(self.canonical_nodes)
        """How far a sample may travel."""
        self.num_ranks = num_nodes * ranks_per_node
        """Ranks that get samples of their own."""
        self.batch_size = config.batch_size
        """Samples of a batch of one rank."""
        world = _World(num_nodes, ranks_per_node, config.batch_size, initial_nodes)
        together = world.together
        source = Source(
            shard_sizes, weights, config, (self.canonical_nodes, self.block_size), epoch, arrays
        )
        self._skipped, dealt = 0, None
        if config.batching_method == "random":
            dealt = _dealt(source, world, position)
            batching: Batching = SharedBatching(source.all_streams(), dealt)
        else:
            make = _MAKERS[config.batching_method]
            # Made even if the plan of then is used: if it cannot be, the next epoch cannot.
            batching = make(source, world)
            if began is not None:
                _check_began(began, together)
                batching = make(source, _World(*began, initial_nodes))
            self._skipped, odd = divmod(position, together)
            if odd:
                msg = "%s goes on at a whole global batch: %d samples are given once more"
                _log.warning(msg, config.batching_method, odd)
        self._batching = batching
        # Batches that hold nothing may follow, so that each worker has as many.
        self._some = max(batching.steps - self._skipped, 0)
        self.num_steps = -(-self._some // workers_per_rank) * workers_per_rank
        """Batches of each rank that are left, empty ones at the end included."""
        self.num_samples = self._some * together if dealt is None else dealt.samples
        """Samples of all ranks that are left, repeated ones counted each time, or a few more."""

    def batches(self, rank: int, start: int, stop: int, every: int = 1) -> NDArray[np.int64]:
        """Return the sample ids of a rank's batches: a row for each, -1 where there is nothing.

        These are `start`, `start + every`, … before `stop`.
        """
        if not 0 <= rank < self.num_ranks:
            msg = f"rank {rank} is out of range: the plan is for {self.num_ranks} ranks"
            raise OrderError(msg)
        slots = np.arange(rank * self.batch_size, (rank + 1) * self.batch_size)
        return self._take(range(start, stop, every), slots)

    def prepare(self) -> None:
        """Let the arrays that the order needs be made now rather than with the first batch."""
        if self.num_steps:
            self.batches(0, 0, 1)

    def step(self, step: int) -> NDArray[np.int64]:
        """Return the global batch of a step: a row of sample ids for each rank."""
        slots = np.arange(self.num_ranks * self.batch_size)
        taken = self._take(range(step, step + 1), slots)
        return taken.reshape(self.num_ranks, self.batch_size)

    def worker_steps(self, worker: int, workers: int) -> range:
        """Return the steps that one of a rank's workers does."""
        if not 0 <= worker < workers:
            msg = f"worker {worker} is out of range: there are {workers}"
            raise OrderError(msg)
        return range(worker, self.num_steps, workers)

    def find(self, sample: int) -> list[Place]:
        """Return all places of a sample id in what is left of the epoch, in order."""
        return sorted(
            Place(step - self._skipped, *divmod(slot, self.batch_size))
            for step, slot in self._batching.find(sample)
            if self._skipped <= step < self._skipped + self._some
        )

    def _take(self, wanted: range, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        if not 0 <= wanted.start <= wanted.stop <= self.num_steps:
            msg = f"steps {wanted.start} to {wanted.stop} are out of range: the plan has "
            raise OrderError(msg + str(self.num_steps))
        taken = np.full((len(wanted), len(slots)), -1, np.int64)
        some = range(wanted.start, min(wanted.stop, self._some), wanted.step)
        if some:
            steps = np.arange(some.start, some.stop, some.step, dtype=np.int64) + self._skipped
            taken[: len(some)] = self._batching.take(steps, slots)
        return taken


class _World(NamedTuple):
    nodes: int
    ranks: int
    batch: int
    initial_nodes: int | None

    @property
    def together(self) -> int:
        return self.nodes * self.ranks * self.batch


def _dealt(source: Source, world: _World, position: int) -> Partition | Evened:
    return partition(
        source.config.partition_algo,
        sum(source.counts),
        rows=source.canonical_nodes,
        nodes=world.nodes,
        ranks=world.ranks,
        batch=world.batch,
        drop=position,
        initial_nodes=world.initial_nodes,
    )


def _stratified(source: Source, world: _World) -> StratifiedBatching:
    portion = portions(source.proportion, world.together)
    return StratifiedBatching(
        source.each_stream(), source.counts, portion, source.canonical_nodes, world.ranks
    )


def _per_stream(source: Source, world: _World) -> StreamBatching:
    dealt = [
        partition(
            source.config.partition_algo,
            count,
            rows=source.canonical_nodes,
            nodes=world.nodes,
            ranks=world.ranks,
            batch=world.batch,
            initial_nodes=world.initial_nodes,
        )
        for count in source.counts
    ]
    counts = [each.full_steps for each in dealt]
    _refuse_empty(counts, source.counts, f"a global batch of {world.together}")
    streams = [
        SharedBatching(sequence, each)
        for sequence, each in zip(source.each_stream(), dealt, strict=True)
    ]
    return StreamBatching(streams, source.turns(counts, nodes=1)[0])


def _device_per_stream(source: Source, world: _World) -> DeviceBatching:
    sequences: list[Sequence] = source.each_stream()
    batching = DeviceBatching(
        sequences, source.counts, source.canonical_nodes, (world.nodes, world.ranks, world.batch)
    )
    counts = batching.row_counts
    _refuse_empty(counts, source.counts, f"a batch of {world.batch} on each of {world.nodes} nodes")
    turns: list[Rows] = source.turns(counts, world.nodes)
    batching.settle(turns)
    return batching


_MAKERS: Mapping[str, Callable[[Source, _World], Batching]] = {
    "stratified": _stratified,
    "per_stream": _per_stream,
    "device_per_stream": _device_per_stream,
}


def _refuse_empty(rows: list[int], counts: list[int], what: str) -> None:
    for stream, row in enumerate(rows):
        if not row:
            msg = f"stream {stream} has {counts[stream]} samples an epoch and cannot fill {what}: "
            raise OrderError(msg + "take a smaller batch_size, or more of this stream")


def _check_began(began: tuple[int, int, int], together: int) -> None:
    nodes, ranks, batch = began
    if nodes * ranks * batch != together:
        msg = (
            f"this epoch began with a global batch of {nodes * ranks * batch} samples ({nodes} "
            f"nodes x {ranks} ranks x batch_size {batch}) and cannot go on with one of {together}: "
            "restore it by batch_size, or start anew without the checkpoint"
        )
        raise CheckpointError(msg)


def _check(
    shard_sizes: Items[NDArray[np.int64]],
    weights: Weights,
    *counts: int,
) -> None:
    if len(shard_sizes) != len(weights.choose):
        msg = f"{len(shard_sizes)} streams came with weights of {len(weights.choose)}"
        raise OrderError(msg)
    names = ("num_nodes", "ranks_per_node", "workers_per_rank", "epoch", "position")
    for name, value, least in zip(names, counts, (1, 1, 1, 0, 0), strict=True):
        if value < least:
            msg = f"{name} is at least {least}; {value} came"
            raise OrderError(msg)
