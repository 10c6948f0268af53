"""The retry rule: what is asked again, how often, after how long, and what ends it."""

from __future__ import annotations

import threading
import time

import pytest

from streaming_core._store import Retry
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    StoreError,
)


class _Flaky:
    """Fails so often, then answers."""

    def __init__(self, failures: int, error: StoreError | None = None) -> None:
        self.left = failures
        self.calls = 0
        self.error = error or StoreError("reset")

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"


@pytest.mark.parametrize("tries", [1, 2, 5])
def test_a_passing_fault_is_survived_and_a_lasting_one_raised(tries: int) -> None:
    """A request is made `tries` times and no more; the last error is the store's own."""
    retry = Retry(tries, first_pause=0.0)
    passing, lasting = _Flaky(tries - 1), _Flaky(tries)
    assert retry.call(passing) == "answer"
    with pytest.raises(StoreError, match="reset"):
        retry.call(lasting)
    assert (passing.calls, lasting.calls) == (tries, tries)


@pytest.mark.parametrize("tries", [0, -3])
def test_at_least_one_try_is_made(tries: int) -> None:
    """Whoever asks for no retries still gets the request made."""
    assert Retry(tries).call(_Flaky(0)) == "answer"


@pytest.mark.parametrize(
    "kind", [AccessDeniedError, AlreadyExistsError, ObjectNotFoundError, ObjectTooLargeError]
)
def test_an_answer_of_no_is_not_asked_again(kind: type[StoreError]) -> None:
    """What the store refuses is raised at once."""
    flaky = _Flaky(1, kind("no"))
    with pytest.raises(kind):
        Retry(5).call(flaky)
    assert flaky.calls == 1


def test_pauses_double_and_differ() -> None:
    """The n-th pause is between a half and the whole of the first doubled n - 1 times, bounded."""
    retry = Retry(9, first_pause=1.0)
    for failures, longest in [(1, 1.0), (2, 2.0), (4, 8.0), (20, 30.0)]:
        drawn = {retry.pause_seconds(failures) for _ in range(50)}
        assert len(drawn) > 1
        assert all(longest / 2 <= pause <= longest for pause in drawn)


def test_no_pause_reaches_past_the_deadline() -> None:
    """Where the next try would come too late, the error comes now."""
    flaky = _Flaky(3)
    began = time.monotonic()
    with pytest.raises(StoreError, match="reset"):
        Retry(9, timeout=1.0, first_pause=60.0).call(flaky)
    assert time.monotonic() - began < 1.0
    assert flaky.calls == 1
    attempts = Retry(9, first_pause=60.0).begin(deadline=time.monotonic() + 1.0)
    with pytest.raises(StoreError, match="reset"):
        attempts.failed(StoreError("reset"))


def test_stop_ends_a_pause() -> None:
    """Whoever gives up does not wait for the pause to end; the tries left are made."""
    stop = threading.Event()
    flaky = _Flaky(2)
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    began = time.monotonic()
    assert Retry(3, first_pause=60.0, stop=stop).call(flaky) == "answer"
    assert time.monotonic() - began < 20
    timer.join()
