"""How the cache fetches: wrong bytes, faults of the store, hashes, threads and forks."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.cache.making import (
    NUM_SAMPLES,
    LoggedStore,
    Made,
    all_ids,
    expected,
    ids,
    make,
    names,
    ordinary_files,
)
from tests.reader.waiting import until

from streaming_core.errors import (
    AccessDeniedError,
    ChecksumError,
    ObjectNotFoundError,
    SchemaError,
    ShardFetchError,
    ShardSizeError,
    StoreError,
    WaitTimeoutError,
)
from streaming_core.testing import (
    Die,
    Fault,
    FaultStore,
    FlipBit,
    LatencyStore,
    Raise,
    Truncate,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a plain dataset."""
    return make(tmp_path / "remote")


# --- what is wrong there --------------------------------------------------------------------------


def _damaged(made: Made, fault: Fault) -> FaultStore:
    return FaultStore(made.store, [fault])


@pytest.mark.parametrize("action", [FlipBit(333), Truncate(100)], ids=["flip", "cut"])
@pytest.mark.parametrize("compression", [None, "zstd", "gz"])
def test_wrong_bytes_are_fetched_once_more_and_then_raised(
    tmp_path: Path, action: Any, compression: str | None
) -> None:
    """One wrong answer is survived; two are an error that says what was wrong, and no file."""
    made = make(tmp_path / "remote", compression=compression)
    local = tmp_path / "local"
    name = made.table.shard(1).files()["zip" if compression else "raw"].basename
    once = _damaged(made, Fault(action, verb="stream", key=name))
    assert ids(made.cache(tmp_path / "other", remote=once).open(1)) == expected(made, 1)
    always = _damaged(made, Fault(action, verb="stream", key=name, times=None))
    cache = made.cache(local, remote=always)
    with pytest.raises(ShardFetchError, match=name) as caught:
        cache.open(1)
    error = caught.value
    assert (error.shard, error.basename, error.url, error.attempts) == (1, name, made.store.url, 2)
    assert isinstance(error.__cause__, (ChecksumError, ShardSizeError, ValueError))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.attempts, copy.url) == (str(error), 2, made.store.url)
    assert ordinary_files(local) == set()
    assert set(names(local / ".streaming/parts")) <= {f"{made.table.shard(1).raw.basename}.bad"}
    assert ids(cache.open(0)) == expected(made, 0)


def test_a_larger_object_is_refused_unread(made: Made, tmp_path: Path) -> None:
    """An object of more bytes than the index says is an error, not a full disk."""
    path = made.folder / made.table.shard(0).raw.basename
    path.write_bytes(path.read_bytes() * 3)
    with pytest.raises(ShardFetchError, match="more"):
        made.cache(tmp_path / "local").open(0)


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_broken_stream_goes_on_where_it_broke(tmp_path: Path, compression: str | None) -> None:
    """With a hash to judge the whole, no byte is fetched twice; without one, all are."""
    made = make(tmp_path / "remote", compression=compression)
    broken = Fault(Die(100), verb="stream", times=2)
    size = made.table.shard(1).files()["zip" if compression else "raw"].bytes
    for sums, wanted in ((True, size), (False, size + 200)):
        store = _CountingStore(made.store, [broken])
        cache = made.cache(tmp_path / f"local-{sums}", remote=store, sums=sums, tries=3)
        assert ids(cache.open(1)) == expected(made, 1)
        assert (store.count("stream"), store.streamed) == (3, wanted)


class _CountingStore(FaultStore):
    """Counts the bytes it hands out."""

    streamed = 0

    def stream(self, key: str, **options: Any) -> Any:
        """Yield the pieces, counted."""
        for piece in super().stream(key, **options):
            self.streamed += len(piece)
            yield piece


def test_faults_of_the_store_are_retried_as_often_as_allowed(made: Made, tmp_path: Path) -> None:
    """`tries` requests fail before the fetch does; the error carries the store's own."""
    reset = Raise(StoreError("connection reset"))
    passing = _damaged(made, Fault(reset, verb="stream", times=2))
    assert made.cache(tmp_path / "a", remote=passing, tries=3).open(0)
    lasting = _damaged(made, Fault(reset, verb="stream", times=None))
    with pytest.raises(ShardFetchError, match="connection reset") as caught:
        made.cache(tmp_path / "b", remote=lasting, tries=2).open(0)
    assert caught.value.attempts == lasting.count("stream") == 2
    assert isinstance(caught.value.__cause__, StoreError)


