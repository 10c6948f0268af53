"""The retry rule: what is asked again, how often, after how long, and what ends it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.web import Said, WebServer

from streaming_core._store import ProgressDeadline, RequestPolicy, open_store
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from tests.servers.web import Asked


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


class _Recorded(RequestPolicy):
    """Records the pauses it is told to make, and makes none."""

    def __init__(self, tries: int, **options: Any) -> None:
        super().__init__(tries, **options)
        self.pauses: list[float] = []

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.mark.parametrize("tries", [1, 2, 5])
def test_a_passing_fault_is_survived_and_a_lasting_one_raised(tries: int) -> None:
    """A request is made `tries` times and no more; the last error is the store's own."""
    retry = RequestPolicy(tries, first_pause=0.0)
    passing, lasting = _Flaky(tries - 1), _Flaky(tries)
    assert retry.call(passing) == "answer"
    with pytest.raises(StoreError, match="reset"):
        retry.call(lasting)
    assert (passing.calls, lasting.calls) == (tries, tries)


@pytest.mark.parametrize("tries", [0, -3])
def test_at_least_one_try_is_made(tries: int) -> None:
    """Whoever asks for no retries still gets the request made."""
    assert RequestPolicy(tries).call(_Flaky(0)) == "answer"


@pytest.mark.parametrize(
    "kind", [AccessDeniedError, AlreadyExistsError, ObjectNotFoundError, ObjectTooLargeError]
)
def test_an_answer_of_no_is_not_asked_again(kind: type[StoreError]) -> None:
    """What the store refuses is raised at once."""
    flaky = _Flaky(1, kind("no"))
    with pytest.raises(kind):
        RequestPolicy(5).call(flaky)
    assert flaky.calls == 1


def test_pauses_double_and_differ() -> None:
    """The n-th pause is between a half and the whole of the first doubled n - 1 times, bounded."""
    retry = RequestPolicy(9, first_pause=1.0)
    for failures, longest in [(1, 1.0), (2, 2.0), (4, 8.0), (20, 30.0)]:
        drawn = {retry.pause_seconds(failures) for _ in range(50)}
        assert len(drawn) > 1
        assert all(longest / 2 <= pause <= longest for pause in drawn)


def test_no_pause_reaches_past_the_deadline() -> None:
    """Where the next try would come too late, the error comes now."""
    flaky = _Flaky(3)
    retry = _Recorded(9, total=1.0, first_pause=60.0)
    with pytest.raises(StoreError, match="reset"):
        retry.call(flaky)
    assert (flaky.calls, retry.pauses) == (1, [])
    attempts = RequestPolicy(9, first_pause=60.0).begin(ProgressDeadline(1.0))
    with pytest.raises(StoreError, match="reset"):
        attempts.failed(StoreError("reset"))


def test_stop_ends_a_pause() -> None:
    """Whoever gives up does not wait for the pause to end; the tries left are made."""
    stop = threading.Event()
    flaky = _Flaky(2)
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    retry = RequestPolicy(3, first_pause=60.0, stop=stop.is_set)
    began = time.monotonic()
    assert retry.call(flaky) == "answer"
    retry.wait(3600.0)
    assert time.monotonic() - began < 600
    timer.join()


# --- what a busy store asks for -------------------------------------------------------------------


def test_a_busy_store_is_left_alone_for_as_long_as_it_says() -> None:
    """The wait is what was asked for, and up to a fifth longer, whatever the pause would be."""
    retry = _Recorded(2, first_pause=60.0)
    for _ in range(50):
        assert retry.call(_Flaky(1, StoreBusyError("busy", retry_after=0.2))) == "answer"
    assert len(retry.pauses) == 50
    assert len(set(retry.pauses)) > 1
    assert all(0.2 <= pause <= 0.24 for pause in retry.pauses)


