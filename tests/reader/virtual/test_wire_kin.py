"""What cannot be read in parts is fetched once per node, and makes all units that are in it."""

from __future__ import annotations

import bz2
import functools
import gzip
import json
import lzma
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
import zstandard
from tests.reader.waiting import until_fetched
from tests.servers.web import Asked, Said, WebServer

from streaming_core import Stream, StreamingDataLoader, StreamingDataset
from streaming_core._virtual._kinds import _packing
from streaming_core.errors import SourceChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

_ROWS = 20_000
_PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1),
    "zst": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
}
_UNIT_BYTES = 200_000


def _texts() -> list[str]:
    rng = np.random.default_rng(3)
    return [rng.bytes(40).hex() for _ in range(_ROWS)]


@functools.cache
def _jsonl() -> bytes:
    lines = [json.dumps({"id": at, "text": text}) for at, text in enumerate(_texts())]
    return ("\n".join(lines) + "\n").encode()


def _columns() -> pa.Table:
    return pa.table({"id": np.arange(_ROWS), "text": _texts()})


@pytest.fixture
def server() -> Iterator[WebServer]:
    """Return a web server."""
    with WebServer() as found:
        yield found


@pytest.fixture
def opened(server: WebServer, tmp_path: Path) -> Callable[..., StreamingDataset]:
    """Return what opens a file of the server, and forgets what that took."""

    def act(
        name: str, data: bytes, options: dict[str, Any] | None = None, **more: Any
    ) -> StreamingDataset:
        server.files.put(f"set/{name}", data)
        stream = Stream(
            remote=f"{server.url}/set/{name}", local=tmp_path / "cache", format_options=options
        )
        more = {"shuffle": True, "shuffle_block_size": 2000, **more}
        dataset = StreamingDataset(streams=[stream], batch_size=500, **more)
        server.log.clear()
        return dataset

    return act


def _wire(server: WebServer) -> int:
    assert {logged.method for logged in server.log} == {"GET"}
    total = 0
    for logged in server.log:
        first, last = logged.range.removeprefix("bytes=").split("-")
        total += int(last) - int(first) + 1
    return total


def _copies(dataset: StreamingDataset) -> list[Path]:
    return list(Path(str(dataset.streams[0].local)).rglob("*.arrow"))


def _epoch(dataset: StreamingDataset, workers: int) -> None:
    loader = StreamingDataLoader(dataset, batch_size=500, num_workers=workers)
    ids = [int(number) for batch in loader for number in batch["id"]]
    assert sorted(ids) == list(range(_ROWS))
    assert ids != sorted(ids)


@pytest.mark.parametrize(
    ("code", "workers"),
    [*((code, 0) for code in _PACK), pytest.param("zst", 2, marks=pytest.mark.process)],
)
def test_a_compressed_text_is_fetched_and_expanded_once(
    server: WebServer, opened: Callable[..., StreamingDataset], code: str, workers: int
) -> None:
    """However many units it has, in whatever order they are read, by however many processes."""
    data = _PACK[code](_jsonl())
    dataset = opened(f"a.jsonl.{code}", data, {"unit_bytes": _UNIT_BYTES})
    for _ in range(2):
        _epoch(dataset, workers)
    assert _wire(server) <= 1.1 * len(data)
    stats = dataset.stats()
    assert stats["bytes_fetched"] == _wire(server)
    assert stats["shards_fetched"] == len(_copies(dataset)) > 7  # all of them, each once


@pytest.mark.parametrize("code", ["gz", "zst"])
def test_members_share_little(
    server: WebServer, opened: Callable[..., StreamingDataset], code: str
) -> None:
    """A file of many members is read in parts, which have next to nothing in common."""
    whole = _jsonl() * 6
    step = 1_100_000
    packed = [_PACK[code](whole[at : at + step]) for at in range(0, len(whole), step)]
    data = b"".join(packed)
    dataset = opened(f"a.jsonl.{code}", data, {"unit_bytes": _UNIT_BYTES})
    ids = sorted(int(sample["id"]) for sample in dataset)
    assert ids == sorted(list(range(_ROWS)) * 6)
    assert _wire(server) <= 1.1 * len(data)


def _parquet(path: Path) -> None:
    pq.write_table(_columns(), path, row_group_size=_ROWS)


def _orc(path: Path) -> None:
    po.write_table(_columns(), path, compression="zstd")


def _arrow(path: Path) -> None:
    pds.write_dataset(_columns(), path.parent / "x", format="arrow", max_rows_per_group=_ROWS)
    (path.parent / "x" / "part-0.arrow").rename(path)