@pytest.mark.parametrize("error", [AccessDeniedError("denied"), ObjectNotFoundError("none")])
def test_an_answer_of_no_is_raised_at_once(made: Made, tmp_path: Path, error: StoreError) -> None:
    """What is denied or missing is not asked for again, and another iteration may succeed."""
    store = _damaged(made, Fault(Raise(error), verb="stream"))
    cache = made.cache(tmp_path / "local", remote=store, tries=5)
    with pytest.raises(ShardFetchError) as caught:
        cache.open(0)
    assert (store.count("stream"), type(caught.value.__cause__)) == (1, type(error))
    assert ids(cache.open(0)) == expected(made, 0)


def test_a_slow_download_ends_at_its_timeout(made: Made, tmp_path: Path) -> None:
    """A store that trickles is given up in time, with an error that says so."""
    store = LoggedStore(made.folder, tmp_path / "log", piece=1, seconds=0.05)
    # At this pace the shard would be there after a minute, without an error.
    with pytest.raises(ShardFetchError, match="download timeout"):
        made.cache(tmp_path / "local", remote=store, timeout=0.2, tries=2).open(0)


# --- hashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_hash_that_was_asked_for_is_checked(tmp_path: Path, compression: str | None) -> None:
    """`validate_hash` compares the stored file with the index, also where nothing else would."""
    made = make(tmp_path / "remote", compression=compression, hashes=["sha256"])
    store = _damaged(made, Fault(FlipBit(8 * 90), verb="stream", times=None))
    with pytest.raises(ShardFetchError):
        made.cache(tmp_path / "a", remote=store, sums=False, validate_hash="sha256").open(0)
    cache = made.cache(tmp_path / "b", sums=False, validate_hash="sha256")
    assert ids(cache.open(0)) == expected(made, 0)


def test_a_hash_that_the_index_lacks_is_refused(made: Made, tmp_path: Path) -> None:
    """Asking to validate what was never written is an error before anything is fetched."""
    with pytest.raises(SchemaError, match="md5"):
        made.cache(tmp_path / "local", validate_hash="md5")
    with pytest.raises(SchemaError, match="md6"):
        made.cache(tmp_path / "local", validate_hash="md6")


# --- together -------------------------------------------------------------------------------------


def test_threads_fetch_a_shard_once(made: Made, tmp_path: Path) -> None:
    """Of eight threads that want the same shards, one fetches each."""
    store = FaultStore(LatencyStore(made.store, 0.01))
    cache = made.cache(tmp_path / "local", remote=store)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: all_ids(cache, made), range(8)))
    assert found == [list(range(NUM_SAMPLES))] * 8
    assert store.count("stream") == made.num_shards


def test_waiting_for_another_fetch_has_a_deadline(made: Made, tmp_path: Path) -> None:
    """Who waits in vain is told for which shard, and may try again later."""
    slow = LatencyStore(made.store, 240.0)
    local = tmp_path / "local"
    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(made.cache(local, remote=slow).open, 0)
        part = local / ".streaming/parts" / f"{made.table.shard(0).raw.basename}.lock"
        until(part.exists)
        other = made.cache(local)
        with pytest.raises(WaitTimeoutError, match=made.table.shard(0).raw.basename) as caught:
            other.open(0, timeout=0.2)
        assert str(os.getpid()) in str(caught.value)
        slow.wake()
        assert ids(fetching.result(120)) == expected(made, 0)
    assert ids(other.open(0)) == expected(made, 0)


def test_a_copy_by_pickle_works(made: Made, tmp_path: Path) -> None:
    """A pickled cache opens what the first has fetched, with nothing open of its own before."""
    cache = made.cache(tmp_path / "local")
    cache.open(0)
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.folder, copy.source) == (cache.folder, made.store.url)
    assert all_ids(copy, made) == list(range(NUM_SAMPLES))


@pytest.mark.process
@pytest.mark.essential
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_holds_no_lock_of_its_parent(made: Made, tmp_path: Path) -> None:
    """A child forked while its parent fetches blocks nobody, and keeps what it has mapped."""
    local = tmp_path / "local"
    slow = LatencyStore(made.store, 240.0)
    cache = made.cache(local, remote=slow)
    ready = made.cache(local)
    mapped = ready.open(1)
    context = multiprocessing.get_context("fork")
    go = context.Event()

    def child() -> None:
        assert ids(mapped) == expected(made, 1)
        assert ids(ready.open(1)) == expected(made, 1)
        assert go.wait(240)

    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(cache.open, 0)
        until((local / ".streaming/parts" / f"{made.table.shard(0).raw.basename}.lock").exists)
        process = context.Process(target=child)
        process.start()
        slow.wake()
        fetching.result(120)
        # The child still lives, and must not have the lock that its parent has given back.
        ready.evict(0)
        assert ids(ready.open(0, timeout=60)) == expected(made, 0)
        go.set()
        process.join(120)
    assert process.exitcode == 0
