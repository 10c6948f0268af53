"""Where a data set stands in its epochs: beginning them, planning them, checkpoints."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from streaming_core._world import World, torch_worker
from streaming_core.errors import CheckpointError, OrderError
from streaming_reader._divider import SKIPPED, Divider
from streaming_reader._order import EpochPlan, OrderConfig, Weights
from streaming_reader._ranged import Outlook
from streaming_reader._share import Share
from streaming_reader._shared import Position, SharedBlock
from streaming_reader._state import make_state, parse_state
from streaming_reader._threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_reader._catalogue import Catalogue
    from streaming_reader._setup import OrderArrays

__all__ = ["ITERATION", "Epochs"]

_log = logging.getLogger("streaming_core.reader")
ITERATION: ContextVar[str | None] = ContextVar("iteration", default=None)
"""The name of the iteration that is being begun, where a loader has announced it."""
_MOST_PLACES: Final = 8
_THIN: Final = 64
"""Where an epoch uses one sample in so many of a stream, its shards are not fetched for that."""


class Settled(NamedTuple):
    """Settings of a run that goes on with them on other nodes."""

    seed: int
    canonical_nodes: int
    initial_nodes: int


@dataclass(slots=True)
class Epochs:
    """The epochs of one data set object and its copies in worker processes."""

    catalogue: Catalogue
    weights: Weights
    """How much of each stream an epoch has."""
    order: OrderConfig
    """The settings of a run that begins here; a checkpoint may bring others."""
    arrays: OrderArrays
    replication: int | None
    """How many consecutive ranks are given the same samples; None means one."""
    batch_size: int | None
    """Samples of a batch of one rank, or None if that is left to the loader."""
    shared: SharedBlock = field(default_factory=SharedBlock)

    def length(self, world: World, divider: Divider | None) -> int:
        """Return the samples of an epoch for this rank, or for all if another divides them."""
        if divider is not None and divider.divides:
            return self.weights.epoch_size
        return -(-self.weights.epoch_size // world.replicated(self.replication).num_ranks)

    def begin(
        self, world: World, batch_size: int, divider: Divider | None
    ) -> tuple[Share, Position]:
        """Begin the next epoch, at once; return this process's share of it and where it begins.

        Raises:
            CheckpointError: Batches of an epoch that nobody has named are to be skipped.
        """
        shared = self.shared
        name = ITERATION.get()
        if name is None:
            worker = torch_worker()
            name = shared.name(None if worker is None else worker.run)
            name = f"{name}:{world.workers_per_rank}"
        position = shared.begin(
            worker=world.worker, iteration=name, num_workers=world.workers_per_rank
        )
        if divider is Divider.SKIPPER and not (shared.is_placed or position.epoch):
            raise CheckpointError(SKIPPED)
        self.shared.batch_size = batch_size
        plan = self.plan(world, position, batch_size)
        if position.sample and not plan.num_steps and divider is not Divider.COUNTER:
            # What was loaded was the end of an epoch, which whoever loaded it has left.
            position = shared.skip(worker=world.worker, iteration=name)
            plan = self.plan(world, position, batch_size)
        return self._share(plan, world, divider), position

    def _share(self, plan: EpochPlan, world: World, divider: Divider | None) -> Share:
        """Return what this process is to give: its rank's samples, or everybody's."""
        ranks, together = range(plan.num_ranks), 1
        if divider is None or not divider.divides:
            rank = world.replicated(self.replication).rank
            ranks = range(rank, rank + 1)
        elif divider is Divider.SAMPLES:
            together = len(ranks)  # a global batch, of which each process keeps its part
        return Share(plan, ranks, world.worker, world.workers_per_rank, together)

    def outlook(self, share: Share) -> Outlook:
        """Return what an iteration of that share is going to use."""
        used = self.weights.choose
        thin = np.flatnonzero((used > 0) & (_THIN * used <= self.catalogue.samples_per_stream))
        mean = self.catalogue.mean_sample_bytes
        return Outlook(share.num_samples, mean, frozenset(thin.tolist()))

    def prepare(self, world: World, epoch: int, batch_size: int) -> None:
        """Make an epoch's order in the background, once per node and if that takes long."""
        if world.worker or world.rank_of_node or not self.arrays.shares:
            return
        plan = self.plan(world, self.shared.at(epoch), batch_size)
        # Should it fail, it fails again, and is raised, when that epoch begins.
        start_thread(plan.prepare, "streaming-next-epoch")

    def plan(self, world: World, position: Position, batch_size: int) -> EpochPlan:
        """Return the plan of what is left of an epoch."""
        shape = world.replicated(self.replication)
        return EpochPlan(
            [table.samples for table in self.catalogue.tables],
            self.weights,
            replace(
                self.order,
                batch_size=batch_size,
                shuffle_seed=_or(position.seed, self.order.shuffle_seed),
                num_canonical_nodes=_or(position.canonical_nodes, self.order.num_canonical_nodes),
            ),
            num_nodes=shape.num_nodes,
            ranks_per_node=shape.ranks_per_node,
            workers_per_rank=shape.workers_per_rank,
            epoch=position.epoch,
            position=position.sample,
            initial_nodes=position.initial_nodes,
            began=position.began if position.sample else None,
            arrays=self.arrays,
        )

    def settled(self, world: World) -> Settled:
        """Return what a run has from its checkpoint, else from its own settings."""
        start, nodes = self.shared.start, world.replicated(self.replication).num_nodes
        return Settled(
            seed=_or(start.seed, self.order.shuffle_seed),
            canonical_nodes=_or(start.canonical_nodes, self.order.canonical_nodes(nodes)),
            initial_nodes=_or(start.initial_nodes, nodes),
        )

    # --- checkpoints ------------------------------------------------------------------------------

    def left(self, world: World) -> int:
        """Return how many samples of all ranks the epoch that was begun last has in all."""
        position = self.shared.current or self.shared.start
        return self.plan(world, position, self._size or 1).num_samples

    def state(
        self, world: World, num_samples: int | None, *, from_beginning: bool
    ) -> dict[str, Any]:
        """Return the checkpoint of the epoch that was begun last, or of where the next begins.

        Trainers that count anew when an epoch ends say that 0 samples of it were given.
        """
        position = self.shared.current or self.shared.start
        if num_samples == 0 and from_beginning and self.shared.is_over:
            position = self.shared.at(position.epoch + 1)
        offset = position.sample if num_samples is None or not from_beginning else 0
        shape = world.replicated(self.replication)
        nodes, began = shape.num_nodes, position.began if position.sample else None
        if began is None and (size := self._size) is not None:
            began = (nodes, shape.ranks_per_node, size)
        return make_state(
            Position(
                epoch=position.epoch,
                sample=offset + (num_samples or 0),
                canonical_nodes=position.canonical_nodes or self.order.canonical_nodes(nodes),
                seed=_or(position.seed, self.order.shuffle_seed),
                initial_nodes=position.initial_nodes or nodes,
                began=began,
            ),
            self._facts(world),
            self._places,
        )

    @property
    def _places(self) -> list[str]:
        """Where the data lies, for messages; not of all streams where there are many."""
        return [cache.source for cache in self.catalogue.caches[:_MOST_PLACES]]

    @property
    def _size(self) -> int | None:
        """The batch size that was given, or that the last iteration was begun with."""
        return self.batch_size or self.shared.batch_size

    def load(self, world: World, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where `state` was taken.

        Raises:
            CheckpointError: It belongs to other data, settings, or nodes; says what differs.
        """
        shape = world.replicated(self.replication)
        position = parse_state(
            state,
            self._facts(world),
            places=self._places,
            num_samples=self.weights.epoch_size,
            num_ranks=shape.num_ranks,
            canonical_nodes=self.order.canonical_nodes(shape.num_nodes),
        )
        if position.sample and position.began is None and self.order.batching_method != "random":
            _log.warning(
                "the checkpoint does not say on how many nodes and ranks its epoch began: if these "
                "were others than now, some samples of it are repeated and others left out"
            )
        if self._size is not None:
            try:
                self.plan(world, position, self._size)
            except OrderError as error:
                msg = f"the epoch of the checkpoint cannot go on here: {error}"
                raise CheckpointError(msg) from error
        worker = torch_worker()
        if worker is None:
            self.shared.set(position)
        else:
            self.shared.set(position, run=worker.run, worker=worker.worker)

    def _facts(self, world: World) -> dict[str, Any]:
        """Return what the order depends on beyond what a checkpoint restores."""
        order = self.order
        shape = world.replicated(self.replication)
        facts: dict[str, Any] = {
            "data": self.catalogue.fingerprint(),
            "samples_per_stream": self.weights.choose.tolist(),
            "shuffle": order.shuffle,
            "shuffle_algo": order.shuffle_algo if order.shuffle else None,
            "shuffle_block_size": order.shuffle_block_size if order.shuffle else None,
            "sampling_method": order.sampling_method,
            "sampling_granularity": order.sampling_granularity,
            "partition_algo": order.partition_algo,
            "batching_method": order.batching_method,
        }
        if order.batching_method != "random" and self.batch_size is not None:
            # Streams are dealt out by whole global batches there.
            facts["global_batch_size"] = shape.num_ranks * self.batch_size
        if order.batching_method == "device_per_stream":
            facts |= {"num_nodes": shape.num_nodes, "ranks_per_node": shape.ranks_per_node}
        return facts


def _or(found: int | None, default: int | None) -> int:
    return cast("int", default if found is None else found)
