"""The failing store: each fault, when it happens, and what is recorded."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.core.store.contract import MarkedContract

from streaming_core._store import LocalStore, MemoryStore
from streaming_core.errors import AccessDeniedError, ObjectNotFoundError, StoreError
from streaming_core.testing import (
    Call,
    Delay,
    Die,
    Fault,
    FaultStore,
    FlipBit,
    Kill,
    LoseResponse,
    Raise,
    Truncate,
)

if TYPE_CHECKING:
    from pathlib import Path

_REFUSED = AccessDeniedError("refused")


class TestFaultStore(MarkedContract):
    """Without faults, the contract holds."""

    unsupported: ClassVar = {"shared-between-processes": "the inner store lives in one process"}

    @pytest.fixture
    def store(self) -> FaultStore:
        """Return a fresh store with a fault that never happens."""
        return FaultStore(MemoryStore(), [Fault(Raise(_REFUSED), nth=10**9)])


def _with(*faults: Fault) -> FaultStore:
    """Return a store under `faults` that holds `a` and `b`."""
    inner = MemoryStore()
    inner.put("a", [b"0123456789"])
    inner.put("b", [b"abcdef"])
    return FaultStore(inner, faults)


# --- when -----------------------------------------------------------------------------------------


def test_a_fault_happens_at_the_nth_matching_call_only() -> None:
    """Calls of other verbs and keys do not count."""
    store = _with(Fault(Raise(_REFUSED), verb="get", key="a", nth=2))
    store.get("a")
    store.get("b")
    store.head("a")
    with pytest.raises(AccessDeniedError) as caught:
        store.get("a")
    assert (str(caught.value), _REFUSED.__traceback__) == ("refused", None)
    assert store.get("a") == b"0123456789"


def test_a_fault_may_last() -> None:
    """`times` calls in a row fail from the nth on; None means all that follow."""
    store = _with(Fault(Raise(_REFUSED), verb="get", nth=2, times=2))
    assert [_succeeds(store, "a") for _ in range(5)] == [True, False, False, True, True]
    store = _with(Fault(Raise(_REFUSED), verb="get", nth=3, times=None))
    assert [_succeeds(store, "a") for _ in range(5)] == [True, True, False, False, False]


def _succeeds(store: FaultStore, key: str) -> bool:
    try:
        store.get(key)
    except AccessDeniedError:
        return False
    return True


@pytest.mark.parametrize("verb", ["get", "get_ranges", "head", "list", "put", "delete"])
def test_every_verb_can_fail_and_the_inner_store_is_not_asked(verb: str) -> None:
    """A fault for all verbs stops each of them before anything happens."""
    store = _with(Fault(Raise(_REFUSED)))
    arguments = {"get_ranges": ("a", [(0, 2)]), "put": ("a", [b"new"]), "list": ()}
    with pytest.raises(AccessDeniedError):
        getattr(store, verb)(*arguments.get(verb, ("a",)))
    assert store.inner.get("a") == b"0123456789"
    assert len(store.calls) == 1


def test_key_patterns_count_from_the_first_store() -> None:
    """A child shares the script, and its keys match with the prefix in front."""
    store = _with(Fault(Raise(_REFUSED), verb="put", key="part-*/shard.*", nth=2))
    store.child("part-0").put("shard.0", [b"body"])
    store.child("part-0").put("index", [b"body"])
    with pytest.raises(AccessDeniedError):
        store.child("part-1").child("deep").put("shard.0", [b"body"])
    assert store.calls[-1] == ("put", "part-1/deep/shard.0")


def test_exactly_one_of_many_threads_meets_the_nth_call() -> None:
    """Counting is exact whatever the threads do."""
    store = _with(Fault(Raise(_REFUSED), verb="get", nth=50))
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: _succeeds(store, "a"), range(200)))
    assert outcomes.count(False) == 1
    assert store.count("get") == 200


def test_a_copy_counts_on_by_itself() -> None:
    """A pickled store keeps script, record and counts, and shares them no longer."""
    store = _with(Fault(Raise(_REFUSED), verb="get", nth=2))
    store.get("a")
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    assert copy.calls == [("get", "a")]
    assert [_succeeds(copy, "a"), _succeeds(copy, "a")] == [False, True]
    assert not _succeeds(store, "a")


# --- what -----------------------------------------------------------------------------------------


def test_truncates_what_is_read() -> None:
    """A read returns less, as no store should; each range is cut."""
    store = _with(Fault(Truncate(3), times=None))
    assert store.get("a") == b"012"
    assert store.get_ranges("a", [(0, 2), (2, 8)]) == [b"01", b"234"]


def test_truncates_what_is_put() -> None:
    """A put stores less and says nothing."""
    store = _with(Fault(Truncate(3), verb="put"))
    store.put("c", [b"01", b"23"])
    assert store.get("c") == b"012"


def test_flips_one_bit() -> None:
    """Exactly one bit differs, in a read once and in a put for good."""
    store = _with(Fault(FlipBit(9), verb="get"), Fault(FlipBit(80 + 8), verb="put"))
    assert store.get("a") == b"0" + bytes([ord("1") ^ 2]) + b"23456789"
    assert store.get("a") == b"0123456789"
    store.put("c", [b"01234", b"56789"])
    assert store.get("c") == b"0" + bytes([ord("1") ^ 1]) + b"23456789"


def test_flips_a_bit_of_the_first_range_only() -> None:
    """The ranges after it stay right; an empty body has no bit to flip."""
    store = _with(Fault(FlipBit(), verb="get_ranges"), Fault(FlipBit(), verb="put"))
    assert store.get_ranges("a", [(0, 2), (0, 2)]) == [b"11", b"01"]
    store.put("c", [])
    assert store.get("c") == b""


def test_delays_and_goes_on() -> None:
    """A delayed call takes that long and then succeeds."""
    store = _with(Fault(Delay(0.02), verb="get"))
    begin = time.monotonic()
    assert store.get("a") == b"0123456789"
    assert time.monotonic() - begin >= 0.02


def test_wake_ends_a_delay() -> None:
    """A thread in an hour's delay goes on at once."""
    store = _with(Fault(Delay(3600.0), verb="get"))
    started = threading.Event()

    def read() -> bytes:
        started.set()
        return store.get("a")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read)
        assert started.wait(100)
        store.wake()
        assert waiting.result(100) == b"0123456789"


