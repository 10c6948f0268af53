"""The cache limit: what counts, what goes first, and that it holds whoever works on the folder."""

from __future__ import annotations

import pickle
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.cache.making import (
    NUM_SAMPLES,
    Made,
    bytes_at_once,
    expected,
    folder_bytes,
    ids,
    make,
    ordinary_files,
)

from streaming_core._store import LocalStore
from streaming_core.errors import SchemaError
from streaming_core.testing import FaultStore
from streaming_reader._cache import CacheGroup
from streaming_reader._cache._group import Held, coldest_first
from streaming_reader._cache._ledger import Entry, Ledger, State
from streaming_reader._cache._places import Places


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a plain dataset."""
    return make(tmp_path / "remote")


def _tight(made: Made, *, shards: float = 4) -> int:
    """Return a limit that fits so many shards beside the ledger."""
    return int(made.largest * shards) + 80 + made.num_shards * 32


def _usage(group: CacheGroup) -> int:
    return group.usage(_soon())


def _soon() -> float:
    return time.monotonic() + 120


@pytest.mark.parametrize("keep_zip", [False, True])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_folder_never_exceeds_the_limit(
    tmp_path: Path, compression: str | None, keep_zip: bool
) -> None:
    """After each open the files in the folder are within the limit, and every sample is right."""
    made = make(tmp_path / "remote", compression=compression)
    local = tmp_path / "local"
    limit = _tight(made)
    group = CacheGroup(limit)
    cache = made.cache(local, group=group, keep_zip=keep_zip, max_open=2)
    rng = np.random.default_rng(7)
    for shard in rng.integers(0, made.num_shards, 60).tolist():
        assert ids(cache.open(shard)) == expected(made, shard)
        assert folder_bytes(local, parts=True) <= limit
    assert _usage(group) == folder_bytes(local)
    assert len(ordinary_files(local)) >= 3


def test_the_least_recently_used_goes_first(made: Made, tmp_path: Path) -> None:
    """What was used last stays; what is used again in between stays longer."""
    group = CacheGroup(_tight(made))
    cache = made.cache(tmp_path / "local", group=group, max_open=1)
    for shard in (0, 1, 2, 3, 0, 4):
        cache.open(shard)
    assert [cache.has(shard) for shard in range(5)] == [True, False, True, True, True]


def test_what_is_mapped_goes_last(made: Made, tmp_path: Path) -> None:
    """A shard in use is spared while another can go, and stays readable when none can."""
    group = CacheGroup(_tight(made))
    cache = made.cache(tmp_path / "local", group=group, max_open=1)
    holder = made.cache(tmp_path / "local", group=CacheGroup(_tight(made)))
    held = holder.open(0)
    for shard in range(1, 9):
        cache.open(shard)
    assert holder.has(0)
    shards = [holder.open(shard) for shard in range(made.num_shards)]
    assert folder_bytes(tmp_path / "local") <= _tight(made)
    assert [ids(shard) for shard in shards] == [expected(made, i) for i in range(made.num_shards)]
    assert ids(held) == expected(made, 0)


def test_files_that_were_there_before_count(made: Made, tmp_path: Path) -> None:
    """A folder filled without a limit is brought below it by the first fetch under one."""
    local = tmp_path / "local"
    free = made.cache(local)
    for shard in range(made.num_shards):
        free.open(shard)
    del free
    assert made.cache(local).evict(2)
    limit = _tight(made)
    group = CacheGroup(limit)
    cache = made.cache(local, group=group)
    assert _usage(group) > limit
    assert ids(cache.open(2)) == expected(made, 2)
    assert folder_bytes(local) <= limit


@pytest.mark.parametrize("known", [False, True], ids=["a new job", "a running job"])
def test_a_ledger_whose_maker_died_at_once_is_not_believed(
    made: Made, tmp_path: Path, *, known: bool
) -> None:
    """Files count although the ledger was lost and whoever made a new one never looked for them."""
    local = tmp_path / "local"
    limit = _tight(made)
    cache = made.cache(local, group=CacheGroup(limit), max_open=2)
    for shard in range(4):
        cache.open(shard)
    if not known:
        cache = made.cache(local, group=CacheGroup(limit), max_open=2)
    ledger = Places(str(local)).ledger
    Path(ledger).unlink()
    with Ledger(ledger, made.num_shards, made.table.fingerprint()).locked(_soon()):
        pass  # and dies
    cache.open(5)
    assert folder_bytes(local) <= limit
    assert _usage(cache.group or CacheGroup(1)) == folder_bytes(local)


def _note(held: Held, *, number: int, entry: Entry) -> None:
    held.pages[0].set(number, entry)


def test_files_count_whose_maker_died_after_room_was_made(made: Made, tmp_path: Path) -> None:
    """Another's shard may appear, and the other die, between making room and publishing."""
    local = tmp_path / "local"
    limit = _tight(made)
    group = CacheGroup(limit)
    cache = made.cache(local, group=group, max_open=2)
    for shard in range(3):
        cache.open(shard)

    class _OthersDieMeanwhile(LocalStore):
        def stream(self, key: str, **options: Any) -> Any:
            for name in ("shard.00007.mds", "shard.00008.mds"):
                shutil.copy(made.folder / name, local / name)
                entry = Entry(State.FETCHING, (local / name).stat().st_size)
                note = partial(_note, number=int(name[6:11]), entry=entry)
                group.while_held(_soon(), note)
            return super().stream(key, **options)

    remote = _OthersDieMeanwhile(made.folder, False)
    made.cache(local, remote=remote, group=group, max_open=2).open(5)
    assert folder_bytes(local) <= limit


