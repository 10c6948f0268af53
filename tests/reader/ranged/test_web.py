"""Ranges over real connections: what a web server is asked for, and what comes of its failures."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.reader.ranged.making import ONLY_BYTES, write_blobs
from tests.servers.web import Asked, Said, WebServer

from streaming_core import StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_reader._ranged import Ranged


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 400 samples of some 100 kB in four shards of 10 MB."""
    folder = tmp_path_factory.mktemp("blobs") / "remote"
    return write_blobs(folder, 400, size=100_000, shard=100, varied=True, checksums=True)


@pytest.fixture
def server(blobs: Path) -> Iterator[WebServer]:
    """Serve them."""
    with WebServer(blobs) as running:
        yield running


def _dataset(server: WebServer, local: Path, **given: Any) -> StreamingDataset:
    return StreamingDataset(remote=server.url, local=local, batch_size=4, shuffle=True, **given)


def _ranged(dataset: StreamingDataset) -> Ranged:
    found = dataset._streaming_engine.catalogue.ranged
    assert found is not None
    return found


def _only_bytes(dataset: StreamingDataset) -> None:
    """Let ranges be chosen by their bytes alone, however fast this machine is just now."""
    for origin in _ranged(dataset)._origins:
        origin._default = ONLY_BYTES
        origin.renew()


def _asked(server: WebServer) -> tuple[int, int]:
    """Return how many ranges of shards and how many whole ones were asked for."""
    shards = [entry for entry in server.log if entry.path.endswith(".mds")]
    return sum(bool(e.range) for e in shards), sum(not e.range for e in shards)


def test_one_sample_takes_two_requests(server: WebServer, blobs: Path, tmp_path: Path) -> None:
    """Of which the second is made again for another sample of the shard, on one connection."""
    dataset = _dataset(server, tmp_path)
    _only_bytes(dataset)
    plain = StreamingDataset(local=blobs, batch_size=4)
    assert dataset[150] == plain[150]
    assert _asked(server) == (2, 0)
    assert dataset[120] == plain[120]
    assert _asked(server) == (3, 0)
    assert len({entry.client for entry in server.log if entry.range}) == 1
    ids = np.array([7, 300, 8, 211])
    assert list(dataset.take(ids, batch_format="dict")["id"]) == ids.tolist()
    assert _asked(server)[1] == 0


@pytest.mark.parametrize("as_batches", [True, False])
def test_the_first_batch_comes_by_ranges_and_the_epoch_is_right(
    server: WebServer, tmp_path: Path, as_batches: bool
) -> None:
    """Each shard is asked for once, and its header once."""
    dataset = _dataset(server, tmp_path)
    if as_batches:
        seen = [int(i) for batch in dataset.batches(4) for i in batch["id"]]
    else:
        seen = [sample["id"] for sample in dataset]
    assert sorted(seen) == list(range(400))
    ranges, whole = _asked(server)
    assert whole == dataset.num_shards
    assert ranges >= 5
    stats = dataset.stats()
    assert stats["range_requests"] == ranges
    assert stats["range_bytes"] <= 0.15 * stats["bytes_fetched"]


def test_a_server_without_ranges_gives_the_same(blobs: Path, tmp_path: Path) -> None:
    """As it sends all that comes before a range as well, more slowly."""
    with WebServer(blobs, ranges=False) as server:
        dataset = _dataset(server, tmp_path)
        plain = StreamingDataset(local=blobs, batch_size=4)
        assert all(dataset[i] == plain[i] for i in range(0, 400, 9))
        assert _asked(server)[1] <= plain.num_shards


def test_a_server_that_refuses_ranges_is_asked_for_whole_shards(
    blobs: Path, tmp_path: Path
) -> None:
    """Whatever it says to them."""

    def refuse(asked: Asked) -> Said | None:
        return Said(403) if "range" in asked.headers else None

    with WebServer(blobs, answer=refuse) as server:
        dataset = _dataset(server, tmp_path)
        assert sorted(sample["id"] for sample in dataset) == list(range(400))
        assert dataset[7]["id"] == 7


def test_ranges_of_another_version_are_not_mixed(
    server: WebServer, blobs: Path, tmp_path: Path
) -> None:
    """A shard that was replaced between two accesses is read anew, header and all."""
    dataset = _dataset(server, tmp_path)
    _only_bytes(dataset)
    first = dataset[150]
    shard = dataset._streaming_engine.catalogue.find(150)[0]
    name = dataset._streaming_engine.catalogue.info(shard).raw.basename
    data = bytearray((blobs / name).read_bytes())
    before = bytes(data)
    data[-1] ^= 1
    try:
        (blobs / name).write_bytes(bytes(data))
        asked = _asked(server)[0]
        assert dataset[151]["id"] == 151
        assert _asked(server)[0] == asked + 3
        assert dataset[150] == first
    finally:
        (blobs / name).write_bytes(before)


@pytest.mark.process
def test_a_forked_process_asks_by_itself(server: WebServer, tmp_path: Path) -> None:
    """Over connections of its own."""
    dataset = _dataset(server, tmp_path)
    _only_bytes(dataset)
    dataset[150]
    clients = {entry.client for entry in server.log}

    def work() -> None:
        assert dataset[151]["id"] == 151
        assert _ranged(dataset).counts.range_requests == 2

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert {entry.client for entry in server.log[-2:]}.isdisjoint(clients)
    dataset[152]
