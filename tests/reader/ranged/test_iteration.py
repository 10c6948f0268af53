"""Ranges while whole shards come: the first batch at once, the epoch as before."""

from __future__ import annotations

import multiprocessing
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.reader.ranged.feeding import (
    SLOW,
    feed_of,
    ids_of,
    ranged_of,
    register,
    until_no_range_threads,
)
from tests.reader.ranged.making import (
    ONLY_BYTES,
    SECONDS,
    CountingStore,
    HeldStore,
    WideStore,
    catalogue,
    write_blobs,
)
from tests.reader.waiting import until

from streaming_core import StreamingDataLoader, StreamingDataset
from streaming_core.testing import LatencyStore
from streaming_reader._ranged import Line, _forerun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 1,000 samples of some 1 to 4 kB in ten shards."""
    folder = tmp_path_factory.mktemp("small") / "remote"
    return write_blobs(folder, 1000, size=2000, shard=100, varied=True)


# --- the first batch ------------------------------------------------------------------------------


@pytest.mark.parametrize("varied", [False, True], ids=["even", "varied"])
def test_the_first_batch_comes_in_two_rounds_of_requests_side_by_side(
    tmp_path: Path, varied: bool
) -> None:
    """Of 256 samples out of some 40 shards of 1 MB, none of which is waited for.

    All headers are asked for together, then all rows; where all records have one size, no row waits
    for its header.
    """
    remote = write_blobs(tmp_path / "remote", 40 * 256, size=1 << 12, shard=256, varied=varied)
    far = Line(latency=0.04, rate=1e8, whole_rate=1e7)
    plain = catalogue(remote, tmp_path / "plain", None, ranges=False)
    ids = np.random.default_rng(3).permutation(plain.num_samples)
    touched = len(set(plain.locate(ids[:256]).shards.tolist()))
    assert touched > 35
    store = WideStore(remote, (touched, touched if varied else 1))
    source = catalogue(remote, tmp_path / "local", store, line=far)
    with feed_of(source, ids, ahead=2048) as feed:
        try:
            batch = next(feed.batches(256))
        finally:
            store.let_go.set()
    assert store.is_wide
    assert ids_of(batch) == ids[:256].tolist()
    # Each row is asked for once.
    assert store.range_calls <= touched + 256
    calls_per_shard = [
        sum(key == k for key, start, _ in store.ranges if not start)
        for k in {key for key, _, _ in store.ranges}
    ]
    assert max(calls_per_shard) == 1
    assert store.range_bytes < 1.5 * int(source.mean_sample_bytes * 256)
    until_no_range_threads()


def test_an_epoch_reads_little_more_than_its_shards(blobs: Path, tmp_path: Path) -> None:
    """However it goes, and also if several workers of a node share the shards."""
    whole = sum(path.stat().st_size for path in blobs.glob("*.mds"))
    store = CountingStore(blobs)
    slow = LatencyStore(store, 0.002, 20e6)
    sources = [catalogue(blobs, tmp_path, slow, line=SLOW) for _ in range(4)]
    ids = np.random.default_rng(1).permutation(1000)
    seen: list[int] = []

    def work(worker: int) -> None:
        own = ids[worker::4]
        with feed_of(sources[worker], own, ahead=50) as feed:
            for batch in feed.batches(10):
                seen.extend(ids_of(batch))
                time.sleep(0.01)  # as a trainer that has something to do

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(seen) == list(range(1000))
    assert store.stream_bytes == whole
    assert 0 < store.range_bytes <= 0.15 * whole


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_whoever_takes_batches_at_once_has_the_shards_delayed_by_the_first_only(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """Who works on each gets the next ones by ranges too, until the shards are here."""
    clock = [0.0]
    monkeypatch.setattr(_forerun, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    store = HeldStore(blobs)
    source = catalogue(blobs, tmp_path, LatencyStore(store, 0.001, 2e6), line=SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with feed_of(source, ids, ahead=100) as feed:
        try:
            batches = feed.batches(2)
            next(batches)
            read = store.range_bytes
            assert read > 0
            clock[0] += pause
            if not pause:
                store.let_go.set()
            next(batches)
            assert (store.range_bytes > read) == (pause > 0)
        finally:
            store.let_go.set()


@pytest.mark.parametrize("num_samples", [20, 1000])
def test_an_iteration_reads_no_more_by_ranges_than_a_part_of_what_it_gives(
    blobs: Path, tmp_path: Path, num_samples: int
) -> None:
    """A first batch that would be half of it waits for its shards."""
    store = CountingStore(blobs)
    source = catalogue(blobs, tmp_path, LatencyStore(store, 0.001, 5e6), line=SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with feed_of(source, ids, num_samples=num_samples) as feed:
        assert ids_of(next(feed.batches(10))) == ids[:10].tolist()
    assert store.range_bytes <= 1.2 * num_samples * source.mean_sample_bytes / 8
    assert (store.range_bytes > 0) == (num_samples == 1000)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_batches_and_samples_are_the_same_with_and_without_ranges(
    data: st.DataObject, small: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever comes first: ranges or shards."""
    blobs = small
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
    with feed_of(
        source, ids, ahead=data.draw(st.integers(0, 300)), thin=frozenset({0} if thin else ())
    ) as feed:
        if data.draw(st.booleans()):
            got = list(feed.samples())
        else:
            got = [row for batch in feed.batches(size) for row in batch.rows()]
    assert got == wanted


