"""The reference's own orders: each worker of each rank gets the same samples in the same order."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.golden import GOLDEN

from streaming_core import load_index
from streaming_core._read import iterate_samples
from streaming_core._store import LocalStore
from streaming_reader._order import EpochPlan, OrderConfig, Weight, resolve_weights

CASES: list[dict[str, Any]] = json.loads(
    gzip.decompress((GOLDEN.parent / "orders.json.gz").read_bytes())
)["cases"]
_OWN = {"streams", "epoch_size"}


@cache
def _data_set(name: str) -> tuple[Any, Any]:
    """Return shard sizes and ids of a golden data set."""
    folder = GOLDEN / f"ids_{name}"
    table = load_index(folder)
    ids = [sample["id"] for sample in iterate_samples(LocalStore(folder), table)]
    return table.samples, np.array(ids)


def _name(case: dict[str, Any]) -> str:
    config, world = case["config"], case["world"]
    shuffle = config["shuffle_algo"] if config["shuffle"] else "plain"
    return f"{config['batching_method']}-{shuffle}-{'x'.join(map(str, world.values()))}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_every_worker_gets_the_reference_samples(case: dict[str, Any]) -> None:
    """The plan gives the recorded ids to each worker, in their order, fresh or resumed."""
    config, world, state = case["config"], case["world"], case["state"]
    data = [_data_set(stream["dataset"]) for stream in config["streams"]]
    wanted = [{k: v for k, v in stream.items() if k != "dataset"} for stream in config["streams"]]
    settings = {key: value for key, value in config.items() if key not in _OWN}
    start: dict[str, Any] = {"initial_nodes": world["num_nodes"]}
    seed = settings["shuffle_seed"]
    if state:
        settings["num_canonical_nodes"] = state["num_canonical_nodes"]
        settings["shuffle_seed"] = state["shuffle_seed"]
        start["position"] = state["sample_in_epoch"]
        start["initial_nodes"] = state["initial_physical_nodes"]
    plan = EpochPlan(
        [sizes for sizes, _ in data],
        resolve_weights(
            [int(sizes.sum()) for sizes, _ in data],
            [Weight(**each) for each in wanted],
            config["epoch_size"],
            seed,
        ),
        OrderConfig(**settings),
        epoch=case["epoch"],
        **world,
        **start,
    )
    values = np.concatenate([ids for _, ids in data])
    for rank, workers in enumerate(case["ids_by_rank_then_worker"]):
        batches = plan.batches(rank, 0, plan.num_steps)
        for worker, ids in enumerate(workers):
            got = batches[np.array(plan.worker_steps(worker, len(workers)), int)].ravel()
            assert values[got[got >= 0]].tolist() == ids
