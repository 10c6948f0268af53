"""Fetching ahead: in order of first use, within a budget, with a deadline, one error at a time."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.reader.waiting import Waits, until, until_idle

from streaming_core.errors import StoreError, WaitTimeoutError
from streaming_reader._fetch import Fetcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._format import Shard

_SOON = 120.0


def _watched(fetcher: Fetcher) -> Fetcher:
    """Let `until_idle` see what the threads of a fetcher do."""
    fetcher._changed = Waits(fetcher._lock)
    return fetcher


class _Shards:
    """Shards of ten bytes each, which come when they are let through."""

    def __init__(self, *, local: tuple[int, ...] = (), held: tuple[int, ...] = ()) -> None:
        self.local = set(local)
        self.gates = {shard: threading.Event() for shard in held}
        self.broken: dict[int, Exception] = {}
        self.began: list[int] = []
        self.warmed: list[int] = []
        self.changed = threading.Condition()
        self.sign = float("-inf")

    def is_local(self, shard: int) -> bool:
        return shard in self.local

    def open(self, shard: int) -> Shard:
        with self.changed:
            self.began.append(shard)
            self.changed.notify_all()
        if shard in self.gates:
            assert self.gates[shard].wait(_SOON)
        if shard in self.broken:
            raise self.broken[shard]
        self.local.add(shard)
        return cast("Shard", f"shard {shard}")

    def warm(self, shard: Any) -> None:
        with self.changed:
            self.warmed.append(int(str(shard).removeprefix("shard ")))
            self.changed.notify_all()

    def weight(self, shard: int) -> int:  # noqa: ARG002 - all weigh the same
        return 10

    def last_progress(self) -> float:
        return self.sign

    def describe(self, shard: int) -> str:
        return f"shard {shard} from nowhere"

    def until(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, _SOON)


def test_what_is_wanted_comes_and_what_is_local_is_warmed() -> None:
    """Each is opened for its consumer; nothing is fetched twice however often it is wanted."""
    shards = _Shards(local=(1,))
    fetcher = Fetcher(shards, timeout=_SOON)
    fetcher.want([0, 1, 2])
    fetcher.want([2, 1, 0])
    assert [str(fetcher.get(shard)) for shard in (0, 1, 2)] == ["shard 0", "shard 1", "shard 2"]
    shards.until(lambda: sorted(shards.warmed) == [0, 1, 2])
    assert shards.began.count(0) == shards.began.count(2) == 1
    fetcher.close()


def test_no_more_is_held_than_the_budget_allows() -> None:
    """Except one shard, and one that is waited for."""
    shards = _Shards()
    fetcher = _watched(Fetcher(shards, timeout=_SOON, budget=25))
    fetcher.want(range(5))
    until_idle(fetcher)
    assert sorted(shards.began) == [0, 1]
    assert str(fetcher.get(4)) == "shard 4"  # not the next in order
    for shard in (0, 1, 2, 3):
        assert str(fetcher.get(shard)) == f"shard {shard}"
    fetcher.close()


def test_ready_tells_whether_get_would_wait() -> None:
    """A shard that is being fetched is not, and neither is one that failed."""
    shards = _Shards(held=(0, 1))
    shards.broken[1] = StoreError("gone")
    fetcher = Fetcher(shards, timeout=_SOON)
    fetcher.want([0, 1])
    assert not fetcher.ready(0)
    assert fetcher.ready(7)
    for gate in shards.gates.values():
        gate.set()
    shards.until(lambda: 0 in shards.warmed)
    assert fetcher.ready(0)
    assert not fetcher.ready(1)
    with pytest.raises(StoreError, match="gone"):
        fetcher.get(1)
    assert str(fetcher.get(0)) == "shard 0"
    fetcher.close()


def test_a_shard_that_failed_may_be_wanted_again() -> None:
    """The error belongs to one attempt."""
    shards = _Shards()
    shards.broken[3] = StoreError("gone")
    fetcher = Fetcher(shards, timeout=_SOON)
    fetcher.want([3])
    with pytest.raises(StoreError):
        fetcher.get(3)
    del shards.broken[3]
    fetcher.want([3])
    assert str(fetcher.get(3)) == "shard 3"
    fetcher.close()


def test_waiting_ends_with_a_deadline_that_says_for_what() -> None:
    """A shard that does not come is an error with its name."""
    shards = _Shards(held=(0,))
    fetcher = Fetcher(shards, timeout=0.1)
    fetcher.want([0])
    with pytest.raises(WaitTimeoutError, match="shard 0 from nowhere"):
        fetcher.get(0)
    shards.gates[0].set()
    fetcher.close()


def test_closing_ends_the_threads() -> None:
    """Those that wait at once, one that fetches when it is done."""
    before = set(threading.enumerate())
    shards = _Shards(held=(0,))
    fetcher = Fetcher(shards, timeout=_SOON)
    fetcher.want(range(8))
    shards.until(lambda: len(shards.warmed) == 7)
    fetcher.close()
    shards.gates[0].set()
    until(lambda: not set(threading.enumerate()) - before, "threads live on")


def test_a_shard_evicted_while_it_waits_to_be_warmed_is_fetched_once() -> None:
    """It takes one place in the queue, and its weight is given back."""
    busy = tuple(range(4))
    shards = _Shards(local=(*busy, 9), held=busy)
    fetcher = _watched(Fetcher(shards, timeout=_SOON, budget=100))
    fetcher.want(busy)
    shards.until(lambda: len(shards.began) == 4)  # all threads are at it
    fetcher.want([9])
    shards.local.discard(9)
    fetcher.want([9])
    for gate in shards.gates.values():
        gate.set()
    assert str(fetcher.get(9)) == "shard 9"
    until_idle(fetcher)
    assert 9 in shards.warmed
    assert shards.began.count(9) == 1
    assert fetcher._held == 0
    fetcher.close()


def test_local_shards_are_warmed_a_few_ahead() -> None:
    """The others are opened when they are taken, and those make room for later ones."""
    shards = _Shards(local=tuple(range(500)))
    fetcher = _watched(Fetcher(shards, timeout=_SOON))
    fetcher.want(range(500))
    until_idle(fetcher)
    first = sorted(shards.began)
    assert 1 < len(first) <= 64
    assert first == list(range(len(first)))
    fetcher.get(0)
    fetcher.want(range(500))
    shards.until(lambda: len(first) in shards.warmed)
    fetcher.close()
    heavy = Fetcher(_Shards(local=tuple(range(500))), timeout=_SOON, budget=35)
    heavy.want(range(500))
    assert len(heavy._warm) == 3
    heavy.close()


@pytest.mark.parametrize("error", [OSError("no page"), MemoryError()])
def test_a_shard_that_cannot_be_warmed_stops_nothing(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the threads go on."""

    class Cold(_Shards):
        def warm(self, shard: Any) -> None:
            super().warm(shard)
            raise error

    shards = Cold()
    fetcher = Fetcher(shards, timeout=_SOON)
    fetcher.want(range(12))
    assert [str(fetcher.get(i)) for i in range(12)] == [f"shard {i}" for i in range(12)]
    shards.until(lambda: len(shards.warmed) == 12)
    assert "could not be warmed" in caplog.text
    fetcher.close()


@pytest.mark.process
def test_closing_in_a_forked_child_waits_for_nobody() -> None:
    """Even if a thread held the lock when the process forked, and with it forever."""
    shards = _Shards()
    fetcher = Fetcher(shards, timeout=_SOON)
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with fetcher._changed:
            taken.set()
            done.wait(_SOON)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(_SOON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, on purpose
        child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        signal.alarm(60)
        fetcher.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join(_SOON)
    assert os.waitstatus_to_exitcode(status) == 0
    fetcher.close()
