"""Rows read by ranges: the same values, few bytes, one version, nothing that was not read."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.reader.ranged.making import ONLY_BYTES, SECONDS, CountingStore, catalogue, write_blobs

from streaming_core import JSONWriter, MDSWriter
from streaming_core.testing import (
    LatencyStore,
)
from streaming_reader._cache import CacheSettings
from streaming_reader._feed import decode_as, decode_list
from streaming_reader._ranged import Line, Origin, Ranged

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_core._store import Parts

_COUNT, _SHARD, _SIZE = 300, 100, 10_000


@pytest.fixture(scope="module", params=[False, True], ids=["even", "varied"])
def blobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 300 samples in some three shards, of one size or of many."""
    folder = tmp_path_factory.mktemp("blobs") / "remote"
    return write_blobs(folder, _COUNT, size=_SIZE, shard=_SHARD, varied=request.param)


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_equal(one[k], other[k]) for k in one)
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)


def test_a_sample_costs_its_bytes(blobs: Path, tmp_path: Path) -> None:
    """Header and record are read, nothing is written, and what is near costs nothing more."""
    store = CountingStore(blobs)
    cold = catalogue(blobs, tmp_path / "cold", store)
    warm = catalogue(blobs, tmp_path / "warm", CountingStore(blobs), ranges=False)
    shard, row = cold.find(150)
    assert _is_equal(cold.sample(shard, row), warm.sample(shard, row))
    header = int(warm.open(shard).data[4:8].cast("I")[0])
    assert store.range_bytes <= header + 64 + 2 * _SIZE
    assert store.range_calls <= 2
    assert store.whole == 0
    assert not list((tmp_path / "cold").glob("*.mds"))
    calls = store.range_calls
    assert _is_equal(cold.sample(shard, row), warm.sample(shard, row))
    assert store.range_calls == calls
    counts = cold.range_counts()
    assert (counts.range_bytes, counts.range_requests) == (store.range_bytes, len(store.ranges))


def test_once_enough_was_asked_for_the_shard_is_had(blobs: Path, tmp_path: Path) -> None:
    """Ranges never add up to more than a quarter of it; then it is fetched, once."""
    store = CountingStore(blobs)
    cold = catalogue(blobs, tmp_path, store)
    rows = int(cold.samples_per_shard[0])
    for row in range(0, rows, 2):
        assert cold.sample(0, row)["id"] == row
    assert store.whole == 1
    size = cold.weight(0)
    assert sum(b - a for _, a, b in store.ranges) <= size / 4
    assert cold.is_local(0)
    assert cold.ranged is not None
    assert cold.ranged.receipts(0) == []  # the copy is gone


def test_many_samples_are_asked_for_at_once(blobs: Path, tmp_path: Path) -> None:
    """A shard's rows in one call after its header, those side by side in one range."""
    store = CountingStore(blobs)
    cold = catalogue(blobs, tmp_path, store)
    ids = np.array([9, 8, 7, 120, 8])
    batch = decode_as(cold, ids, "dict")
    assert list(batch["id"]) == ids.tolist()
    assert store.range_calls <= 4
    assert store.whole == 0
    assert [row["id"] for row in decode_list(cold, ids[::-1])] == ids[::-1].tolist()
    assert store.range_calls <= 4


_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "str": st.text(max_size=40),
    "bytes": st.binary(max_size=300),
    "float64": st.floats(allow_nan=False),
    "json": st.lists(st.integers(0, 9), max_size=3),
    "ndarray:float32:3": st.builds(lambda x: np.full(3, x, np.float32), st.integers(0, 1 << 20)),
}


