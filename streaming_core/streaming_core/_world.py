"""Who this process is among the nodes, ranks and workers of a training job."""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming_core._arguments import checked, suggests, unexpected
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TorchWorker", "World", "detect_world", "torch_worker"]


@dataclass(frozen=True, slots=True)
class World:
    """A rank among the ranks of all nodes, and a worker among those of its rank.

    Ranks are numbered node by node; every node has `ranks_per_node` of them.

    Example:
        >>> world = World(rank=5, num_ranks=8, ranks_per_node=4)
        >>> world.node, world.rank_of_node, world.num_nodes
        (1, 1, 2)
        >>> world.replicated(2)
        World(rank=2, num_ranks=4, ranks_per_node=4, worker=0, workers_per_rank=1)
    """

    rank: int = 0
    """This process among all that train."""
    num_ranks: int = 1
    """How many train."""
    ranks_per_node: int = 1
    """How many of them each node has."""
    worker: int = 0
    """This loading process among those of its rank."""
    workers_per_rank: int = 1
    """How many load for each rank; one if the rank itself does."""

    def __post_init__(self) -> None:
        """Refuse numbers that contradict each other."""
        for name, value in checked({f.name: getattr(self, f.name) for f in fields(self)}).items():
            object.__setattr__(self, name, value)
        for name, most in (("rank", self.num_ranks), ("worker", self.workers_per_rank)):
            if getattr(self, name) >= most:
                raise unexpected(getattr(self, name), name, f"a number from 0 to {most - 1}")
        if self.num_ranks % self.ranks_per_node:
            msg = (
                f"{self.num_ranks} ranks cannot be spread evenly over nodes of "
                f"{self.ranks_per_node}; every node needs the same number of ranks"
            )
            raise SchemaError(msg)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self.num_ranks // self.ranks_per_node

    @property
    def node(self) -> int:
        """The node of this rank."""
        return self.rank // self.ranks_per_node

    @property
    def rank_of_node(self) -> int:
        """This rank among those of its node."""
        return self.rank % self.ranks_per_node

    def replicated(self, replication: int | None) -> World:
        """Return the world in which each `replication` consecutive ranks, fed alike, are one.

        Raises:
            SchemaError: The ranks cannot be divided so.
        """
        if replication is None or replication == 1:
            return self
        if replication < 1 or self.num_ranks % replication:
            msg = f"replication must divide the {self.num_ranks} ranks, came {replication}"
            raise SchemaError(msg)
        num_ranks = self.num_ranks // replication
        num_nodes = 1 if num_ranks % self.ranks_per_node else num_ranks // self.ranks_per_node
        return replace(
            self,
            rank=self.rank // replication,
            num_ranks=num_ranks,
            ranks_per_node=num_ranks // num_nodes,
        )

    def for_worker(self, worker: int, workers: int) -> World:
        """Return the place of a loading process of this rank."""
        return replace(self, worker=worker, workers_per_rank=workers)


