"""Who a process is among the nodes, ranks and workers of a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming_core._world import World as _World
from streaming_core._world import detect_world, torch_worker

__all__ = ["World"]


def _found() -> _World:
    world, worker = detect_world(), torch_worker()
    return world.for_worker(worker.worker, worker.workers) if worker else world


@dataclass(frozen=True)
class World:
    """The numbers of `streaming_core.World` under the names of mosaicml-streaming.

    Example:
        >>> world = World.detect()
        >>> world.num_ranks, world.num_workers, world.is_leader
        (1, 1, True)
    """

    _world: _World = field(default_factory=_found, repr=False)

    @classmethod
    def detect(cls) -> World:
        """Return the place of this process, as its launcher says."""
        return cls()

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self._world.num_nodes

    @property
    def node(self) -> int:
        """The node of this process."""
        return self._world.node

    @property
    def num_ranks(self) -> int:
        """How many ranks there are."""
        return self._world.num_ranks

    @property
    def ranks_per_node(self) -> int:
        """How many of them each node has."""
        return self._world.ranks_per_node

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._world.rank

    @property
    def rank_of_node(self) -> int:
        """This rank among those of its node."""
        return self._world.rank_of_node

    @property
    def num_workers(self) -> int:
        """How many loading processes there are in all."""
        return self.num_ranks * self.workers_per_rank

    @property
    def workers_per_node(self) -> int:
        """How many of them each node has."""
        return self.ranks_per_node * self.workers_per_rank

    @property
    def workers_per_rank(self) -> int:
        """How many of them each rank has."""
        return self._world.workers_per_rank

    @property
    def worker(self) -> int:
        """This loading process among all."""
        return self.rank * self.workers_per_rank + self.worker_of_rank

    @property
    def worker_of_node(self) -> int:
        """This loading process among those of its node."""
        return self.rank_of_node * self.workers_per_rank + self.worker_of_rank

    @property
    def worker_of_rank(self) -> int:
        """This loading process among those of its rank."""
        return self._world.worker

    @property
    def is_leader(self) -> bool:
        """Whether this is the first loading process of all."""
        return not self.worker

    @property
    def is_local_leader(self) -> bool:
        """Whether this is the first loading process of its node."""
        return not self.worker_of_node

    @property
    def is_multinode(self) -> bool:
        """Whether there are several nodes."""
        return self.num_nodes > 1
