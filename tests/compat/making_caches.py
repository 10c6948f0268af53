"""Fixtures of caches: killed in mid-fill, at their limit, complete, moved."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.compat.bucket import BUCKET, Bucket
from tests.compat.jobs import opened
from tests.compat.making import listing, run_killed, settled
from tests.compat.rows import digest, large, samples

import streaming_core
from streaming_core import StreamingDataLoader

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["make_caches"]

_COUNT: Final = 240
_SIZE: Final = 6000
_COLUMNS: Final = {"id": "int", "text": "str"}
_LARGE_COUNT: Final = 20
_DATASETS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "large": ("MDSWriter", {"size_limit": 2_400_000}),
    "raw": ("MDSWriter", {}),
    "zstd": ("MDSWriter", {"compression": "zstd:3", "hashes": ["sha1", "xxh64"]}),
    "csv": ("CSVWriter", {}),
}


def _case(data: str, *, stop: str, **more: Any) -> dict[str, Any]:
    """Describe a cache: of what, how far, and how it is read."""
    # In order, the first batches do not wait for the shard that stalls.
    dataset = {"remote": f"s3://{BUCKET}/{data}", "batch_size": 4, "shuffle": stop != "stalled"}
    return {
        "data": data,
        "stop": stop,
        "dataset": {**dataset, **more.pop("dataset", {})},
        "loader": {"batch_size": 4, "num_workers": 2, **more.pop("loader", {})},
        **more,
    }


_CASES: Final[dict[str, dict[str, Any]]] = {
    # The connection stalls in the middle of a shard; then all processes are killed.
    "killed": _case("raw", stop="stalled"),
    "killed-large": _case(
        "large", stop="stalled", dataset={"batch_size": 1}, loader={"batch_size": 1}
    ),
    "killed-zstd": _case("zstd", stop="stalled", dataset={"keep_zip": True}),
    "killed-csv": _case("csv", stop="stalled"),
    "limit": _case("raw", stop="second epoch", dataset={"cache_limit": 5 * _SIZE + 4000}),
    "limit-zstd": _case("zstd", stop="second epoch", dataset={"cache_limit": "44kb"}),
    "whole": _case("raw", stop="end"),
    "whole-zstd": _case("zstd", stop="end"),
    "whole-zstd-zip": _case("zstd", stop="end", dataset={"keep_zip": True}),
    "whole-csv": _case("csv", stop="end"),
    # Without `local`: below the folder that STREAMING_CACHE_DIR names.
    "home": _case("raw", stop="end", home=True),
    # Enough numbers that the order of the epoch lies in a file.
    "orders": _case(
        "raw",
        stop="first batches",
        dataset={"shuffle": False},
        loader={"num_workers": 0},
        repeat=4400,
    ),
}


def _rows(data: str) -> list[dict[str, Any]]:
    return [large(n) for n in range(_LARGE_COUNT)] if data == "large" else samples(0, _COUNT)


def make_caches(folder: Path) -> dict[str, Any]:
    """Fill caches, and kill the process at the wrong moment."""
    bucket = folder / "bucket"
    for name, (writer, options) in _DATASETS.items():
        given = {"columns": _COLUMNS, "size_limit": _SIZE, **options}
        with getattr(streaming_core, writer)(out=bucket / name, **given) as out:
            for row in _rows(name):
                out.write(row)
    cases: dict[str, Any] = {}
    with Bucket(bucket) as served:
        os.environ.update(served.environment)
        for name, case in _CASES.items():
            cases[name] = _made(name, case, folder, served)
        cases["moved"] = _moved(folder)
    rows = {name: digest(_rows(name)) for name in _DATASETS}
    return {"cases": cases, "rows": rows}


def _made(name: str, case: dict[str, Any], folder: Path, served: Bucket) -> dict[str, Any]:
    local = folder / "local" / name
    dataset = dict(case["dataset"])
    if "repeat" in case:
        stream = {"remote": dataset.pop("remote"), "repeat": case["repeat"]}
        dataset = {**dataset, "streams": [stream]}
    environment = {"STREAMING_CACHE_DIR": str(local)}
    there = dataset
    if not case.get("home"):
        if "streams" in dataset:
            there = {**dataset, "streams": [{**dataset["streams"][0], "local": str(local)}]}
        else:
            there = {**dataset, "local": str(local)}
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = Path(temporary) / "checkpoint"
        job = {
            "job": "train",
            "dataset": there,
            "loader": case["loader"],
            "checkpoint": str(checkpoint),
            "epochs": 2 if case["stop"] == "second epoch" else 1,
        }
        served.stalled.clear()
        word, count = "trained", 1
        ready: Callable[[], bool] = settled(local)
        if case["stop"] == "stalled":
            word, count = "batch", 3
            ready = _stalled(case["data"], served, local)
        elif case["stop"] == "second epoch":
            word, count, ready = "batch", _COUNT // 4 + 13, _at_once
        elif case["stop"] == "first batches":
            word, count, ready = "batch", 5, _at_once
        run_killed(job, word, ready, environment=environment, count=count)
        served.stalled.clear()
        saved = json.loads(checkpoint.read_text(encoding="utf-8"))
    return {
        "data": case["data"],
        "dataset": dataset,
        "home": case.get("home", False),
        "loader": case["loader"],
        "state": saved["state"],
        "files": listing(local),
        "remaining": _remaining(there, saved["state"], "streams" not in dataset),
    }


def _at_once() -> bool:
    return True


def _stalled(data: str, served: Bucket, local: Path) -> Callable[[], bool]:
    """Stall a shard in its middle; return what tells whether a cache waits for the rest of it."""
    folder = served.folder / data
    shards = sorted(path for path in folder.glob("shard.*") if "meta" not in path.name)
    chosen = shards[len(shards) * 2 // 3]
    key, size = chosen.relative_to(served.folder).as_posix(), chosen.stat().st_size
    served.stalled[key] = size * 3 // 4
    served.forget()
    start = chosen.read_bytes()[: size // 3]
    still = settled(local)

    def has_part() -> bool:
        paths = [path for path in local.rglob("*") if path.is_file()]
        return any(
            0 < path.stat().st_size < size and path.read_bytes().startswith(start) for path in paths
        )

    def is_ready() -> bool:
        # Small shards come in one piece, of which nothing is written before it is whole.
        return key in served.read_keys() and still() and (data != "large" or has_part())

    return is_ready


def _remaining(dataset: dict[str, Any], state: dict[str, Any], *whole: bool) -> list[int]:
    """Return the ids that training is given after its last checkpoint, from another cache."""
    with tempfile.TemporaryDirectory() as temporary:
        there = {**dataset, "local": temporary}
        if "streams" in dataset:
            there = {**dataset, "streams": [{**dataset["streams"][0], "local": temporary}]}
        there.pop("cache_limit", None)
        loader = StreamingDataLoader(opened(there), batch_size=dataset["batch_size"])
        loader.load_state_dict(state)
        if all(whole):
            return [int(number) for batch in loader for number in batch["id"]]
        iterator = iter(loader)
        return [int(number) for _ in range(20) for number in next(iterator)["id"]]


def _moved(folder: Path) -> dict[str, Any]:
    """Fill a cache from a folder, of which the cache remembers where it was."""
    bucket = folder / "bucket"
    local = folder / "local" / "moved"
    rows = list(opened({"remote": str(bucket / "raw"), "local": str(local), "batch_size": 4}))
    assert digest(rows) == digest(samples(0, _COUNT))
    dataset = {"remote": "raw", "batch_size": 4}
    return {"data": "raw", "dataset": dataset, "files": listing(local)}