def test_who_dies_while_a_kept_zip_goes_leaves_no_more_than_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed file that is not to stay is gone before what it expands to is in place."""
    made = make(tmp_path / "remote", compression="zstd")
    local = tmp_path / "local"
    made.cache(local, keep_zip=True).open(0)
    info = made.table.shard(0)
    (local / info.raw.basename).unlink()
    publish = Places.publish

    def publish_and_die(places: Places, part: str, basename: str) -> None:
        publish(places, part, basename)
        raise KeyboardInterrupt

    monkeypatch.setattr(Places, "publish", publish_and_die)
    group = CacheGroup(_tight(made))
    with pytest.raises(KeyboardInterrupt):
        made.cache(local, group=group).open(0)
    assert ordinary_files(local) == {info.raw.basename}


def test_a_group_is_one_limit_for_several_folders(tmp_path: Path) -> None:
    """The coldest shard of any member makes room, and the sum of all folders stays within."""
    sets = [make(tmp_path / f"remote-{i}") for i in range(3)]
    limit = 3 * _tight(sets[0], shards=0) + 5 * sets[0].largest
    group = CacheGroup(limit)
    locals_ = [tmp_path / f"local-{i}" for i in range(3)]
    caches = [
        one.cache(local, group=group, max_open=1) for one, local in zip(sets, locals_, strict=True)
    ]
    rng = np.random.default_rng(3)
    for _ in range(80):
        at, shard = int(rng.integers(3)), int(rng.integers(sets[0].num_shards))
        assert ids(caches[at].open(shard)) == expected(sets[at], shard)
        assert sum(folder_bytes(local, parts=True) for local in locals_) <= limit
    assert sum(folder_bytes(local) for local in locals_) == _usage(group)


def test_a_group_travels_with_its_caches(made: Made, tmp_path: Path) -> None:
    """A cache that was pickled keeps the limit."""
    group = CacheGroup(_tight(made))
    cache = pickle.loads(pickle.dumps(made.cache(tmp_path / "local", group=group)))
    for shard in range(made.num_shards):
        cache.open(shard)
    assert folder_bytes(tmp_path / "local") <= group.limit
    assert cache.group.limit == group.limit


def test_threads_keep_the_limit(made: Made, tmp_path: Path) -> None:
    """Eight threads in a tiny cache: no error, no wait without end, no wrong sample."""
    limit = _tight(made)
    local = tmp_path / "local"
    cache = made.cache(local, group=CacheGroup(limit), max_open=1)
    over: list[int] = []
    looks = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal looks
        while not done.wait(0.001):
            found = bytes_at_once(local)
            looks += found is not None
            if found is not None and found > limit:
                over.append(found)

    def read(seed: int) -> None:
        for shard in np.random.default_rng(seed).integers(0, made.num_shards, 25).tolist():
            assert ids(cache.open(shard, timeout=120)) == expected(made, shard)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(8) as pool:
        for result in [pool.submit(read, seed) for seed in range(8)]:
            result.result(240)
    done.set()
    watcher.join()
    assert not over
    assert looks


def test_a_limit_that_is_too_small_is_refused(made: Made, tmp_path: Path) -> None:
    """Less than four times the largest shard, or than the index, cannot work: said at once."""
    with pytest.raises(SchemaError, match="4 times"):
        made.cache(tmp_path / "local", group=CacheGroup(made.largest * 4 - 1))
    local = tmp_path / "with-index"
    local.mkdir()
    (local / "index.json").write_bytes(bytes(made.largest * 9))
    with pytest.raises(SchemaError, match="index"):
        made.cache(local, group=CacheGroup(made.largest * 9))
    with pytest.raises(SchemaError, match="size"):
        CacheGroup("much")
    assert CacheGroup("1kb").limit == 1024


def test_two_data_sets_in_one_folder_are_refused(tmp_path: Path) -> None:
    """Streams whose files would be taken for each other's cannot share a limit."""
    one, other = make(tmp_path / "a"), make(tmp_path / "b", text=True)
    group = CacheGroup("1mb")
    one.cache(tmp_path / "local", group=group)
    one.cache(tmp_path / "local", group=group)
    with pytest.raises(SchemaError, match="local"):
        other.cache(tmp_path / "local", group=group)


def test_without_a_remote_no_limit_removes_anything(made: Made) -> None:
    """Local data are never evicted, whatever the limit says."""
    before = ordinary_files(made.folder)
    cache = made.cache(made.folder, group=CacheGroup(made.largest * 4 + 4096))
    for shard in range(made.num_shards):
        cache.open(shard)
    assert ordinary_files(made.folder) == before


def test_a_repeated_epoch_below_the_limit_fetches_nothing(made: Made, tmp_path: Path) -> None:
    """Where all fits, the limit costs no fetch."""
    store = FaultStore(made.store)
    group = CacheGroup(_tight(made, shards=made.num_shards + 1))
    for _ in range(3):
        cache = made.cache(tmp_path / "local", remote=store, group=group, max_open=3)
        got = [i for shard in range(made.num_shards) for i in ids(cache.open(shard))]
        assert got == list(range(NUM_SAMPLES))
    assert store.count("stream") == made.num_shards


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=6), max_size=4))
def test_the_order_of_eviction_is_by_last_use(members: list[list[tuple[bool, int]]]) -> None:
    """Every present shard comes once, and none after one that was used later."""
    present = [np.array([there for there, _ in one], np.bool_) for one in members]
    uses = [np.array([use for _, use in one], np.int64) for one in members]
    order = list(coldest_first(present, uses))
    assert sorted(order) == [
        (m, s) for m, one in enumerate(members) for s, (there, _) in enumerate(one) if there
    ]
    found = [members[m][s][1] for m, s in order]
    assert found == sorted(found)
