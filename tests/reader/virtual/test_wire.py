"""What is asked of a store for data that nobody converted, and what stays on this machine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.web import WebServer

from streaming_core import Stream, StreamingDataLoader, StreamingDataset, open_store
from streaming_core._virtual import SourceFile, build_index, dump
from streaming_core._virtual._discover import published_name
from streaming_core.errors import SourceChangedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS = 40_000
_FILES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return Parquet files of eight columns, with more bytes between two than a request costs."""
    folder = tmp_path_factory.mktemp("columns")
    rng = np.random.default_rng(5)
    for at in range(_FILES):
        columns: dict[str, Any] = {name: rng.random(_ROWS) for name in "abcdefg"}
        columns["id"] = np.arange(at * _ROWS, (at + 1) * _ROWS)
        path = folder / f"part-{at}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=20_000, use_dictionary=False)
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[WebServer]:
    """Return a web server of the files, with an index that was published beside them."""
    with WebServer() as found:
        for path in folder.iterdir():
            found.files.put(f"set/{path.name}", path.read_bytes())
        _publish(found)
        found.log.clear()
        yield found


def _publish(server: WebServer) -> None:
    store = open_store(f"{server.url}/set")
    infos = [store.head(f"part-{at}.parquet") for at in range(_FILES)]
    files = [SourceFile(info.key, info.size, info.etag) for info in infos]
    index = build_index(store, files, "parquet")
    server.files.put(f"set/{published_name('*.parquet')}", dump(index))


def _chunk_bytes(folder: Path, names: set[str]) -> int:
    total = 0
    for path in folder.iterdir():
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for at in range(row_group.num_columns):
                chunk = row_group.column(at)
                total += chunk.total_compressed_size if chunk.path_in_schema in names else 0
    return total


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_only_the_columns_wanted_travel_and_nothing_is_asked_but_them(
    folder: Path, server: WebServer, tmp_path: Path, workers: int
) -> None:
    """No `HEAD`, no listing, no footer; each byte once per node, however many workers."""
    wanted = {"id", "c"}
    stream = Stream(remote=f"{server.url}/set/*.parquet", local=tmp_path, columns=["id", "c"])
    dataset = StreamingDataset(streams=[stream], batch_size=512, shuffle=True)
    (index,) = server.log
    assert index.method == "GET"
    server.log.clear()
    loader = StreamingDataLoader(dataset, batch_size=512, num_workers=workers)
    for _ in range(2):
        ids = [int(number) for batch in loader for number in batch["id"]]
        assert sorted(ids) == list(range(_FILES * _ROWS))
    assert {logged.method for logged in server.log} == {"GET"}
    assert all(logged.range for logged in server.log)
    assert sum(map(_bytes_of, (logged.range for logged in server.log))) <= 1.1 * _chunk_bytes(
        folder, wanted
    )
    assert dataset.stats()["bytes_fetched"] <= 1.1 * _chunk_bytes(folder, wanted)


def _bytes_of(text: str) -> int:
    first, last = text.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def test_a_file_that_changes_after_it_was_indexed_is_an_error_that_says_so(
    folder: Path, server: WebServer, tmp_path: Path
) -> None:
    """And no wrong row is given."""
    stream = Stream(remote=f"{server.url}/set/*.parquet", local=tmp_path)
    dataset = StreamingDataset(streams=[stream], batch_size=512)
    other = bytearray((folder / "part-1.parquet").read_bytes())
    other[100] ^= 1
    server.files.put("set/part-1.parquet", bytes(other))
    seen: list[int] = []
    with pytest.raises(SourceChangedError, match=r"part-1\.parquet.*changed after it was indexed"):
        seen.extend(int(sample["id"]) for sample in dataset)
    assert seen == list(range(_ROWS))  # all before it


@pytest.mark.slow
def test_the_copies_stay_within_the_limit(folder: Path, tmp_path: Path) -> None:
    """Also while several threads read all over them."""
    limit = 11_000_000
    dataset = StreamingDataset(
        streams=[Stream(remote=folder, format="parquet", local=tmp_path)],
        batch_size=32,
        cache_limit=limit,
    )
    rng = np.random.default_rng(1)
    wrong: list[int] = []

    def read(seed: int) -> None:
        numbers = np.random.default_rng(seed).integers(0, len(dataset), 200).tolist()
        wrong.extend(number for number in numbers if dataset[number]["id"] != number)

    threads = [threading.Thread(target=read, args=(int(seed),)) for seed in rng.integers(0, 99, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    used = sum(path.stat().st_size for path in tmp_path.rglob("*.arrow"))
    assert 0 < used <= limit


def test_a_damaged_copy_is_made_again(folder: Path, tmp_path: Path) -> None:
    """Whoever wrote into it."""

    def opened() -> StreamingDataset:
        stream = Stream(remote=folder, format="parquet", local=tmp_path)
        return StreamingDataset(streams=[stream], batch_size=32)

    before = opened()[5]
    (copy, *_) = sorted(tmp_path.rglob("*.arrow"))
    data = bytearray(copy.read_bytes())
    for at in range(0, len(data), 97):
        data[at] ^= 0xFF
    copy.write_bytes(bytes(data))
    again = opened()
    assert {name: float(value) for name, value in again[5].items()} == {
        name: float(value) for name, value in before.items()
    }
    copy.write_bytes(copy.read_bytes()[:100])
    assert opened()[5]["id"] == 5
