"""A busy store: all processes of a node slow down together, and are quick again afterwards."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.remote.serving import Throttle, run_processes, write
from tests.servers.web import Said, WebServer

from streaming_core._store import ProgressDeadline, RequestPolicy
from streaming_core.errors import StoreBusyError, StoreError
from streaming_reader._cache import NodeRateLimiter
from streaming_reader._cache._rate_limit import RateState, after_answer, after_refusal, next_turn

if TYPE_CHECKING:
    from pathlib import Path

_MOMENTS = st.floats(0, 100)
_TEMPI = st.builds(
    RateState,
    closed_until=_MOMENTS,
    next_turn=_MOMENTS,
    spacing=st.sampled_from([0.0, 0.002, 0.1, 1.0, 4.0]),
    refused_at=_MOMENTS,
    answers=st.integers(0, 16),
)


# --- the rules ------------------------------------------------------------------------------------


@given(_TEMPI, _MOMENTS, st.integers(1, 20))
def test_turns_keep_their_distance(tempo: RateState, now: float, count: int) -> None:
    """No turn is before the store may be asked, and none nearer to another than the interval."""
    turns = []
    for _ in range(count):
        turn, tempo = next_turn(tempo, now)
        turns.append(turn)
    assert min(turns) >= max(now, tempo.closed_until)
    assert all(b - a >= tempo.spacing * 0.999 for a, b in pairwise(turns))


@given(_TEMPI, _MOMENTS, st.none() | _MOMENTS, st.none() | st.floats(0, 50))
def test_a_refusal_never_hurries_anybody(
    tempo: RateState, now: float, began: float | None, wait: float | None
) -> None:
    """The store is left alone for as long as it says, and the interval at most doubles."""
    after = after_refusal(tempo, now, began, wait)
    assert after.closed_until >= max(tempo.closed_until, now + (wait or 0))
    assert after.spacing >= tempo.spacing
    assert after.spacing <= max(0.1, 2 * tempo.spacing)
    assert 0 < after.spacing <= 4.0


@given(_TEMPI.filter(lambda tempo: tempo.spacing > 0))
def test_answers_bring_the_speed_back(tempo: RateState) -> None:
    """However slow it was, some answers later there is no pace to keep; old ones do not count."""
    assert after_answer(tempo, tempo.refused_at) == tempo
    left: RateState | None = tempo
    for _ in range(16 * 12):
        if left is None:
            break
        left = after_answer(left, left.refused_at + 1)
    assert left is None


def test_what_is_refused_together_counts_once() -> None:
    """Thirty requests that were on their way double the interval once, the next one again."""
    tempo = after_refusal(RateState(), 10.0, None, None)
    first = tempo.spacing
    for _ in range(30):
        tempo = after_refusal(tempo, 10.1, 9.9, None)
    assert tempo.spacing == first
    assert after_refusal(tempo, 12.0, 11.0, None).spacing == 2 * first


# --- the file -------------------------------------------------------------------------------------


def test_a_store_that_is_never_busy_costs_a_look(tmp_path: Path) -> None:
    """No file is made, none is opened."""
    pace = NodeRateLimiter.of(tmp_path / "none")
    assert pace.wait(ProgressDeadline(1.0)) is None
    pace.answered(None)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_all_wait_for_what_one_was_told(tmp_path: Path) -> None:
    """A refusal with a time holds for every thread; then they go one by one, and the file goes."""
    pace = NodeRateLimiter.of(tmp_path)
    began = time.monotonic()
    told = time.time()
    pace.refused(None, StoreBusyError("busy", retry_after=0.4), ProgressDeadline(60.0))
    with ThreadPoolExecutor(6) as pool:
        turns = sorted(pool.map(lambda _: pace.wait(ProgressDeadline(60.0)) or 0.0, range(6)))
    assert turns[0] - told >= 0.4
    assert all(b - a >= 0.1 * 0.999 for a, b in pairwise(turns))
    assert time.monotonic() - began >= 0.85  # the last has waited for its turn
    end = time.monotonic() + 60
    while os.path.exists(pace._path):  # noqa: PTH110 - as the code does
        assert time.monotonic() < end
        pace.answered(pace.wait(ProgressDeadline(60.0)))


@pytest.mark.parametrize("said", [b"", b"x" * 40, b"\xff" * 40, b"\0" * 41])
def test_a_broken_file_means_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Whatever stands in it, nobody waits for it, and it is gone afterwards."""
    pace = NodeRateLimiter.of(tmp_path)
    path = tmp_path / ".streaming/pace"
    path.parent.mkdir()
    path.write_bytes(said)
    monkeypatch.setattr(time, "sleep", _unwanted)
    pace.answered(pace.wait(ProgressDeadline(60.0)))
    assert not path.exists()


