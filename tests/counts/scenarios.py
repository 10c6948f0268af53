"""Fixed scenarios whose requests, bytes, files, processes, and allocations are counted.

Each runs in a process of its own. What is shared by several runs of the same work, such as imports,
is done before counting.
"""

from __future__ import annotations

import io
import json
import sys
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.counts.counting import Box

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_core import StreamingDataset

__all__ = ["SCENARIOS", "main"]

_ROWS: Final = 1600
_KEYS: Final = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
_WAIT_SECONDS: Final = 60.0


def _dataset(remote: str | None, local: Path, **options: Any) -> StreamingDataset:
    from streaming_core import StreamingDataset

    return StreamingDataset(remote=remote, local=local, batch_size=16, **options)


def _ids(batches: Iterable[Any]) -> list[int]:
    return [int(number) for batch in batches for number in batch["id"]]


def _write(out: str, compression: str | None, **options: Any) -> None:
    from streaming_core import MDSWriter

    columns = {"id": "int64", "text": "str"}
    # One thread: with several, how many buffers are in use at a time depends on their timing.
    with MDSWriter(
        out=out,
        columns=columns,
        compression=compression,
        size_limit="64kb",
        max_workers=1,
        **options,
    ) as writer:
        for number in range(4000):
            writer.write({"id": number, "text": f"{number:080}"})


# --- import and open ------------------------------------------------------------------------------


def import_package(box: Box) -> None:
    """Import the package alone."""
    with box.imported():
        import streaming_core  # noqa: F401 - the import is what is counted


def construct_dataset(box: Box) -> None:
    """Import what a dataset needs, and open one in place."""
    with box.imported(), box.counted():
        _dataset(None, box.data / "small")


def open_many_shards(box: Box) -> None:
    """Open a dataset of 2,000 shards on a web server, which has no shard hashes."""
    _dataset(box.remote("small"), box.folder / "other")
    with box.counted(memory=True):
        dataset = _dataset(box.remote("many"), box.folder / "many")
    assert dataset.num_shards == 2000


# --- write ----------------------------------------------------------------------------------------


def write_raw(box: Box) -> None:
    """Write 4,000 samples without compression."""
    _write(f"{box.folder}/first", None)
    with box.counted(memory=True):
        _write(f"{box.folder}/raw", None)


def write_zstd(box: Box) -> None:
    """Write 4,000 samples with zstd."""
    _write(f"{box.folder}/first", "zstd")
    with box.counted(memory=True):
        _write(f"{box.folder}/zstd", "zstd")


def upload_to_s3(box: Box) -> None:
    """Write 4,000 samples to a bucket."""
    options = {"endpoint_url": box.url, **_KEYS}
    with box.counted():
        _write("s3://bucket/new", None, storage_options=options)


# --- read -----------------------------------------------------------------------------------------


def first_batch_cold(box: Box) -> None:
    """Open a remote dataset and take the first batch; it and those ahead are in one shard."""
    with box.counted():
        dataset = _dataset(box.remote("small"), box.folder / "cache", predownload=16)
        batch = next(dataset.batches())
    assert len(batch["id"]) == 16


def first_batch_of_large_shards(box: Box) -> None:
    """Take a first batch that does not wait for the whole of its 32 MiB shard."""
    with box.counted():
        dataset = _dataset(box.remote("large"), box.folder / "cache", predownload=16)
        batches = dataset.batches()  # kept, as its end would stop the download
        batch = next(batches)
        _wait_for(box.folder / "cache" / "shard.00000.mds")
    assert len(batch["id"]) == 16


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not downloaded"
        time.sleep(0.01)


def cold_epoch(box: Box) -> None:
    """Read all of a remote dataset, shuffled, in this process."""
    with box.counted():
        dataset = _dataset(box.remote("small"), box.folder / "cache", shuffle=True)
        ids = _ids(dataset.batches())
    assert sorted(ids) == list(range(_ROWS))


