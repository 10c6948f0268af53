"""Who we are: found where the launcher left it, checked, and never asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import World
from streaming_core._world import detect_world
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

_PLACES = {
    "torchrun": {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"},
    "deepspeed": {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_SIZE": "4",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "2",
    },
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
        ({"RANK": "4", "WORLD_SIZE": "4"}, "rank: expected a number from 0 to 3, got 4"),
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


# --- Ray Train ------------------------------------------------------------------------------------


class _Context:
    """What Ray's context tells, or how it refuses."""

    def __init__(self, rank: int, ranks: int, local: int, refusal: str = "") -> None:
        self._told = rank, ranks, local
        self._refusal = refusal

    def _tell(self, at: int) -> int:
        if self._refusal == "raises":
            raise RuntimeError("`get_context` cannot be used outside of a training function")
        if self._refusal == "warns":
            warnings.warn("meant to only be called inside a function", stacklevel=2)
        return self._told[at]

    def get_world_rank(self) -> int:
        return self._tell(0)

    def get_world_size(self) -> int:
        return self._tell(1)

    def get_local_world_size(self) -> int:
        return self._tell(2)


def _ray(monkeypatch: pytest.MonkeyPatch, context: _Context) -> None:
    module: Any = ModuleType("ray.train")
    module.get_context = lambda: context
    monkeypatch.setitem(sys.modules, "ray.train", module)


def test_a_training_function_of_ray_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the environment, which may be that of whoever started the cluster."""
    _ray(monkeypatch, _Context(5, 8, 4))
    assert detect_world(_PLACES["slurm job"] | {"SLURM_PROCID": "0"}) == World(5, 8, 4)
    _ray(monkeypatch, _Context(2, 3, 2))  # two nodes, of two and one
    assert detect_world({}) == World(2, 3, 1)


@pytest.mark.parametrize("refusal", ["raises", "warns"])
def test_ray_elsewhere_does_not_count(monkeypatch: pytest.MonkeyPatch, refusal: str) -> None:
    """It raises, or warns and says that there is one rank, by its version; nobody sees that."""
    _ray(monkeypatch, _Context(0, 1, 1, refusal))
    assert detect_world(_PLACES["torchrun"]) == World(5, 8, 4)
    assert detect_world({}) == World()


_LOOP = """
import json, sys
import ray
from ray import train
from streaming_core._world import detect_world

def loop(config):
    world = detect_world()
    context = train.get_context()
    assert world.rank == context.get_world_rank()
    name = f"{config['out']}/{world.rank}.json"
    open(name, "w").write(json.dumps([world.num_ranks, world.ranks_per_node]))

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
assert detect_world().num_ranks == 1
if sys.argv[1] == "1":
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
else:
    from ray.train.data_parallel_trainer import DataParallelTrainer
DataParallelTrainer(
    loop,
    train_loop_config={"out": sys.argv[2]},
    scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    run_config=train.RunConfig(storage_path=f"{sys.argv[2]}/ray"),
).fit()
"""


@pytest.mark.framework
@pytest.mark.parametrize("version", ["0", "1"])
def test_real_training_functions_find_their_ranks(tmp_path: Path, version: str) -> None:
    """Two of them, in either version of Ray Train; the driver is none."""
    pytest.importorskip("ray")
    script = tmp_path / "loop.py"
    script.write_text(_LOOP)
    done = subprocess.run(
        [sys.executable, str(script), version, str(tmp_path)],
        env={**os.environ, "RAY_TRAIN_V2_ENABLED": version},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for rank in (0, 1):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == [2, 2]
