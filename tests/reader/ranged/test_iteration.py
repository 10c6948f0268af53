"""Ranges while whole shards come: the first batch at once, the epoch as before."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reader.ranged.making import ONLY_BYTES, CountingStore, catalogue, write_blobs

from streaming_core import StreamingDataLoader, StreamingDataset
from streaming_core._columns import Columns
from streaming_core._store import register_store
from streaming_core.errors import ChecksumError, ShardFetchError, StoreError
from streaming_core.testing import Delay, Fault, FaultStore, FlipBit, LatencyStore, Raise
from streaming_reader._feed import Feed
from streaming_reader._ranged import Line, Outlook
from streaming_reader._shared import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_reader._catalogue import Catalogue

_SECONDS = 30.0
_SLOW = Line(latency=0.001, rate=1e6, whole_rate=1e6)
"""A line on which shards of a mebibyte take a second."""


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 1,000 samples of some 5 to 20 kB in ten shards of a mebibyte."""
    folder = tmp_path_factory.mktemp("blobs") / "remote"
    return write_blobs(folder, 1000, size=10_000, shard=100, varied=True)


def _feed(source: Catalogue, ids: np.ndarray[Any, Any], *, ahead: int = 1000, **given: Any) -> Feed:
    counters = np.zeros(len(COUNTERS), np.int64)
    outlook = Outlook(
        **{"num_samples": len(ids), "sample_bytes": source.mean_sample_bytes, **given}
    )
    return Feed(
        source, iter([ids]), ahead=ahead, timeout=_SECONDS, counters=counters, outlook=outlook
    )


def _range_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streaming-range")]


def _until_no_range_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("streaming-range"):
            thread.join(_SECONDS)
    assert _range_threads() == []


# --- the first batch ------------------------------------------------------------------------------


@pytest.mark.parametrize("varied", [False, True], ids=["even", "varied"])
def test_the_first_batch_comes_in_three_round_trips_and_its_bytes(
    tmp_path: Path, varied: bool
) -> None:
    """Of 256 samples out of some 40 shards of 8 MB, 40 ms away, at 50 MB/s."""
    remote = write_blobs(tmp_path / "remote", 40 * 256, size=1 << 15, shard=256, varied=varied)
    latency, rate = 0.04, 50e6
    store = CountingStore(remote)
    source = catalogue(remote, tmp_path / "local", LatencyStore(store, latency, rate), line=None)
    ids = np.random.default_rng(3).permutation(source.num_samples)
    first = source.locate(ids[:256])
    touched = len(set(first.shards.tolist()))
    assert touched > 35
    began = time.monotonic()
    with _feed(source, ids, ahead=2048) as feed:
        batch = next(feed.batches(256))
        seconds = time.monotonic() - began
    assert _ids(batch) == ids[:256].tolist()
    # Rows follow their header, each asked for once; where all records have one size, none waits.
    assert store.range_calls <= touched + 256
    calls_per_shard = [
        sum(key == k for key, start, _ in store.ranges if not start)
        for k in {key for key, _, _ in store.ranges}
    ]
    assert max(calls_per_shard) == 1
    wanted = int(source.mean_sample_bytes * 256)
    assert store.range_bytes < 1.35 * wanted
    # Far less than one after the other, or than the shards: 6.4 seconds.
    assert seconds < 3 * latency + store.range_bytes / rate + 0.5
    _until_no_range_threads()


