"""Rows read by ranges when something fails: one version, nothing hostile, typed errors."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.reader.ranged.making import CountingStore, catalogue, write_blobs

from streaming_core.errors import (
    ChecksumError,
    ObjectNotFoundError,
    ShardCorruptError,
    ShardFetchError,
    StoreBusyError,
    StoreError,
)
from streaming_core.testing import (
    Fault,
    FaultStore,
    FlipBit,
    MemoryStore,
    Raise,
    Truncate,
)
from streaming_reader._feed import decode_list

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_core._store import Parts

_COUNT, _SHARD, _SIZE = 300, 100, 10_000


class _Replaced(CountingStore):
    """A store in which a shard is replaced before the ranges of some calls are read."""

    def __init__(self, folder: Path, at: tuple[int, ...], data: bytes) -> None:
        super().__init__(MemoryStore())
        for path in folder.iterdir():
            if path.is_file():
                self.inner.put(path.name, [path.read_bytes()])
        self.at = at
        self.data = data

    def get_ranges(self, key: str, ranges: Any) -> Parts:
        if self.range_calls in self.at:
            self.inner.put(key, [self.data])
        return super().get_ranges(key, ranges)


def _other_version(folder: Path) -> bytes:
    """Return the first shard with the same sizes, but other contents."""
    data = bytearray((folder / "shard.00000.mds").read_bytes())
    (start,) = struct.unpack_from("<I", data, 4)
    for at in range(start + 12, len(data)):
        data[at] ^= 0xFF if at % 1000 > 900 else 0
    return bytes(data)


def test_an_object_that_was_replaced_meanwhile_is_read_anew(plain: Path, tmp_path: Path) -> None:
    """Header and rows are of one version; with a header of another size, the rows would be torn."""
    shifted = write_blobs(tmp_path / "other", 300, size=_SIZE, shard=_SHARD, varied=True)
    data = bytearray((shifted / "shard.00000.mds").read_bytes())
    store = _Replaced(plain, (1,), bytes(data))
    cold = catalogue(plain, tmp_path / "local", store)
    sample = cold.sample(0, 50)
    assert sample["id"] == 50
    keys = [start for _, start, _ in store.ranges]
    assert keys.count(0) == 2  # the header was read again
    assert store.whole == 0


def test_an_object_that_is_replaced_all_the_time_is_fetched_whole(
    plain: Path, tmp_path: Path
) -> None:
    """After a second try; what comes then is judged as any whole file is."""
    same = (plain / "shard.00000.mds").read_bytes()
    store = _Replaced(plain, tuple(range(1, 50)), same)
    cold = catalogue(plain, tmp_path / "local", store)
    assert cold.sample(0, 50)["id"] == 50
    assert store.whole == 1
    assert store.range_calls == 4


def _hostile(folder: Path, kind: str) -> bytes:
    data = bytearray((folder / "shard.00000.mds").read_bytes())
    (count,) = struct.unpack_from("<I", data)
    if kind == "count":
        struct.pack_into("<I", data, 0, count + 1)
    elif kind == "beyond":
        struct.pack_into("<I", data, 4 + 4 * 51, 1 << 31)
    elif kind == "first-beyond":
        struct.pack_into("<I", data, 4, 1 << 31)
    elif kind == "first-zero":
        struct.pack_into("<I", data, 4, 0)
    elif kind == "long-header":
        struct.pack_into("<I", data, 4, len(data) - 10)
    elif kind == "falling":
        struct.pack_into("<I", data, 4 + 4 * 51, 500)
    elif kind == "other":
        data = data.replace(b'"column_names": ["blob"', b'"column_names": ["blab"')
    return bytes(data)


@pytest.mark.parametrize(
    "kind",
    ["count", "beyond", "first-beyond", "first-zero", "long-header", "falling", "other", "short"],
)
def test_a_hostile_header_is_refused(plain: Path, tmp_path: Path, kind: str) -> None:
    """As in a whole file, which is then judged and set aside as it always was."""
    store = CountingStore(MemoryStore())
    for path in plain.iterdir():
        if path.is_file() and path.name != "checksums.xxh128":
            store.inner.put(path.name, [path.read_bytes()])
    data = _hostile(plain, kind)
    store.inner.put("shard.00000.mds", [data[:300] if kind == "short" else data])
    cold = catalogue(plain, tmp_path, store, tries=1)
    with pytest.raises((ShardCorruptError, ShardFetchError), match=r"shard\.00000"):
        cold.sample(0, 50)
    assert store.range_calls >= 1
    assert store.whole >= 1
    read = sum(b - a for _, a, b in store.ranges if b < len(data))
    assert read < len(data) / 2
    assert cold.sample(1, 1)["id"] == cold.shard_starts[1] + 1


@pytest.mark.parametrize(
    "fault", [Raise(StoreError("reset by peer")), Truncate(7), Raise(StoreBusyError("slow down"))]
)
def test_a_range_that_fails_once_is_asked_for_again(
    plain: Path, tmp_path: Path, fault: Any
) -> None:
    """Within the tries, and without the whole shard."""
    for nth in (1, 2):
        store = CountingStore(plain)
        broken = FaultStore(store, [Fault(fault, verb="get_ranges", nth=nth)])
        cold = catalogue(plain, tmp_path / str(nth), broken, tries=3)
        assert cold.sample(0, 50)["id"] == 50
        assert store.whole == 0


@pytest.mark.parametrize("error", [StoreError("reset"), ObjectNotFoundError("no ranges here")])
def test_ranges_that_fail_are_replaced_by_the_shard(
    plain: Path, tmp_path: Path, error: StoreError
) -> None:
    """And are not tried again for it."""
    broken = FaultStore(
        CountingStore(plain),
        [Fault(Raise(error), verb="get_ranges", times=None)],
    )
    cold = catalogue(plain, tmp_path, broken, tries=2)
    assert cold.sample(0, 50)["id"] == 50
    assert broken.count("stream", "*.mds") == 1
    calls = broken.count("get_ranges")
    assert cold.sample(0, 51)["id"] == 51
    assert broken.count("get_ranges") == calls


def test_what_fails_both_ways_is_a_typed_error(plain: Path, tmp_path: Path) -> None:
    """In bounded time, naming the shard."""
    broken = FaultStore(
        CountingStore(plain),
        [
            Fault(Raise(StoreError("reset")), verb="get_ranges", times=None),
            Fault(Raise(StoreError("reset")), verb="stream", times=None),
        ],
    )
    cold = catalogue(plain, tmp_path, broken, tries=2)
    began = time.monotonic()
    with pytest.raises(ShardFetchError, match=r"shard\.00000"):
        cold.sample(0, 50)
    assert time.monotonic() - began < 60


def test_bits_that_flip_on_the_way_are_found_when_the_shard_comes(
    plain: Path, tmp_path: Path
) -> None:
    """What was given cannot be taken back, but the run does not go on as if nothing had been."""
    store = CountingStore(plain)
    broken = FaultStore(store, [Fault(FlipBit(8 * 600), verb="get_ranges", nth=2)])
    cold = catalogue(plain, tmp_path, broken)
    good = catalogue(plain, plain, None, ranges=False)
    assert cold.sample(0, 50) != good.sample(0, 50)
    with pytest.raises(ChecksumError, match=r"shard\.00000.*range"):
        decode_list(cold, np.arange(60, 80))
    assert cold.sample(0, 50) == good.sample(0, 50)