def test_a_pause_is_as_long_as_it_should_be() -> None:
    """The next try is made after the pause, not before."""
    flaky = _Flaky(1, StoreBusyError("busy", retry_after=0.2))
    began = time.monotonic()
    assert RequestPolicy(2, first_pause=60.0).call(flaky) == "answer"
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("asked", [None, 0.0, -1.0, float("nan")])
def test_a_busy_store_that_names_no_time_is_paused_for_as_any(asked: float | None) -> None:
    """Without a time that makes sense, pauses double as after other failures."""
    flaky = _Flaky(1, StoreBusyError("busy", retry_after=asked))
    retry = _Recorded(2, first_pause=0.2)
    assert retry.call(flaky) == "answer"
    (pause,) = retry.pauses
    assert 0.1 <= pause <= 0.2


@pytest.mark.parametrize("timeout", [5.0, None])
@pytest.mark.parametrize("asked", [3600.0, float("inf")])
def test_a_store_that_is_busy_for_too_long_is_not_waited_for(
    timeout: float | None, asked: float
) -> None:
    """Where there is not that much time, the error comes at once, says so, and keeps the cause."""
    cause = StoreBusyError("get 'a' in s3://b: status 503", retry_after=asked)
    flaky = _Flaky(9, cause)
    retry = _Recorded(9, total=timeout)
    with pytest.raises(StoreBusyError, match=r"get 'a' in .*left alone for .* seconds") as caught:
        retry.call(flaky)
    assert retry.pauses == []
    assert (flaky.calls, caught.value.retry_after, caught.value.__cause__) == (1, asked, cause)


def test_the_last_try_raises_what_the_store_said() -> None:
    """A store that stays busy is asked `tries` times, then its own error is raised."""
    flaky = _Flaky(9, StoreBusyError("busy", retry_after=0.01))
    with pytest.raises(StoreBusyError, match=r"^busy$"):
        RequestPolicy(3).call(flaky)
    assert flaky.calls == 3


def test_a_storm_of_errors_is_survived_with_few_requests() -> None:
    """While every tenth answer is an error, 200 objects are read, with 400 requests at most."""
    chance = random.Random(20)  # noqa: S311 - the same storm in every run

    def answer(_: Asked) -> Said | None:
        if chance.random() < 0.1:
            return Said(chance.choice([500, 502, 503, 504]))
        return None

    with WebServer() as server:
        for number in range(200):
            server.files.put(f"set/{number}", b"%d" % number)
        server.answer = answer
        store = open_store(f"{server.url}/set")
        retry = RequestPolicy(4, first_pause=0.01)
        found = [retry.call(partial(store.get, str(number))) for number in range(200)]
        assert found == [b"%d" % number for number in range(200)]
        assert 200 < server.count() <= 400


def test_a_web_servers_retry_after_is_kept_by_all_threads() -> None:
    """Each of eight threads that is told to wait a second comes back after 1 to 1.2 seconds."""
    refused: set[str] = set()

    def answer(asked: Asked) -> Said | None:
        if asked.path in refused:
            return None
        refused.add(asked.path)
        return Said(429 if asked.number % 2 else 503, b"", {"Retry-After": "1"})

    with WebServer() as server:
        for number in range(8):
            server.files.put(f"{number}", b"body")
        server.answer = answer
        store = open_store(server.url)
        retry = _Recorded(2, first_pause=60.0)

        def read(number: int) -> bytes:
            return retry.call(lambda: store.get(f"{number}"))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(read, range(8))) == [b"body"] * 8
        assert server.count() == 16
    assert len(set(retry.pauses)) > 1
    assert all(1.0 <= pause <= 1.2 for pause in retry.pauses)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_web_server_that_says_no_is_asked_once(status: int) -> None:
    """What cannot change by asking again is not asked again."""
    with WebServer(answer=lambda _: Said(status)) as server:
        store = open_store(server.url)
        with pytest.raises(StoreError, match=str(status)):
            RequestPolicy(5, first_pause=0.01).call(lambda: store.get("a"))
        assert server.count() == 1


@pytest.mark.process
def test_ctrl_c_ends_a_pause() -> None:
    """A process that pauses for ten minutes ends at once when it is interrupted."""
    script = (
        "import signal\n"
        "from streaming_core._store import RequestPolicy\n"
        # Who is started in the background of a shell has it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    RequestPolicy(2).wait(600)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[0] == b"interrupted\n"
        finally:
            process.kill()
