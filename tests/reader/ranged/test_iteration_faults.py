"""Ranges while whole shards come, when something fails: the right samples, or an error."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.reader.cache.making import folder_bytes
from tests.reader.ranged.feeding import (
    SLOW,
    feed_of,
    ids_of,
    range_threads,
    ranged_of,
    register,
    until_no_range_threads,
)
from tests.reader.ranged.making import (
    SECONDS,
    CountingStore,
    HeldStore,
    catalogue,
)
from tests.reader.waiting import until, until_fetched

from streaming_core import StreamingDataset
from streaming_core.errors import ChecksumError, ShardFetchError, StoreError
from streaming_core.testing import Delay, Fault, FaultStore, FlipBit, LatencyStore, Raise

if TYPE_CHECKING:
    from pathlib import Path


def test_ranges_that_fail_leave_it_to_the_shards(blobs: Path, tmp_path: Path) -> None:
    """The batch is later, and right."""
    broken = FaultStore(
        CountingStore(blobs),
        [Fault(Raise(StoreError("reset")), verb="get_ranges", times=None)],
    )
    source = catalogue(blobs, tmp_path, broken, line=SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    with feed_of(source, ids) as feed:
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
    source = catalogue(blobs, tmp_path, hanging, line=SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    began = time.monotonic()
    try:
        with feed_of(source, ids) as feed:
            got = [row["id"] for batch in feed.batches(100) for row in batch.rows()]
        assert got == ids.tolist()
        assert time.monotonic() - began < 0.8 * SECONDS
        assert len(range_threads()) <= 64
    finally:
        hanging.wake()
    until_no_range_threads()


def test_shards_that_fail_are_an_error_after_what_ranges_gave(blobs: Path, tmp_path: Path) -> None:
    """Typed, naming the shard, and soon."""
    broken = FaultStore(
        CountingStore(blobs),
        [Fault(Raise(StoreError("reset")), verb="stream", key="*.mds", times=None)],
    )
    source = catalogue(blobs, tmp_path, broken, line=SLOW, tries=1)
    ids = np.arange(1000)[::-1].copy()
    seen: list[int] = []
    with feed_of(source, ids, ahead=100) as feed:
        given = feed.batches(2)
        with pytest.raises(ShardFetchError, match=r"shard\.0"):
            seen.extend(i for batch in given for i in ids_of(batch))
    assert seen == ids[: len(seen)].tolist()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("rest", [0, 2, 1000])
def test_bits_that_flip_in_a_range_end_the_epoch(
    blobs: Path, tmp_path: Path, rest: int, drop_last: bool
) -> None:
    """Also where nothing else is ever wanted of the shard, or what comes then is left out."""
    store = HeldStore(blobs)
    broken = FaultStore(store, [Fault(FlipBit(8 * 1000 + 3), verb="get_ranges", nth=2)])
    source = catalogue(blobs, tmp_path, broken, line=SLOW)
    ids = np.concatenate((900 + 15 * np.arange(5), np.arange(rest)))
    seen: list[int] = []
    with feed_of(source, ids, num_samples=1000) as feed:
        given = feed.batches(5, drop_last=drop_last)
        try:
            seen += ids_of(next(given))
        finally:
            store.let_go.set()
        with pytest.raises(ChecksumError, match="range"):
            seen.extend(i for batch in given for i in ids_of(batch))
    assert seen == ids[: len(seen)].tolist()
    assert len(seen) < 1000


def test_nothing_is_left_of_an_iteration(blobs: Path, tmp_path: Path) -> None:
    """Neither threads nor files, when it is given up in the midst of its first batches."""
    store = CountingStore(blobs)
    source = catalogue(blobs, tmp_path, LatencyStore(store, 0.01, 1e6), line=SLOW)
    ids = np.random.default_rng(1).permutation(1000)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with feed_of(source, ids, ahead=0) as feed:
            next(feed.batches(3))
            until(lambda: store.whole > 0)  # some shards are on their way
    until_no_range_threads()
    until_fetched()
    # What another test left open may be closed meanwhile, but nothing is opened.
    assert len(os.listdir("/proc/self/fd")) <= before + source.num_shards  # noqa: PTH208
    assert not list((tmp_path / ".streaming" / "parts").iterdir())


def test_a_limit_of_the_cache_holds(blobs: Path, tmp_path: Path) -> None:
    """What is read by ranges is not in the folder, and not in its books."""
    store = CountingStore(blobs)
    register(LatencyStore(store, 0.001))
    dataset = StreamingDataset(
        remote="rangetest://here",
        local=tmp_path,
        batch_size=10,
        shuffle=True,
        cache_limit="4mb",
        predownload=20,
    )
    for origin in ranged_of(dataset)._origins:
        origin._default = SLOW
        origin.renew()
    seen: list[int] = []
    for batch in dataset.batches(10):
        seen += batch["id"].tolist()
        assert folder_bytes(tmp_path, parts=True) <= 6 << 20
    assert sorted(seen) == list(range(1000))
    assert store.range_calls > 0