def test_an_epoch_reads_little_more_than_its_shards(blobs: Path, tmp_path: Path) -> None:
    """However it goes, and also if several workers of a node share the shards."""
    whole = sum(path.stat().st_size for path in blobs.glob("*.mds"))
    store = CountingStore(blobs)
    slow = LatencyStore(store, 0.002, 20e6)
    sources = [catalogue(blobs, tmp_path, slow, line=_SLOW) for _ in range(4)]
    ids = np.random.default_rng(1).permutation(1000)
    seen: list[int] = []

    def work(worker: int) -> None:
        own = ids[worker::4]
        with _feed(sources[worker], own, ahead=50) as feed:
            for batch in feed.batches(10):
                seen.extend(_ids(batch))
                time.sleep(0.01)  # as a trainer that has something to do

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    assert sorted(seen) == list(range(1000))
    assert store.stream_bytes == whole
    assert 0 < store.range_bytes <= 0.15 * whole


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_whoever_takes_batches_at_once_has_the_shards_delayed_by_the_first_only(
    blobs: Path, tmp_path: Path, pause: float
) -> None:
    """Who works on each gets the next ones by ranges too, until the shards are here."""
    store = CountingStore(blobs)
    source = catalogue(blobs, tmp_path, LatencyStore(store, 0.001, 2e6), line=_SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with _feed(source, ids, ahead=100) as feed:
        batches = feed.batches(2)
        next(batches)
        read = store.range_bytes
        assert read > 0
        time.sleep(pause)
        began = time.monotonic()
        next(batches)
        assert (store.range_bytes > read) == (pause > 0)
        assert pause == 0 or time.monotonic() - began < 0.3


@pytest.mark.parametrize("num_samples", [20, 1000])
def test_an_iteration_reads_no_more_by_ranges_than_a_part_of_what_it_gives(
    blobs: Path, tmp_path: Path, num_samples: int
) -> None:
    """A first batch that would be half of it waits for its shards."""
    store = CountingStore(blobs)
    source = catalogue(blobs, tmp_path, LatencyStore(store, 0.001, 5e6), line=_SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with _feed(source, ids, num_samples=num_samples) as feed:
        assert _ids(next(feed.batches(10))) == ids[:10].tolist()
    assert store.range_bytes <= 1.2 * num_samples * source.mean_sample_bytes / 8
    assert (store.range_bytes > 0) == (num_samples == 1000)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_batches_and_samples_are_the_same_with_and_without_ranges(
    data: st.DataObject, blobs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever comes first: ranges or shards."""
    size = data.draw(st.integers(1, 60))
    count = data.draw(st.integers(1, 400))
    ids = np.random.default_rng(data.draw(st.integers(0, 9))).permutation(1000)[:count]
    speed = data.draw(st.sampled_from([1e6, 20e6, None]))
    thin = data.draw(st.booleans())
    store = CountingStore(blobs)
    source = catalogue(
        blobs,
        tmp_path_factory.mktemp("cold"),
        LatencyStore(store, 0.001, speed),
        line=ONLY_BYTES,
    )
    plain = catalogue(blobs, blobs, None, ranges=False)
    wanted = [plain.sample(*plain.find(int(i))) for i in ids]
    with _feed(
        source, ids, ahead=data.draw(st.integers(0, 300)), thin=frozenset({0} if thin else ())
    ) as feed:
        if data.draw(st.booleans()):
            got = list(feed.samples())
        else:
            got = [row for batch in feed.batches(size) for row in batch.rows()]
    assert got == wanted


def test_samples_come_as_early_as_batches(blobs: Path, tmp_path: Path) -> None:
    """One by one, those needed first by ranges."""
    store = CountingStore(blobs)
    source = catalogue(blobs, tmp_path, LatencyStore(store, 0.001, 1e6), line=_SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    began = time.monotonic()
    with _feed(source, ids, ahead=10) as feed:
        samples = feed.samples()
        assert next(samples)["id"] == ids[0]
    assert time.monotonic() - began < 1.5
    assert store.range_calls > 0


# --- what is not worth its shards -----------------------------------------------------------------


def test_a_tiny_part_is_read_without_the_shards(blobs: Path, tmp_path: Path) -> None:
    """A few samples of all: their bytes, in few rounds, and nothing is kept in the folder."""
    store = CountingStore(blobs)
    _register(store)
    ids: list[int] = []
    dataset = StreamingDataset(
        remote="rangetest://here",
        local=tmp_path / "local",
        batch_size=2,
        epoch_size=12,
        shuffle=True,
    )
    for origin in _ranged(dataset)._origins:
        origin._default = ONLY_BYTES
        origin.renew()
    ids += [sample["id"] for sample in dataset]
    assert len(ids) == 12
    assert store.whole == 0
    assert store.range_bytes < 0.1 * sum(p.stat().st_size for p in blobs.glob("*.mds"))
    assert store.range_calls <= 2 * 10 + 12
    assert not list((tmp_path / "local").glob("*.mds"))
    plain = {sample["id"]: sample for sample in StreamingDataset(local=blobs, batch_size=1)}
    assert all(dataset[at] == plain[at] for at in ids)


# --- what may go wrong ----------------------------------------------------------------------------


def test_ranges_that_fail_leave_it_to_the_shards(blobs: Path, tmp_path: Path) -> None:
    """The batch is later, and right."""
    broken = FaultStore(
        CountingStore(blobs),
        [Fault(Raise(StoreError("reset")), verb="get_ranges", times=None)],
    )
    source = catalogue(blobs, tmp_path, broken, line=_SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with _feed(source, ids) as feed:
        got = [row["id"] for batch in feed.batches(100) for row in batch.rows()]
    assert got == ids.tolist()


def test_ranges_that_hang_are_not_waited_for_once_the_shards_are_here(
    blobs: Path, tmp_path: Path
) -> None:
    """Nor do they keep the iteration from ending."""
    hanging = FaultStore(
        CountingStore(blobs),
        [Fault(Delay(600), verb="get_ranges", times=None)],
    )
    source = catalogue(blobs, tmp_path, hanging, line=_SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    began = time.monotonic()
    try:
        with _feed(source, ids) as feed:
            got = [row["id"] for batch in feed.batches(100) for row in batch.rows()]
        assert got == ids.tolist()
        assert time.monotonic() - began < 10
        assert len(_range_threads()) <= 64
    finally:
        hanging.wake()
    _until_no_range_threads()


def test_shards_that_fail_are_an_error_after_what_ranges_gave(blobs: Path, tmp_path: Path) -> None:
    """Typed, naming the shard, and soon."""
    broken = FaultStore(
        CountingStore(blobs),
        [Fault(Raise(StoreError("reset")), verb="stream", key="*.mds", times=None)],
    )
    source = catalogue(blobs, tmp_path, broken, line=_SLOW, tries=1)
    ids = np.arange(1000)[::-1].copy()
    seen: list[int] = []
    with _feed(source, ids, ahead=100) as feed:
        given = feed.batches(2)
        with pytest.raises(ShardFetchError, match=r"shard\.0"):
            seen.extend(i for batch in given for i in _ids(batch))
    assert seen == ids[: len(seen)].tolist()


@pytest.mark.parametrize("again", [True, False])
def test_bits_that_flip_in_a_range_end_the_epoch(blobs: Path, tmp_path: Path, again: bool) -> None:
    """Also where nothing else is ever wanted of the shard."""
    broken = FaultStore(
        LatencyStore(CountingStore(blobs), 0.001, 1e6),
        [Fault(FlipBit(8 * 1000 + 3), verb="get_ranges", nth=2)],
    )
    source = catalogue(blobs, tmp_path, broken, line=_SLOW)
    ids = np.concatenate((900 + 15 * np.arange(5), np.arange(1000)))
    seen: list[int] = []
    with _feed(source, ids if again else ids[:5], num_samples=1000) as feed:
        given = feed.batches(5)
        with pytest.raises(ChecksumError, match="range"):
            seen.extend(i for batch in given for i in _ids(batch))
    assert len(seen) < 1000 if again else seen == ids[:5].tolist()


def test_nothing_is_left_of_an_iteration(blobs: Path, tmp_path: Path) -> None:
    """Neither threads nor files, when it is given up in the midst of its first batches."""
    source = catalogue(blobs, tmp_path, LatencyStore(CountingStore(blobs), 0.01, 1e6), line=_SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with _feed(source, ids, ahead=0) as feed:
            next(feed.batches(3))
    _until_no_range_threads()
    for thread in threading.enumerate():
        if thread.name.startswith("streaming-fetch"):
            thread.join(_SECONDS)
    assert len(os.listdir("/proc/self/fd")) <= before + source.num_shards  # noqa: PTH208
    assert not list((tmp_path / ".streaming" / "parts").iterdir())


def test_a_limit_of_the_cache_holds(blobs: Path, tmp_path: Path) -> None:
    """What is read by ranges is not in the folder, and not in its books."""
    store = CountingStore(blobs)
    _register(LatencyStore(store, 0.001))
    dataset = StreamingDataset(
        remote="rangetest://here",
        local=tmp_path,
        batch_size=10,
        shuffle=True,
        cache_limit="4mb",
        predownload=20,
    )
    for origin in _ranged(dataset)._origins:
        origin._default = _SLOW
        origin.renew()
    seen: list[int] = []
    for batch in dataset.batches(10):
        seen += batch["id"].tolist()
        assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) <= 6 << 20
    assert sorted(seen) == list(range(1000))
    assert store.range_calls > 0


# --- loaders --------------------------------------------------------------------------------------


def _register(store: Any) -> None:
    register_store("rangetest", lambda _: store)


def _ranged(dataset: StreamingDataset) -> Any:
    found = dataset._catalogue.ranged
    assert found is not None
    return found


@pytest.mark.parametrize(("method", "native"), [("fork", True), ("fork", False), ("spawn", True)])
def test_workers_read_by_ranges(blobs: Path, tmp_path: Path, method: str, native: bool) -> None:
    """Each its own first batches; the loader's batches are those of local data, and are counted."""
    store = CountingStore(blobs)
    _register(LatencyStore(store, 0.001, 4e6))

    def loader(method: str, **given: Any) -> tuple[StreamingDataset, Iterator[Any]]:
        dataset = StreamingDataset(batch_size=10, shuffle=True, predownload=40, **given)
        for origin in dataset._catalogue.ranged._origins if dataset._catalogue.ranged else ():
            origin._default = _SLOW
        kind: Any = StreamingDataLoader if native else torch.utils.data.DataLoader
        options = {} if native else {"collate_fn": list}
        return dataset, iter(
            kind(
                dataset,
                batch_size=10,
                num_workers=2,
                multiprocessing_context=method,
                **options,
            )
        )

    dataset, batches = loader(method, remote="rangetest://here", local=tmp_path / "local")
    got = [_ids(batch) for batch in batches]
    stats = dataset.stats()
    assert stats["range_requests"] > 0
    assert stats["range_bytes"] > 0
    assert got == [_ids(batch) for batch in loader("fork", local=blobs)[1]]
    del batches
    assert multiprocessing.active_children() == []


def _ids(batch: Any) -> list[int]:
    """Return the ids of a batch of any kind."""
    if isinstance(batch, Columns):
        return [row["id"] for row in batch.rows()]
    if isinstance(batch, list):
        return [sample["id"] for sample in batch]
    found: list[int] = batch["id"].tolist()
    return found
