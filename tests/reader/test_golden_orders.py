"""The reference's order, through the public classes: ranks by environment, workers by torch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, get_worker_info

from streaming_core import Stream, StreamingDataset

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


def _ids(dataset: StreamingDataset, workers: int, *, processes: int) -> list[list[int]]:
    """Return what each worker gives, in order."""
    found: list[list[int]] = [[] for _ in range(workers)]
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        num_workers=processes,
        collate_fn=_tagged,
        multiprocessing_context="fork" if processes else None,
    )
    for worker, number in loader:
        found[worker].append(number)
    return found


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("number", range(len(_CASES)))
def test_every_rank_and_worker_gives_the_references_ids(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order, from the beginning of an epoch or from a checkpoint of another world."""
    case = _CASES[number]
    world = case["world"]
    ranks, workers = world["num_nodes"] * world["ranks_per_node"], world["workers_per_rank"]
    # One worker may also be the rank's own process.
    processes = 0 if workers == 1 and number % 2 else workers
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
        found.append(_ids(dataset, workers, processes=processes))
    assert found == case["ids_by_rank_then_worker"]