def test_a_put_that_dies_leaves_the_old_object() -> None:
    """The connection breaks in the middle: an error, and nothing changed."""
    store = _with(Fault(Die(3), verb="put"))
    with pytest.raises(StoreError, match="broke after 3 bytes"):
        store.put("a", [b"new body"])
    assert store.get("a") == b"0123456789"
    store.put("a", [b"new body"])
    assert store.get("a") == b"new body"


def test_a_put_that_dies_may_leave_a_part() -> None:
    """A store that breaks the contract shows as much as it got."""
    store = _with(Fault(Die(3, leaves_partial=True), verb="put"))
    with pytest.raises(StoreError):
        store.put("a", [b"ne", b"w body"])
    assert store.get("a") == b"new"


def test_a_lost_response_hides_a_success() -> None:
    """The put has happened although it raised; so has the delete."""
    store = _with(Fault(LoseResponse(), verb="put"), Fault(LoseResponse(), verb="delete"))
    with pytest.raises(StoreError, match="response was lost"):
        store.put("c", [b"body"], if_absent=True)
    assert store.get("c") == b"body"
    with pytest.raises(StoreError, match="response was lost"):
        store.delete("c")
    with pytest.raises(ObjectNotFoundError):
        store.get("c")


@pytest.mark.kill
@pytest.mark.parametrize(
    ("after", "left"),
    [(False, ["0"]), pytest.param(True, ["0", "1"], marks=pytest.mark.essential)],
)
def test_kill_ends_the_process_before_or_after_the_put(
    tmp_path: Path, after: bool, left: list[str]
) -> None:
    """A real SIGKILL at the second put leaves what was put before it, or with it."""
    script = """
import sys
from streaming_core._store import LocalStore
from streaming_core.testing import Fault, FaultStore, Kill
fault = Fault(Kill(after=sys.argv[2] == "True"), verb="put", nth=2)
store = FaultStore(LocalStore(sys.argv[1]), [fault])
for number in range(9):
    store.put(str(number), [b"body"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), str(after)], check=False, timeout=200
    )
    assert done.returncode == -signal.SIGKILL
    assert [info.key for info in LocalStore(tmp_path).list()] == left


def test_several_faults_of_one_call_all_happen() -> None:
    """A cut body can have a wrong bit as well, and its answer can be lost."""
    store = _with(
        Fault(Truncate(2), verb="put"), Fault(FlipBit(), verb="put"), Fault(LoseResponse())
    )
    with pytest.raises(StoreError):
        store.put("c", [b"0123"])
    assert store.get("c") == b"11"


# --- the record -----------------------------------------------------------------------------------


def test_records_every_request_with_its_key() -> None:
    """Failed requests count; `child` makes none; the record is a copy."""
    store = _with()
    store.get("a")
    with pytest.raises(ObjectNotFoundError):
        store.head("absent")
    list(store.list("a"))
    store.child("part").put("b", [b"body"])
    record = store.calls
    assert record == [("get", "a"), ("head", "absent"), ("list", "a"), ("put", "part/b")]
    record.clear()
    assert store.calls[0] == Call(verb="get", key="a")
    assert (store.count(), store.count("put"), store.count(key="a*")) == (4, 1, 3)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Fault(Raise(_REFUSED), nth=0), "count from 1"),
        (lambda: Fault(Raise(_REFUSED), times=0), "count from 1"),
        (lambda: Fault(Truncate(1), verb="head"), "Truncate cannot happen at 'head'"),
        (lambda: Fault(Die(1), verb="get"), "Die cannot happen at 'get'"),
    ],
)
def test_refuses_a_script_that_could_never_run(build: object, reason: str) -> None:
    """A fault that would silently never happen makes a test that cannot fail."""
    assert callable(build)
    with pytest.raises(ValueError, match=reason):
        build()


def test_kill_is_not_confused_with_other_actions() -> None:
    """Actions are plain values that compare and print."""
    assert Kill(after=True) != Kill()
    assert repr(Fault(Truncate(1), verb="get")) == (
        "Fault(action=Truncate(num_bytes=1), verb='get', key='*', nth=1, times=1)"
    )


# --- streams --------------------------------------------------------------------------------------


def _streamed(store: FaultStore, start: int = 0) -> bytes:
    return b"".join(map(bytes, store.stream("a", start=start)))


def test_a_stream_is_cut_without_a_word() -> None:
    """`Truncate` counts from where the stream starts, and the next stream is whole."""
    store = _with(Fault(Truncate(4), verb="stream"))
    assert [_streamed(store, 3), _streamed(store, 3)] == [b"3456", b"3456789"]


def test_a_stream_breaks_on_the_way() -> None:
    """`Die` hands out so many bytes and then raises."""
    store = _with(Fault(Die(4), verb="stream"))
    pieces = store.stream("a")
    assert bytes(next(pieces)) == b"0123"
    with pytest.raises(StoreError, match="after 4 bytes"):
        next(pieces)
    assert _streamed(store, 4) == b"456789"


def test_a_bit_of_a_stream_flips_at_its_place_in_the_object() -> None:
    """`FlipBit` hits the same byte wherever the stream starts, and none before it."""
    flip = Fault(FlipBit(8 * 15 + 1), verb="stream", times=None)  # modulo ten bytes: the sixth
    assert _streamed(_with(flip)) == b"0123476789"
    assert _streamed(_with(flip), 5) == b"76789"
    assert _streamed(_with(flip), 6) == b"6789"


def test_a_stream_is_recorded_when_it_is_read() -> None:
    """A stream that nobody reads makes no request; errors come with the first piece."""
    store = _with(Fault(Raise(_REFUSED), verb="stream"))
    store.stream("a").close()
    assert store.calls == []
    with pytest.raises(AccessDeniedError):
        next(store.stream("a"))
    assert (store.count("stream"), store.calls) == (1, [Call("stream", "a")])
