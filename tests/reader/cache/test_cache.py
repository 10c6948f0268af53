"""The cache of one data set: what it fetches, where it puts it, what it trusts, what it raises."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.cache.making import (
    NUM_SAMPLES,
    LoggedStore,
    Made,
    expected,
    ids,
    make,
    names,
    ordinary_files,
)

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

KINDS = [(None, False), ("zstd:1", False), ("gz", True), (None, True)]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a plain data set."""
    return make(tmp_path / "remote")


def _all_ids(cache: Any, made: Made) -> list[int]:
    return [i for shard in range(made.num_shards) for i in ids(cache.open(shard))]


def _overwrite(path: Path, at: int = 40) -> None:
    """Flip bits of a file in place, as a failing disk or a careless user does."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


# --- where files lie ------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_zip", [False, True])
@pytest.mark.parametrize(("compression", "text"), KINDS)
def test_reads_all_and_lays_files_out_as_the_index_names_them(
    tmp_path: Path, compression: str | None, text: bool, keep_zip: bool
) -> None:
    """Decompressed files lie under their names, compressed ones only if they are kept."""
    made = make(tmp_path / "remote", compression=compression, text=text)
    local = tmp_path / "local"
    cache = made.cache(local, keep_zip=keep_zip)
    assert _all_ids(cache, made) == list(range(NUM_SAMPLES))
    wanted = set()
    for i in range(made.num_shards):
        for role, file in made.table.shard(i).files().items():
            if keep_zip or not role.startswith("zip"):
                wanted.add(file.basename)
    assert ordinary_files(local) == wanted
    assert names(local / ".streaming/parts") == []
    assert cache.usage() == sum((local / name).stat().st_size for name in wanted)


@pytest.mark.parametrize(("compression", "text"), KINDS)
def test_a_filled_folder_needs_no_remote(
    tmp_path: Path, compression: str | None, text: bool
) -> None:
    """What one cache has fetched another opens without asking the store."""
    made = make(tmp_path / "remote", compression=compression, text=text)
    local = tmp_path / "local"
    _all_ids(made.cache(local), made)
    silent = FaultStore(made.store)
    assert _all_ids(made.cache(local, remote=silent), made) == list(range(NUM_SAMPLES))
    assert silent.calls == []


@pytest.mark.parametrize("text", [False, True])
def test_without_a_remote_compressed_files_are_expanded_and_kept(
    tmp_path: Path, text: bool
) -> None:
    """A local data set is decompressed beside itself and keeps its files; no folder is left."""
    made = make(tmp_path / "remote", compression="zstd", text=text)
    before = ordinary_files(made.folder)
    for remote in (None, made.store):  # a remote that is the folder itself is none
        cache = type(made.cache(made.folder))(made.table, remote, made.folder)
        assert _all_ids(cache, made) == list(range(NUM_SAMPLES))
        assert not any(cache.evict(shard) for shard in range(made.num_shards))
        assert cache.evict_coldest() is None
    assert before < ordinary_files(made.folder)
    assert not (made.folder / ".streaming").exists()


def test_without_a_remote_nothing_is_written_where_nothing_is_needed(made: Made) -> None:
    """Reading plain local shards leaves the folder as it was; what is missing is an error."""
    before = names(made.folder)
    cache = made.cache(made.folder)
    assert _all_ids(cache, made) == list(range(NUM_SAMPLES))
    (made.folder / made.table.shard(3).raw.basename).unlink()
    with pytest.raises(ShardFetchError, match="no remote") as caught:
        made.cache(made.folder).open(3)
    assert isinstance(caught.value.__cause__, ObjectNotFoundError)
    assert len(names(made.folder)) == len(before) - 1


def test_a_local_compressed_file_is_used_before_the_remote(tmp_path: Path) -> None:
    """A kept compressed file is expanded again; a broken one is fetched again."""
    made = make(tmp_path / "remote", compression="zstd")
    local = tmp_path / "local"
    _all_ids(made.cache(local, keep_zip=True), made)
    for i in range(made.num_shards):
        (local / made.table.shard(i).raw.basename).unlink()
    packed = made.table.shard(2).zip
    assert packed is not None
    _overwrite(local / packed.basename, 20)
    store = FaultStore(made.store)
    assert _all_ids(made.cache(local, remote=store, keep_zip=True), made) == list(
        range(NUM_SAMPLES)
    )
    assert [call.key for call in store.calls] == [packed.basename]


def test_names_with_folders_and_hostile_looks_work(tmp_path: Path) -> None:
    """Shards of a merged data set lie in sub-folders, whatever they are called."""
    made = make(tmp_path / "remote/part 0%2Fx")
    whole = made.table.with_prefix("part 0%2Fx")
    local = tmp_path / "local"
    store = type(made.store)(tmp_path / "remote")
    cache = type(made.cache(local))(whole, store, local)
    assert [i for k in range(made.num_shards) for i in ids(cache.open(k))] == list(
        range(NUM_SAMPLES)
    )
    assert cache.usage() == whole.total_bytes("raw")
    assert cache.evict(0)
    assert not cache.has(0)


# --- hits -----------------------------------------------------------------------------------------


def test_an_open_shard_is_the_same_object_until_it_falls_out(made: Made, tmp_path: Path) -> None:
    """A hit gives the mapped shard itself; of more than `max_open` the oldest is let go."""
    cache = made.cache(tmp_path / "local", max_open=2)
    first = cache.open(0)
    assert cache.open(0) is first
    cache.open(1)
    assert cache.open(0) is first
    cache.open(2)
    assert cache.open(0) is first
    cache.open(1)
    cache.open(2)
    assert cache.open(0) is not first
    assert ids(first) == expected(made, 0)


def test_readers_outlive_eviction(made: Made, tmp_path: Path) -> None:
    """Who has a shard reads on after its file is gone, and another open fetches it anew."""
    cache = made.cache(tmp_path / "local")
    shard = cache.open(1)
    assert cache.evict(1)
    assert not cache.evict(1)
    assert (cache.has(1), ids(shard)) == (False, expected(made, 1))
    assert ids(cache.open(1)) == expected(made, 1)


def test_prepare_fetches_without_keeping_anything_open(made: Made, tmp_path: Path) -> None:
    """A prepared shard is there, and opens without the store."""
    store = FaultStore(made.store)
    cache = made.cache(tmp_path / "local", remote=store)
    cache.prepare(4)
    cache.prepare(4)
    assert (cache.has(4), cache.has(5), store.count("stream")) == (True, False, 1)
    assert ids(cache.open(4)) == expected(made, 4)
    assert store.count("stream") == 1


def test_the_coldest_goes_first_and_the_held_last(made: Made, tmp_path: Path) -> None:
    """Eviction follows the last use over processes; what is mapped waits until nothing else is."""
    local = tmp_path / "local"
    cache = made.cache(local, max_open=1)
    for shard in (3, 1, 2, 0):
        cache.open(shard)
    assert [cache.evict_coldest() for _ in range(5)] == [3, 1, 2, 0, None]
    holder = made.cache(local)
    held = holder.open(5)
    cache.prepare(6)
    assert [cache.evict_coldest() for _ in range(3)] == [6, 5, None]
    assert ids(held) == expected(made, 5)


@pytest.mark.parametrize("number", [-1, 10_000])
def test_refuses_shards_that_are_none(made: Made, tmp_path: Path, number: int) -> None:
    """A number outside the index is an `IndexError` in every verb."""
    cache = made.cache(tmp_path / "local")
    for verb in (cache.open, cache.prepare, cache.has, cache.evict):
        with pytest.raises(IndexError, match=str(number)):
            verb(number)


# --- what is wrong here ---------------------------------------------------------------------------


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer"])
@pytest.mark.parametrize(("compression", "text"), KINDS)
def test_damaged_files_are_healed(
    tmp_path: Path, compression: str | None, text: bool, damage: str, sums: bool
) -> None:
    """Whatever happens to a cached file, the next opener gets the right samples."""
    made = make(tmp_path / "remote", compression=compression, text=text)
    local = tmp_path / "local"
    _all_ids(made.cache(local, sums=sums), made)
    path = local / made.table.shard(2).raw.basename
    whole = path.read_bytes()
    if damage == "flip":
        _overwrite(path)
    else:
        path.write_bytes({"cut": whole[:-9], "empty": b"", "longer": whole + b"x"}[damage])
    store = FaultStore(made.store)
    assert _all_ids(made.cache(local, remote=store, sums=sums), made) == list(range(NUM_SAMPLES))
    assert path.read_bytes() == whole
    stored = {file.basename for file in made.table.shard(2).files().values()}
    assert {call.key for call in store.calls} <= stored
    assert len(names(local / ".streaming/parts")) <= 1


def test_files_that_were_there_before_are_checked_once(made: Made, tmp_path: Path) -> None:
    """A copied data set is compared with its hashes at first sight, and not again."""
    local = tmp_path / "local"
    shutil.copytree(made.folder, local)
    _overwrite(local / made.table.shard(1).raw.basename)
    store = FaultStore(made.store)
    assert _all_ids(made.cache(local, remote=store), made) == list(range(NUM_SAMPLES))
    assert store.count() == 1
    ledger = (local / ".streaming/ledger").read_bytes()
    assert _all_ids(made.cache(local, remote=store), made) == list(range(NUM_SAMPLES))
    assert len((local / ".streaming/ledger").read_bytes()) == len(ledger)


def test_few_wrong_files_are_kept(made: Made, tmp_path: Path) -> None:
    """Of a shard one wrong file is kept to be looked at, and of many shards some."""
    local = tmp_path / "local"
    _all_ids(made.cache(local), made)
    for _ in range(2):
        for i in range(made.num_shards):
            _overwrite(local / made.table.shard(i).raw.basename)
        assert _all_ids(made.cache(local), made) == list(range(NUM_SAMPLES))
    kept = names(local / ".streaming/parts")
    assert 0 < len(kept) <= 8
    assert all(name.endswith(".bad") for name in kept)


@pytest.mark.parametrize("damage", ["garbage", "cut", "gone", "other"])
def test_a_lost_ledger_is_made_anew(made: Made, tmp_path: Path, damage: str) -> None:
    """Nothing depends on the ledger: cut, overwritten or of other data, all reads stay right."""
    local = tmp_path / "local"
    cache = made.cache(local, max_open=1)
    _all_ids(cache, made)
    path = local / ".streaming/ledger"
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        other = data[:24] + bytes(32) + data[56:]
        path.write_bytes(
            {"garbage": os.urandom(len(data)), "cut": data[:50], "other": other}[damage]
        )
    assert _all_ids(cache, made) == list(range(NUM_SAMPLES))
    assert cache.evict_coldest() is not None
    assert len(path.read_bytes()) == len(data)


def test_without_a_remote_wrong_files_are_errors(tmp_path: Path) -> None:
    """What cannot be fetched again is raised, and stays where it is."""
    made = make(tmp_path / "remote", hashes=["sha1"])
    path = made.folder / made.table.shard(1).raw.basename
    whole = path.read_bytes()
    _overwrite(path, len(whole) - 3)
    local = type(made.cache(made.folder))
    with pytest.raises(ChecksumError, match="sha1"):
        made.cache(made.folder, sums=False, validate_hash="sha1").open(1)
    path.write_bytes(whole[:-1])
    with pytest.raises(ShardSizeError, match=str(len(whole))):
        local(made.table, None, made.folder).open(1)
    assert path.exists()


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
    began = time.monotonic()
    with pytest.raises(ShardFetchError, match="download timeout"):
        made.cache(tmp_path / "local", remote=store, timeout=0.2, tries=2).open(0)
    assert time.monotonic() - began < 20


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
        found = list(pool.map(lambda _: _all_ids(cache, made), range(8)))
    assert found == [list(range(NUM_SAMPLES))] * 8
    assert store.count("stream") == made.num_shards


def test_waiting_for_another_fetch_has_a_deadline(made: Made, tmp_path: Path) -> None:
    """Who waits in vain is told for which shard, and may try again later."""
    slow = LatencyStore(made.store, 60.0)
    local = tmp_path / "local"
    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(made.cache(local, remote=slow).open, 0)
        part = local / ".streaming/parts" / f"{made.table.shard(0).raw.basename}.lock"
        _until(part.exists)
        other = made.cache(local)
        with pytest.raises(WaitTimeoutError, match=made.table.shard(0).raw.basename) as caught:
            other.open(0, timeout=0.2)
        assert str(os.getpid()) in str(caught.value)
        slow.wake()
        assert ids(fetching.result(30)) == expected(made, 0)
    assert ids(other.open(0)) == expected(made, 0)


def _until(condition: Any, seconds: float = 20.0) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end
        pause.wait(0.005)


def test_a_copy_by_pickle_works(made: Made, tmp_path: Path) -> None:
    """A pickled cache opens what the first has fetched, with nothing open of its own before."""
    cache = made.cache(tmp_path / "local")
    cache.open(0)
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.folder, copy.source) == (cache.folder, made.store.url)
    assert _all_ids(copy, made) == list(range(NUM_SAMPLES))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_holds_no_lock_of_its_parent(made: Made, tmp_path: Path) -> None:
    """A child forked while its parent fetches blocks nobody, and keeps what it has mapped."""
    local = tmp_path / "local"
    slow = LatencyStore(made.store, 60.0)
    cache = made.cache(local, remote=slow)
    ready = made.cache(local)
    mapped = ready.open(1)
    context = multiprocessing.get_context("fork")
    go = context.Event()

    def child() -> None:
        assert ids(mapped) == expected(made, 1)
        assert ids(ready.open(1)) == expected(made, 1)
        go.wait(60)

    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(cache.open, 0)
        _until((local / ".streaming/parts" / f"{made.table.shard(0).raw.basename}.lock").exists)
        process = context.Process(target=child)
        process.start()
        slow.wake()
        fetching.result(30)
        # The child still lives, and must not have the lock that its parent has given back.
        ready.evict(0)
        assert ids(ready.open(0, timeout=20)) == expected(made, 0)
        go.set()
        process.join(60)
    assert process.exitcode == 0
