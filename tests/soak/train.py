"""One rank of a training job that does a step whenever it is told to."""

from __future__ import annotations

import json
import sys
from typing import Any

from streaming_core import StreamingDataLoader, StreamingDataset, World

__all__ = ["GLOBAL_BATCH"]

GLOBAL_BATCH = 32


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(settings: dict[str, Any]) -> None:
    """Give the ids of one batch for each line `step`, and the state for each line `state`."""
    num_ranks = settings["num_ranks"]
    world = World(settings["rank"], num_ranks, settings["ranks_per_node"])
    batch_size = GLOBAL_BATCH // num_ranks
    dataset = StreamingDataset(
        remote=settings["remote"],
        local=settings["local"],
        batch_size=batch_size,
        shuffle=True,
        shuffle_algo=settings["shuffle_algo"],
        num_canonical_nodes=2,
        cache_limit=settings["cache_limit"],
        world=world,
    )
    loader: Any = StreamingDataLoader(
        dataset,
        batch_size,
        num_workers=settings["workers"],
        multiprocessing_context=settings["method"] if settings["workers"] else None,
    )
    if settings["state"] is not None:
        loader.load_state_dict(settings["state"])
    batches: Any = iter(())
    for line in sys.stdin:
        if line.strip() == "state":
            _answer({"state": loader.state_dict()})
            continue
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        _answer({"epoch": dataset.next_epoch - 1, "ids": batch["id"].tolist()})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