def _unwanted(seconds: float) -> None:
    pytest.fail(f"{seconds} s were waited for nothing")


def test_without_a_place_for_the_file_each_waits_for_itself(tmp_path: Path) -> None:
    """A folder that cannot be made is no reason to ask at once."""
    (tmp_path / "file").write_bytes(b"")
    pace = NodeRateLimiter.of(tmp_path / "file")
    began = time.monotonic()
    pace.refused(
        pace.wait(ProgressDeadline(60.0)),
        StoreBusyError("busy", retry_after=0.3),
        ProgressDeadline(60.0),
    )
    assert time.monotonic() - began >= 0.3


@pytest.mark.slow
def test_a_store_that_stays_busy_is_an_error_in_time(tmp_path: Path) -> None:
    """It is not asked for ever: the store's own refusal is raised when patience is over."""
    pace, calls = NodeRateLimiter.of(tmp_path), [0]

    def act() -> None:
        calls[0] += 1
        raise StoreBusyError("busy since ever")

    began = time.monotonic()
    with pytest.raises(StoreBusyError, match="busy since ever"):
        RequestPolicy(1, busy=5.0, limiter=pace).call(act)
    assert time.monotonic() - began < 60
    assert 2 <= calls[0] <= 4
    with pytest.raises(StoreBusyError):
        RequestPolicy(1, busy=0.0, limiter=pace).call(act)


def test_other_failures_are_tries(tmp_path: Path) -> None:
    """Busy or not, a store that fails is asked as often as the rule says."""
    left: list[StoreError | None] = [
        StoreError("reset"), StoreBusyError("busy", retry_after=0.1), StoreError("reset"), None,
    ]  # fmt: skip

    def act() -> str:
        error = left.pop(0)
        if error is not None:
            raise error
        return "answer"

    limiter = NodeRateLimiter.of(tmp_path)
    policy = RequestPolicy(3, busy=30.0, first_pause=0.0, limiter=limiter)
    assert policy.call(act) == "answer"
    left += [StoreError("reset"), StoreError("reset"), None]
    with pytest.raises(StoreError, match="reset"):
        RequestPolicy(2, busy=30.0, first_pause=0.0, limiter=limiter).call(act)


def test_what_was_long_ago_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that begins a while after one that was slowed down begins at full speed."""
    pace = NodeRateLimiter.of(tmp_path)
    pace.refused(None, StoreBusyError("busy", retry_after=1.0), ProgressDeadline(60.0))
    later = time.time() + 100.0
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "sleep", _unwanted)
    for _ in range(30):
        pace.answered(pace.wait(ProgressDeadline(60.0)))
    assert not (tmp_path / ".streaming/pace").exists()


# --- processes and a real server ------------------------------------------------------------------

_READ = """
from pathlib import Path
found = dataset(sys.argv[1], Path(sys.argv[2]), predownload=400, download_timeout=100)
ids = [sample["id"] for sample in found]
print(json.dumps([sorted(set(ids)) == list(range(400)), found.stats()]))
"""


@pytest.mark.process
@pytest.mark.parametrize(("status", "retry_after"), [(429, "1"), (503, "")])
def test_a_node_keeps_to_what_the_server_allows(
    tmp_path: Path, status: int, retry_after: str
) -> None:
    """Four processes, ten requests a second: all get all, and few requests are in vain."""
    write(tmp_path / "remote", 400, size=100, shard=2000)
    throttle = Throttle(10, status=status, retry_after=retry_after)
    with WebServer(tmp_path / "remote", answer=throttle) as server:
        found = run_processes(_READ, [[server.url, str(tmp_path / "local")]] * 4)
        assert all(complete for complete, _ in found)
        needed = len(list((tmp_path / "remote").iterdir()))
        assert throttle.answered == needed
        assert throttle.refused <= needed
        stats = [each for _, each in found]
        assert sum(each["refusals"] for each in stats) == throttle.refused > 0
        assert sum(each["wait_pace_ns"] for each in stats) > 0
        assert sum(each["retries"] for each in stats) == 0


@pytest.mark.process
def test_one_stormy_answer_is_forgotten(tmp_path: Path) -> None:
    """A single refusal costs its pause; the file of the pace goes when answers come again."""
    write(tmp_path / "remote", 400, size=100, shard=400)
    once = threading.Lock()
    with WebServer(tmp_path / "remote") as server:

        def answer(asked: object) -> Said | None:
            if ".mds" in str(asked) and once.acquire(blocking=False):
                return Said(503, b"", {"Retry-After": "0"})
            return None

        server.answer = answer
        found = run_processes(_READ, [[server.url, str(tmp_path / "local")]])
        assert found[0][0]
        assert found[0][1]["refusals"] == 1
        assert server.count(path="/index.json") == 1
    assert not (tmp_path / "local/.streaming/pace").exists()
