"""Fixtures of checkpoints: all shuffles, ways to make batches, worlds, and weights."""

from __future__ import annotations

import os
import tempfile
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tests.compat.epochs import epochs_after, located, state_after

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_checkpoints"]

_SHUFFLES: Final = ("naive", "py1b", "py1br", "py1e", "py1s", "py2s", "windowed")
_A: Final[list[dict[str, Any]]] = [{"local": "a"}]
_ALL: Final[list[dict[str, Any]]] = [{"local": "a"}, {"local": "b"}, {"local": "c"}]


def _case(streams: list[dict[str, Any]], world: tuple[int, int], batch: int, **more: Any) -> Any:
    """Describe a checkpoint: after `epochs` epochs and `batches` batches, None for the end."""
    described = {"epochs": 1, "batches": 3, "drop_last": False, "other": None}
    told = {key: more.pop(key) for key in [*more] if key in _TOLD}
    dataset = {"batch_size": batch, "shuffle": True, "shuffle_block_size": 24, **more}
    return {**described, **told, "world": list(world), "dataset": {"streams": streams, **dataset}}


_TOLD: Final = ("epochs", "batches", "drop_last", "other", "num_workers", "by_dataset", "plain")


def _cases() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _SHUFFLES:
        # A checkpoint of two nodes goes on with one rank on each, one of a single rank with two.
        plain = name in {"py1e", "windowed"}
        found[f"{name}-two-nodes"] = _case(_ALL, (4, 2), 2, shuffle_algo=name, other=[2, 1, 4])
        found[f"{name}-one-rank"] = _case(
            _A, (1, 1), 4, shuffle_algo=name, epochs=0, other=[2, 2, 2], plain=plain
        )
    found["in-order"] = _case(_ALL, (4, 2), 2, shuffle=False, other=[2, 1, 4], plain=True)
    found["orig"] = _case(_ALL, (4, 2), 2, partition_algo="orig", other=[1, 1, 8])
    found["canonical-nodes"] = _case(_ALL, (1, 1), 8, num_canonical_nodes=4, other=[4, 1, 2])
    # Ranks of a relaxed run on other nodes are not compared: their batches may be of other sizes.
    found["relaxed"] = _case(_ALL, (2, 1), 6, num_canonical_nodes=2)
    for method in ("stratified", "per_stream", "device_per_stream"):
        for name in ("py1e", "py1br", "windowed"):
            found[f"{method}-{name}"] = _case(
                _ALL, (2, 1), 4, shuffle_algo=name, batching_method=method, shuffle_block_size=64
            )
        found[f"{method}-in-order"] = _case(_ALL, (2, 1), 4, shuffle=False, batching_method=method)
    proportions: list[dict[str, Any]] = [
        {"local": name, "proportion": part} for name, part in (("a", 0.5), ("b", 0.3), ("c", 0.2))
    ]
    repeats: list[dict[str, Any]] = [
        {"local": "a", "repeat": 0.5},
        {"local": "b", "repeat": 2.25},
        {"local": "c"},
    ]
    chosen: list[dict[str, Any]] = [{"local": "a", "choose": 30}, {"local": "b", "choose": 50}]
    for method in ("balanced", "fixed"):
        given = {"sampling_method": method, "other": [2, 1, 4]}
        found[f"proportion-{method}"] = _case(proportions, (4, 2), 2, epoch_size=100, **given)
        found[f"repeat-{method}"] = _case(repeats, (4, 2), 2, **given)
        found[f"choose-{method}"] = _case(chosen, (4, 2), 2, sampling_granularity=3, **given)
        found[f"windowed-{method}"] = _case(repeats, (4, 2), 2, shuffle_algo="windowed", **given)
    found["stratified-proportion"] = _case(
        proportions, (2, 1), 8, batching_method="stratified", shuffle_block_size=64
    )
    found["replication"] = _case(_ALL, (4, 2), 2, replication=2)
    found["seed"] = _case(_A, (1, 1), 4, shuffle_seed=17, other=[2, 2, 2])
    found["drop-last"] = _case(_A, (1, 1), 4, drop_last=True, other=[2, 2, 2])
    found["workers"] = _case(_A, (1, 1), 4, num_workers=2, other=[2, 2, 2])
    found["dataset"] = _case(_ALL, (4, 2), 2, by_dataset=True, other=[2, 1, 4])
    found["begin"] = _case(_A, (1, 1), 4, epochs=0, batches=0, other=[2, 2, 2])
    # At the end of an epoch other numbers of nodes are not compared.
    for name in ("py1e", "windowed"):
        found[f"end-{name}"] = _case(_ALL, (4, 2), 2, shuffle_algo=name, batches=None)
    found["end-one-rank"] = _case(_A, (1, 1), 4, batches=None)
    found["end-drop-last"] = _case(_A, (2, 2), 4, batches=None, drop_last=True)
    found["end-stratified"] = _case(_ALL, (2, 1), 4, batches=None, batching_method="stratified")
    return found


def make_checkpoints(folder: Path) -> dict[str, Any]:
    """Train until a checkpoint in each case, and note what the next two iterations give."""
    start = 0
    for name, count in (("a", 61), ("b", 40), ("c", 23)):
        with MDSWriter(out=folder / name, columns={"id": "int32"}, size_limit=110) as out:
            for number in range(start, start + count):
                out.write({"id": number})
        start += count
    cases = _cases()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["STREAMING_CACHE_DIR"] = temporary
        for name, case in cases.items():
            given = located(case["dataset"], folder)
            told = {key: case.pop(key) for key in ("num_workers", "by_dataset") if key in case}
            drop_last = case["drop_last"]
            state = state_after(
                given,
                case["world"],
                epochs=case.pop("epochs"),
                batches=case.pop("batches"),
                drop_last=drop_last,
                **told,
            )
            case["state"] = state
            case["ids"] = epochs_after(given, case["world"], state, drop_last=drop_last)
            if case["other"] is not None:
                *world, batch = case["other"]
                there = {**given, "batch_size": batch}
                ids = epochs_after(there, world, state, drop_last=drop_last)
                for mine, theirs in zip(case["ids"], ids, strict=True):
                    if not drop_last:
                        assert set(chain(*mine)) == set(chain(*theirs)), name
                case["other"] = {"world": world, "batch_size": batch, "ids": ids}
    return {"cases": cases}
