"""The slow store: the contract, how long it waits, and how a wait ends."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from tests.core.store.contract import MarkedContract

from streaming_core._store import MemoryStore, Store
from streaming_core.testing import LatencyStore

_LONG = 3600.0
_DEADLINE = 100.0


class TestLatencyStore(MarkedContract):
    """A store that waits keeps the contract."""

    unsupported: ClassVar = {"shared-between-processes": "the inner store lives in one process"}

    @pytest.fixture
    def store(self) -> LatencyStore:
        """Return a fresh store with a short wait."""
        return LatencyStore(MemoryStore(), 0.0001, 1e10)


def test_the_delay_is_a_wait_and_the_time_of_the_bytes() -> None:
    """The delay is computed, not measured, so that it can be relied on."""
    store = LatencyStore(MemoryStore(), 0.5, bytes_per_second=1000)
    assert (store.delay_seconds(0), store.delay_seconds(250)) == (0.5, 0.75)
    assert LatencyStore(MemoryStore(), 0.5).delay_seconds(10**12) == 0.5


@pytest.mark.parametrize("verb", ["get", "get_ranges", "head", "list", "put", "delete"])
def test_every_request_waits(verb: str) -> None:
    """No verb answers before its delay is over."""
    inner = MemoryStore()
    inner.put("a", [b"body"])
    store = LatencyStore(inner, 0.02)
    arguments = {"get_ranges": ("a", [(0, 2)]), "put": ("a", [b"new"]), "list": ()}
    begin = time.monotonic()
    getattr(store, verb)(*arguments.get(verb, ("a",)))
    assert time.monotonic() - begin >= 0.02


def test_the_bytes_of_reads_and_writes_take_time() -> None:
    """At 1 MB/s, 20 kB take 20 ms more, up and down, whole and in ranges."""
    store = LatencyStore(MemoryStore(), 0.0, bytes_per_second=1_000_000)
    for request in (
        lambda: store.put("a", [memoryview(bytes(20_000)).cast("I")]),
        lambda: store.get("a"),
        lambda: store.get_ranges("a", [(0, 10_000), (10_000, None)]),
    ):
        begin = time.monotonic()
        request()
        assert time.monotonic() - begin >= 0.02


def test_wake_ends_the_waits_of_all_threads_and_children() -> None:
    """Threads that would wait an hour return at once, and so does every later call."""
    inner = MemoryStore()
    inner.put("part/a", [b"body"])
    store = LatencyStore(inner, _LONG)
    child = store.child("part")
    started = threading.Barrier(3, timeout=_DEADLINE)

    def read(view: Store, key: str) -> bytes:
        started.wait()
        return view.get(key)

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(read, store, "part/a"), pool.submit(read, child, "a")]
        started.wait()
        store.wake()
        assert [future.result(_DEADLINE) for future in waiting] == [b"body", b"body"]
    assert child.get("a") == b"body"


def test_requests_wait_side_by_side() -> None:
    """A hundred requests of 0.6 s in as many threads take far less than their sum, a minute."""
    inner = MemoryStore()
    inner.put("a", [b"body"])
    store = LatencyStore(inner, 0.6)
    begin = time.monotonic()
    with ThreadPoolExecutor(100) as pool:
        assert list(pool.map(store.get, ["a"] * 100)) == [b"body"] * 100
    assert 0.6 <= time.monotonic() - begin < 100 * 0.6


def test_a_copy_keeps_the_speed() -> None:
    """Pickling keeps both settings, and a woken store's copy waits anew."""
    store = LatencyStore(MemoryStore("latency"), 0.25, 1000)
    store.wake()
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    assert copy.delay_seconds(250) == 0.5
    assert copy != LatencyStore(MemoryStore("latency"), 0.5, 1000)
    assert copy.inner == MemoryStore("latency")


@pytest.mark.parametrize(("seconds", "speed"), [(-1, None), (0, 0), (0, -5)])
def test_refuses_impossible_speeds(seconds: float, speed: float | None) -> None:
    """Nothing is faster than at once."""
    with pytest.raises(ValueError, match="faster than at once"):
        LatencyStore(MemoryStore(), seconds, speed)


def test_a_stream_takes_its_request_and_its_bytes() -> None:
    """Each piece comes as late as its bytes need, and `wake` ends that."""
    inner = MemoryStore()
    inner.put("a", [bytes(3 << 20)])
    store = LatencyStore(inner, 0.01, bytes_per_second=60 << 20)
    began = time.monotonic()
    assert sum(map(len, store.stream("a"))) == 3 << 20
    assert time.monotonic() - began >= 0.05
    slow = LatencyStore(inner, 60.0, bytes_per_second=1.0)
    slow.wake()
    assert sum(map(len, slow.stream("a", start=1 << 20))) == 2 << 20
