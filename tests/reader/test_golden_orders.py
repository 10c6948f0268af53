"""The reference's order, through the public classes: ranks by environment, workers by torch."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch.utils.data._utils.worker as torch_worker
from torch.utils.data import DataLoader, get_worker_info

from streaming_core import Stream, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Callable

_GOLDEN = Path(__file__).parents[1] / "data" / "golden"
_CASES: list[dict[str, Any]] = json.loads(
    gzip.decompress((_GOLDEN / "orders.json.gz").read_bytes())
)["cases"]


def _dataset(config: dict[str, Any]) -> StreamingDataset:
    streams = [
        Stream(
            local=_GOLDEN / "datasets" / f"ids_{stream['dataset']}",
            **{key: value for key, value in stream.items() if key != "dataset"},
        )
        for stream in config["streams"]
    ]
    return StreamingDataset(streams=streams, **{k: v for k, v in config.items() if k != "streams"})


def _tagged(sample: Any) -> tuple[int, int]:
    info = get_worker_info()
    return (0 if info is None else info.id), int(sample["id"])


def _by_processes(dataset: StreamingDataset, workers: int) -> list[list[int]]:
    """Return what each worker process of a loader gives, in order."""
    found: list[list[int]] = [[] for _ in range(workers)]
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        collate_fn=_tagged,
        multiprocessing_context="fork",
    )
    for worker, number in loader:
        found[worker].append(number)
    return found


def _in_process(dataset: StreamingDataset, workers: int) -> list[list[int]]:
    """Return the same without processes, as if torch had made a worker of this one."""
    if workers == 1:
        return [[int(sample["id"]) for sample in dataset]]
    found: list[list[int]] = []
    for worker in range(workers):
        copy = pickle.loads(pickle.dumps(dataset))
        with pytest.MonkeyPatch.context() as patch:
            info = torch_worker.WorkerInfo(
                id=worker, num_workers=workers, seed=worker, dataset=copy
            )
            patch.setattr(torch_worker, "_worker_info", info)
            found.append([int(sample["id"]) for sample in copy])
    return found


def _check(
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    ids: Callable[[StreamingDataset, int], list[list[int]]],
) -> None:
    case = _CASES[number]
    world = case["world"]
    ranks, workers = world["num_nodes"] * world["ranks_per_node"], world["workers_per_rank"]
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(world["ranks_per_node"]))
    found: list[list[list[int]]] = []
    for rank in range(ranks):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank % world["ranks_per_node"]))
        dataset = _dataset(case["config"])
        if case["state"] is None:
            dataset.next_epoch = case["epoch"]
        else:
            dataset.load_state_dict(case["state"])
        found.append(ids(dataset, workers))
    assert found == case["ids_by_rank_then_worker"]


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[] if number % 11 == 0 else pytest.mark.slow)
        for number in range(len(_CASES))
    ],
)
def test_every_rank_and_worker_gives_the_references_ids(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order, from the beginning of an epoch or from a checkpoint of another world."""
    _check(number, monkeypatch, _in_process)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.process
@pytest.mark.parametrize(
    "number", [0, 26, 44, 75, 99, 103, 115, pytest.param(146, marks=pytest.mark.essential)]
)
def test_worker_processes_give_the_references_ids(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each batching method, from the beginning of an epoch and from a checkpoint."""
    _check(number, monkeypatch, _by_processes)