def test_samples_come_as_early_as_batches(blobs: Path, tmp_path: Path) -> None:
    """One by one, those needed first by ranges."""
    store = HeldStore(blobs)
    source = catalogue(blobs, tmp_path, store, line=SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with feed_of(source, ids, ahead=10) as feed:
        try:
            assert next(feed.samples())["id"] == ids[0]
            assert store.stream_bytes == 0
        finally:
            store.let_go.set()
    assert store.range_calls > 0


# --- what is not worth its shards -----------------------------------------------------------------


def test_a_tiny_part_is_read_without_the_shards(blobs: Path, tmp_path: Path) -> None:
    """A few samples of all: their bytes, in few rounds, and nothing is kept in the folder."""
    store = CountingStore(blobs)
    register(store)
    ids: list[int] = []
    dataset = StreamingDataset(
        remote="rangetest://here",
        local=tmp_path / "local",
        batch_size=2,
        epoch_size=12,
        shuffle=True,
    )
    for origin in ranged_of(dataset)._origins:
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


# --- loaders --------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(("method", "native"), [("fork", True), ("fork", False), ("spawn", True)])
def test_workers_read_by_ranges(blobs: Path, tmp_path: Path, method: str, native: bool) -> None:
    """Each its own first batches; the loader's batches are those of local data, and are counted."""
    store = CountingStore(blobs)
    register(LatencyStore(store, 0.001, 4e6))

    def loader(method: str, **given: Any) -> tuple[StreamingDataset, Iterator[Any]]:
        dataset = StreamingDataset(batch_size=10, shuffle=True, predownload=40, **given)
        for origin in (
            dataset._streaming_engine.catalogue.ranged._origins
            if dataset._streaming_engine.catalogue.ranged
            else ()
        ):
            origin._default = SLOW
        kind: Any = StreamingDataLoader if native else torch.utils.data.DataLoader
        options = {} if native else {"collate_fn": list}
        return dataset, iter(
            kind(
                dataset,
                batch_size=10,
                num_workers=1 if method == "spawn" else 2,
                multiprocessing_context=method,
                **options,
            )
        )

    dataset, batches = loader(method, remote="rangetest://here", local=tmp_path / "local")
    got = [ids_of(batch) for batch in batches]
    stats = dataset.stats()
    assert stats["range_requests"] > 0
    assert stats["range_bytes"] > 0
    assert got == [ids_of(batch) for batch in loader("fork", local=blobs)[1]]
    del batches
    until(lambda: not multiprocessing.active_children())