def test_values_are_the_same_with_and_without_ranges(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """For any columns, sizes of shards and accesses, in any order."""
    calls = 0

    @settings(max_examples=examples(30))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        nonlocal calls
        names = data.draw(st.lists(st.sampled_from(sorted(_KINDS)), min_size=1, max_size=4))
        columns = {f"c{i}": kind for i, kind in enumerate(names)}
        sample = st.fixed_dictionaries({name: _KINDS[kind] for name, kind in columns.items()})
        samples = 100 * data.draw(st.lists(sample, min_size=8, max_size=60))
        folder = tmp_path_factory.mktemp("any")
        limit = data.draw(st.integers(20_000, 200_000))
        with MDSWriter(out=str(folder / "r"), columns=columns, size_limit=limit) as writer:
            for one in samples:
                writer.write(one)
        store = CountingStore(folder / "r")
        cold = catalogue(folder / "r", folder / "l", store)
        warm = catalogue(folder / "r", folder / "r", None, ranges=False)
        pick = st.integers(0, len(samples) - 1)
        for _ in range(data.draw(st.integers(4, 8))):
            if data.draw(st.booleans()):
                at = data.draw(pick)
                assert _is_equal(cold.sample(*cold.find(at)), warm.sample(*warm.find(at)))
                continue
            ids = np.array(data.draw(st.lists(pick, min_size=1, max_size=12)), np.int64)
            for mine, other in zip(decode_list(cold, ids), decode_list(warm, ids), strict=True):
                assert _is_equal(mine, other)
        calls += store.range_calls

    check()
    assert calls > 10


def test_rows_that_were_not_read_cannot_be_had(plain: Path, tmp_path: Path) -> None:
    """Not from what reading others has left."""
    cold = catalogue(plain, tmp_path, CountingStore(plain))
    ranged = cold.ranged
    assert ranged is not None
    cold.sample(0, 40)
    assert ranged.held(0, np.array([40])) is not None
    assert ranged.held(0, np.array([41])) is None
    assert ranged.held(0, np.array([40, 80])) is None
    assert ranged.held(1, np.array([0])) is None


def test_copies_take_the_memory_of_what_was_read(tmp_path: Path) -> None:
    """Not of the shard; and no more than the budget stays."""
    remote = write_blobs(tmp_path / "remote", 512, size=1 << 17, shard=256)
    cold = catalogue(remote, tmp_path / "local", CountingStore(remote))
    origin = Origin(cold.tables[0], CountingStore(remote), CacheSettings(), line=ONLY_BYTES)
    ranged = Ranged([origin], cold.shard_offsets.tolist(), budget=300_000)

    def resident() -> int:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    for row in (0, 100, 250):
        assert 0 in ranged.bring({0: np.array([row])}, timeout=SECONDS)
    assert resident() - before < 4 << 20  # of 32 MiB
    assert ranged.held(0, np.array([0, 100, 250])) is not None
    assert 1 in ranged.bring({1: np.array([7])}, timeout=SECONDS)
    assert ranged.held(1, np.array([7])) is not None
    assert ranged.held(0, np.array([0])) is None


# --- where ranges are of no use -------------------------------------------------------------------


def test_a_required_hash_is_checked_on_whole_files(tmp_path: Path) -> None:
    """No range has one."""
    remote = write_blobs(tmp_path / "remote", 300, size=_SIZE, shard=100, hashes=["xxh64"])
    store = CountingStore(remote)
    cold = catalogue(remote, tmp_path / "local", store, validate_hash="xxh64")
    assert cold.sample(1, 3)["id"] == cold.shard_starts[1] + 3
    assert (store.range_calls, store.whole) == (0, 1)


@pytest.mark.parametrize("kind", ["zstd", "json"])
def test_other_files_are_fetched_whole(tmp_path: Path, kind: str) -> None:
    """Compressed ones, and those whose offsets lie elsewhere."""
    writer: Any = JSONWriter if kind == "json" else MDSWriter
    options = {} if kind == "json" else {"compression": kind}
    with writer(out=str(tmp_path / "r"), columns={"id": "int", "t": "str"}, **options) as out:
        for number in range(2000):
            out.write({"id": number, "t": "x" * 50})
    store = CountingStore(tmp_path / "r")
    cold = catalogue(tmp_path / "r", tmp_path / "l", store)
    assert cold.sample(0, 5)["id"] == 5
    assert store.range_calls == 0


class _Unversioned(CountingStore):
    """A store that does not tell versions apart."""

    def get_ranges(self, key: str, ranges: Any) -> Parts:
        found = super().get_ranges(key, ranges)
        found.etag = ""
        return found


def test_a_store_without_versions_is_asked_for_whole_shards(plain: Path, tmp_path: Path) -> None:
    """As parts of two could be mixed; it is found out once."""
    store = _Unversioned(plain)
    cold = catalogue(plain, tmp_path, store)
    assert [cold.sample(shard, 3)["id"] for shard in range(3)] == (
        cold.shard_starts[:3] + 3
    ).tolist()
    assert store.range_calls == 1
    assert store.whole == 3


# --- threads and processes ------------------------------------------------------------------------


def test_threads_may_ask_at_once(plain: Path, tmp_path: Path) -> None:
    """Each has its own rows, whoever else reads the shard."""
    cold = catalogue(plain, tmp_path, LatencyStore(CountingStore(plain), 0.01))
    wrong: list[int] = []

    def read(first: int) -> None:
        for at in range(first, _COUNT, 37):
            if cold.sample(*cold.find(at))["id"] != at:
                wrong.append(at)  # noqa: PERF401 - a failed assertion in a thread is not seen

    threads = [threading.Thread(target=read, args=(first,)) for first in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.process
def test_a_copy_in_another_process_begins_empty(plain: Path, tmp_path: Path) -> None:
    """Sent or forked; neither shares what was read, and both read."""
    store = CountingStore(plain)
    cold = catalogue(plain, tmp_path, store)
    assert cold.sample(0, 50)["id"] == 50
    sent = pickle.loads(pickle.dumps(cold))
    assert sent.ranged.held(0, np.array([50])) is None
    assert sent.sample(0, 50)["id"] == 50
    assert sent.ranged is not cold.ranged
    assert cold.ranged is not None
    guard = cold.ranged._state.guard
    with guard:  # as another thread may hold it
        child = os.fork()
        if not child:
            code = 1
            signal.alarm(120)  # a child that waits for the guard ends here
            try:
                assert cold.ranged.held(0, np.array([50])) is None
                code = 0 if cold.sample(0, 50)["id"] == 50 else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cold.ranged.held(0, np.array([50])) is not None


def test_what_is_measured_decides(tmp_path: Path) -> None:
    """Over a line that is as fast as it is long, a small shard is had at once."""
    remote = write_blobs(tmp_path / "remote", 300, size=_SIZE, shard=100)
    for line, whole in ((Line(0.5, 1e9, 1e9), 1), (Line(0.0, 1e3, 1e3), 0)):
        store = CountingStore(remote)
        cold = catalogue(remote, tmp_path / str(whole), store, line=line)
        assert cold.sample(0, 50)["id"] == 50
        assert store.whole == whole