def cold_epoch_two_workers(box: Box) -> None:
    """Read all of a remote dataset, shuffled, in two worker processes."""
    from streaming_core import StreamingDataLoader

    with box.counted(files=False):
        dataset = _dataset(box.remote("small"), box.folder / "cache", shuffle=True)
        loader = StreamingDataLoader(
            dataset, batch_size=16, num_workers=2, multiprocessing_context="fork"
        )
        ids = _ids(loader)
    assert sorted(ids) == list(range(_ROWS))


def warm_epoch(box: Box) -> None:
    """Read all of a remote dataset again that is in the cache."""
    cache = box.folder / "cache"
    _ids(_dataset(box.remote("small"), cache, shuffle=True).batches())
    with box.counted(memory=True):
        dataset = _dataset(box.remote("small"), cache, shuffle=True)
        ids = _ids(dataset.batches())
    assert sorted(ids) == list(range(_ROWS))


def resume_in_the_middle(box: Box) -> None:
    """Resume an epoch after three quarters of its samples, with an empty cache."""
    first = _dataset(box.remote("small"), box.folder / "first")
    next(first.batches())
    state = first.state_dict(num_samples=_ROWS * 3 // 4)
    with box.counted():
        dataset = _dataset(box.remote("small"), box.folder / "second")
        dataset.load_state_dict(state)
        ids = _ids(dataset.batches())
    assert ids == list(range(_ROWS * 3 // 4, _ROWS))


def random_access(box: Box) -> None:
    """Get two samples and then four with `take`, of shards of 32 MiB that are not downloaded."""
    dataset = _dataset(box.remote("large"), box.folder / "cache")
    with box.counted():
        found = [int(dataset[number]["id"]) for number in (10, 1500)]
        found += dataset.take([20, 300, 700, 1700])["id"].tolist()
    assert found == [10, 1500, 20, 300, 700, 1700]


# --- other formats --------------------------------------------------------------------------------


def _parquet(box: Box, *, shuffle: bool) -> None:
    from streaming_core import Stream, StreamingDataset

    remote = [box.remote(f"columns/part-{at}.parquet") for at in range(4)]
    stream = Stream(remote=remote, local=box.folder / "cache", columns=["id", "c"])
    with box.counted():
        dataset = StreamingDataset(streams=[stream], batch_size=500, shuffle=shuffle)
        ids = _ids(dataset.batches())
    assert sorted(ids) == list(range(80_000))


def parquet_columns_in_order(box: Box) -> None:
    """Read two of eight columns of four Parquet files."""
    _parquet(box, shuffle=False)


def parquet_columns_shuffled(box: Box) -> None:
    """Read two of eight columns of four Parquet files, shuffled."""
    _parquet(box, shuffle=True)


def index_parquet(box: Box) -> None:
    """Index 50 Parquet files in a bucket by the command line."""
    from streaming_core.cli import main as run

    options = {"endpoint_url": box.url, **_KEYS}
    pairs = [f"--storage-option={name}={value}" for name, value in options.items()]
    sys.argv = ["streaming-core", "index", "s3://bucket/tiny", *pairs, "--json"]
    printed = io.StringIO()
    with box.counted(), redirect_stdout(printed), suppress(SystemExit):
        run()
    assert json.loads(printed.getvalue())["num_files"] == 50


SCENARIOS: Final = {
    scenario.__name__: scenario
    for scenario in (
        import_package,
        construct_dataset,
        open_many_shards,
        write_raw,
        write_zstd,
        upload_to_s3,
        first_batch_cold,
        first_batch_of_large_shards,
        cold_epoch,
        cold_epoch_two_workers,
        warm_epoch,
        resume_in_the_middle,
        random_access,
        parquet_columns_in_order,
        parquet_columns_shuffled,
        index_parquet,
    )
}
"""The scenarios by name."""


def main() -> None:
    """Run the scenario that the arguments name, and print its figures.

    The arguments are its name, a folder of its own, that of the datasets, and the server's URL.
    """
    name, folder, data, url = sys.argv[1:]
    box = Box(Path(folder), Path(data), url)
    SCENARIOS[name](box)
    print(json.dumps(box.figures))  # noqa: T201 - read by the process that started this one
