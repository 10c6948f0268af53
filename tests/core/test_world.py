"""Who we are: found where the launcher left it, checked, and never asked for."""

from __future__ import annotations

import pytest

from streaming_core import World
from streaming_core._world import detect_world
from streaming_core.errors import SchemaError

_PLACES = {
    "torchrun": {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"},
    "slurm step": {
        "SLURM_PROCID": "5",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
        "SLURM_NTASKS": "99",
        "ENVIRONMENT": "BATCH",
    },
    "slurm job": {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "4"},
    "slurm list": {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_TASKS_PER_NODE": "4,4"},
    "open mpi": {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    },
    "pmi": {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"},
    "mvapich": {
        "MV2_COMM_WORLD_RANK": "5",
        "MV2_COMM_WORLD_SIZE": "8",
        "MV2_COMM_WORLD_LOCAL_SIZE": "4",
    },
    "horovod": {"HOROVOD_RANK": "5", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_SIZE": "4"},
}


@pytest.mark.parametrize("launcher", _PLACES)
def test_each_launchers_variables_are_understood(launcher: str) -> None:
    """Rank, ranks and ranks of a node."""
    assert detect_world(_PLACES[launcher]) == World(rank=5, num_ranks=8, ranks_per_node=4)


def test_torchrun_within_slurm_counts() -> None:
    """The launcher that started this very process knows best."""
    both = {**_PLACES["slurm step"], "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    assert detect_world(both) == World(1, 2, 2)


def test_a_batch_script_is_no_task() -> None:
    """It has the numbers of the job, but runs once."""
    script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "ENVIRONMENT": "BATCH"}
    assert detect_world(script) == World()


def test_without_any_launcher_there_is_one_rank() -> None:
    """And where none tells the ranks of a node, each is a node."""
    assert detect_world({}) == World()
    assert detect_world({"RANK": "2", "WORLD_SIZE": "4"}).num_nodes == 4


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "two", "WORLD_SIZE": "4"}, "RANK='two'"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "rank must be from 0 to 3"),
        ({"RANK": "0", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "4"}, "evenly"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"}, "same number"),
    ],
)
def test_contradictions_are_refused(variables: dict[str, str], said: str) -> None:
    """With the variable, or with the numbers that do not fit."""
    with pytest.raises(SchemaError, match=said):
        detect_world(variables)


@pytest.mark.parametrize(
    ("world", "replication", "wanted"),
    [
        (World(5, 8, 4), 1, World(5, 8, 4)),
        (World(5, 8, 4), None, World(5, 8, 4)),
        (World(5, 8, 4), 2, World(2, 4, 4)),
        (World(7, 8, 2), 4, World(1, 2, 2)),
        (World(5, 8, 4), 8, World(0, 1, 1)),
        (World(5, 12, 4), 3, World(1, 4, 4)),
        (World(5, 12, 4), 2, World(2, 6, 6)),
    ],
)
def test_replicas_count_as_one(world: World, replication: int | None, wanted: World) -> None:
    """Nodes stay nodes where the ranks that are left fill them."""
    assert world.replicated(replication) == wanted


@pytest.mark.parametrize("replication", [0, -1, 3, 16])
def test_replication_must_divide(replication: int) -> None:
    """Otherwise some ranks would be left over."""
    with pytest.raises(SchemaError, match="replication"):
        World(0, 8, 4).replicated(replication)