@pytest.mark.parametrize(
    ("write", "workers"),
    [
        (_parquet, 0),
        (_orc, 0),
        (_arrow, 0),
        pytest.param(_parquet, 2, marks=pytest.mark.process),
    ],
)
def test_a_part_that_is_cut_is_fetched_once(
    server: WebServer,
    opened: Callable[..., StreamingDataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], None],
    workers: int,
) -> None:
    """A huge row group, stripe or batch is many units, and travels once."""
    monkeypatch.setattr(_packing, "_MOST_BYTES", _UNIT_BYTES)
    path = tmp_path / f"a.{write.__name__.removeprefix('_')}"
    write(path)
    dataset = opened(path.name, path.read_bytes())
    assert dataset.stats()["shards_fetched"] == 0
    for _ in range(2):
        _epoch(dataset, workers)
    assert len(_copies(dataset)) > 8
    assert _wire(server) <= 1.1 * path.stat().st_size


def test_filters_look_once(
    server: WebServer, opened: Callable[..., StreamingDataset], tmp_path: Path
) -> None:
    """What a filter needs to see of such a file is fetched once as well."""
    data = _PACK["gz"](_jsonl())
    name = "a.jsonl.gz"
    opened(name, data, {"unit_bytes": _UNIT_BYTES})
    stream = Stream(
        remote=f"{server.url}/set/{name}",
        local=tmp_path / "cache",
        format_options={"unit_bytes": _UNIT_BYTES},
        filters=[("id", "in", [*range(0, _ROWS, 7)])],
    )
    dataset = StreamingDataset(streams=[stream], batch_size=100, shuffle=True)
    assert len(dataset) == len(range(0, _ROWS, 7))
    ranged = [logged for logged in server.log if logged.range]
    server.log[:] = ranged
    assert _wire(server) <= 1.1 * len(data)
    server.log.clear()
    assert sorted(int(sample["id"]) for sample in dataset) == [*range(0, _ROWS, 7)]
    assert _wire(server) <= 1.1 * len(data)


@pytest.mark.parametrize(("shuffle", "most"), [(False, 0.35), (True, 0.8)])
def test_a_limit_that_does_not_take_it_all_is_kept_and_told(
    server: WebServer,
    opened: Callable[..., StreamingDataset],
    caplog: pytest.LogCaptureFixture,
    shuffle: bool,
    most: float,
) -> None:
    """Such a file comes several times, then, and far fewer times than it has units."""
    data = _PACK["gz"](_jsonl())
    limit = 1_400_000
    options = {"unit_bytes": 80_000}
    dataset = opened("a.jsonl.gz", data, options, cache_limit=limit, shuffle=shuffle)
    ids = [int(sample["id"]) for sample in dataset]
    assert sorted(ids) == list(range(_ROWS))
    assert "only be read as a whole" in caplog.text
    until_fetched()
    assert sum(path.stat().st_size for path in _copies(dataset)) <= limit
    units = len(_jsonl()) // 80_000
    assert len(data) < _wire(server) < most * units * len(data)


def test_requests_that_fail_are_made_again_alone(
    server: WebServer, opened: Callable[..., StreamingDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle does not begin anew."""
    monkeypatch.setattr("streaming_core._virtual._model._STEP_BYTES", 100_000)
    data = _PACK["gz"](_jsonl())
    dataset = opened("a.jsonl.gz", data, {"unit_bytes": _UNIT_BYTES})
    count = 0

    def answer(_: Asked) -> Said | None:
        nonlocal count
        count += 1
        return Said(500) if count in {3, 9} else None

    server.answer = answer
    _epoch(dataset, 0)
    assert count > 10
    assert _wire(server) <= 1.1 * len(data) + 2 * 100_000


def test_a_file_that_changed_is_an_error_in_every_unit(
    server: WebServer, opened: Callable[..., StreamingDataset]
) -> None:
    """Whoever asks gets it, also where others wait for what one makes."""
    data = bytearray(_PACK["gz"](_jsonl()))
    dataset = opened("a.jsonl.gz", bytes(data), {"unit_bytes": _UNIT_BYTES})
    data[len(data) // 2] ^= 1
    server.files.put("set/a.jsonl.gz", bytes(data))
    errors: list[BaseException] = []

    def read(number: int) -> None:
        try:
            dataset[number]
        except SourceChangedError as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(at,)) for at in range(0, _ROWS, _ROWS // 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == len(threads)