World.__init__ = suggests()(World.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class _Source:
    """The variables by which a launcher tells each process its place."""

    rank: str
    ranks: str
    local_ranks: tuple[str, ...]
    """What holds the ranks of a node; the first that is set counts."""


# DeepSpeed's launcher says the same, but for the last name.
_TORCHRUN = _Source("RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"))
_SLURM_STEP = _Source(
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
)
_SLURM_JOB = _Source(
    "SLURM_PROCID", "SLURM_NTASKS", ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
)
_OTHERS = (
    _Source("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    _Source("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", ("MV2_COMM_WORLD_LOCAL_SIZE",)),
    _Source("PMI_RANK", "PMI_SIZE", ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")),
    _Source("HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_LOCAL_SIZE",)),
)


def detect_world(variables: Mapping[str, str] | None = None) -> World:
    """Return this process's place, asking nobody and starting nothing.

    An initialised torch.distributed counts first, then a running function of Ray Train, then what
    torchrun, DeepSpeed, SLURM, Open MPI and other MPIs, and Horovod put into the environment;
    without any, this is the only rank. Where nothing says how many ranks a node has, each rank
    counts as a node.

    Example:
        >>> detect_world({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}).node
        1
        >>> detect_world({})
        World(rank=0, num_ranks=1, ranks_per_node=1, worker=0, workers_per_rank=1)
    """
    given = os.environ if variables is None else variables
    sources = [_TORCHRUN, *_slurm(given), *_OTHERS]
    group = _process_group()
    if group is not None:
        rank, ranks = group
        local = next(
            (n for s in sources for n in [_local_ranks(given, s)] if n and ranks % n == 0), 1
        )
        return World(rank, ranks, local)
    ray = _ray_train()
    if ray is not None:
        return ray
    for source in sources:
        if source.rank in given and source.ranks in given:
            rank, ranks = _number(given, source.rank), _number(given, source.ranks)
            return World(rank, ranks, _local_ranks(given, source) or 1)
    return World()


def _slurm(given: Mapping[str, str]) -> list[_Source]:
    """Return where SLURM says it, if this process is one of the tasks of a step.

    A batch script has the numbers of the whole job, though it is one process on its own.
    """
    if "SLURM_STEP_NUM_TASKS" in given:
        return [_SLURM_STEP]
    in_step = "SLURM_STEP_ID" in given or "SLURM_STEPID" in given
    return [] if given.get("ENVIRONMENT") == "BATCH" and not in_step else [_SLURM_JOB]


def _process_group() -> tuple[int, int] | None:
    """Return rank and size if torch.distributed has been initialised, without importing it."""
    torch: Any = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return None
    return int(torch.get_rank()), int(torch.get_world_size())


def _ray_train() -> World | None:
    """Return this process's place in Ray Train, if it runs a training function; imports nothing."""
    ray: Any = sys.modules.get("ray.train")
    if ray is None:
        return None
    try:
        with warnings.catch_warnings():
            # Elsewhere Ray raises, or warns and says that there is one rank, by its version.
            warnings.simplefilter("error")
            context = ray.get_context()
            rank, ranks = int(context.get_world_rank()), int(context.get_world_size())
            local = int(context.get_local_world_size())
    except Exception:  # noqa: BLE001 - whatever it raises, there is no such function
        return None
    return World(rank, ranks, local if ranks % local == 0 else 1)


def _local_ranks(given: Mapping[str, str], source: _Source) -> int | None:
    name = next((name for name in source.local_ranks if name in given), None)
    return None if name is None else _number(given, name)


def _number(given: Mapping[str, str], name: str) -> int:
    # SLURM writes the tasks of each node as in "4(x2)" or "4,4".
    match = re.fullmatch(r"\s*(\d+)(?:\(x\d+\))?\s*", given[name])
    if match is None and name.endswith("TASKS_PER_NODE"):
        counts = set(re.findall(r"(\d+)(?:\(x\d+\))?", given[name]))
        if len(counts) == 1:
            return int(counts.pop())
        msg = f"{name}={given[name]!r}: every node needs the same number of ranks"
        raise SchemaError(msg)
    if match is None:
        msg = f"{name}={given[name]!r} is no number; set it right, or give world=World(...)"
        raise SchemaError(msg)
    return int(match[1])


class TorchWorker(NamedTuple):
    """A worker process of a torch DataLoader."""

    worker: int
    """Its number, from 0."""
    workers: int
    """How many there are."""
    run: int
    """The same number in all workers that were started together, and hardly ever in others."""


def torch_worker() -> TorchWorker | None:
    """Return which of a DataLoader's workers this process is, or None; imports nothing.

    Example:
        >>> torch_worker() is None
        True
    """
    data: Any = sys.modules.get("torch.utils.data")
    info: Any = data.get_worker_info() if data is not None else None
    if info is None:
        return None
    # Torch gives each worker the run's seed plus its own number.
    return TorchWorker(int(info.id), int(info.num_workers), int(info.seed) - int(info.id))
