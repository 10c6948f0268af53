"""Parts of large objects are tried again on their own, and only where that can help."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core._store import RequestPolicy
from streaming_core._store._http import Refusal, RefusedError, send_parts
from streaming_core._store._http import _parallel as parallel

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_PART_PAUSE_SECONDS", 0.0)


def _refused(status: int, **headers: str) -> RefusedError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return RefusedError(status, named, Refusal())


def _failing(*errors: Exception) -> tuple[Callable[[], str], list[Exception]]:
    """Return a task that raises the errors one after the other, and those still to come."""
    left = list(errors)

    def task() -> str:
        if left:
            raise left.pop(0)
        return "sent"

    return task, left


@pytest.mark.parametrize(
    "error", [_refused(500), _refused(503), _refused(429), _refused(408), ConnectionResetError()]
)
def test_what_may_pass_is_tried_three_times_more(error: Exception) -> None:
    """Then the error is raised as it came."""
    task, _ = _failing(error, error, error)
    assert send_parts([task], 2) == ["sent"]
    task, left = _failing(*[error] * 6)
    with pytest.raises(type(error)):
        send_parts([task], 2)
    assert len(left) == 2


@pytest.mark.parametrize(
    "error", [_refused(400), _refused(403), _refused(404), _refused(503, retry_after="600")]
)
def test_a_no_is_taken_at_once(error: RefusedError) -> None:
    """And so is a wait that is too long for one part."""
    task, left = _failing(error, error)
    with pytest.raises(RefusedError):
        send_parts([task], 2)
    assert len(left) == 1


def test_a_store_is_left_alone_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause is the one it asks for."""
    waited: list[float] = []
    monkeypatch.setattr(RequestPolicy, "wait", lambda _, seconds: waited.append(seconds))
    task, _ = _failing(_refused(503, retry_after="7"))
    assert send_parts([task], 2) == ["sent"]
    assert waited == [7.0]


def test_a_large_object_gets_through_a_store_that_often_fails() -> None:
    """One request in ten fails: of two hundred objects of ten parts nearly all are sent at once."""
    draw = random.Random(1)  # noqa: S311 - which requests fail

    def part() -> int:
        if draw.random() < 0.1:
            raise _refused(500)
        return 1

    done: list[Any] = []
    for _ in range(200):
        try:
            done.append(send_parts([part] * 10, 1))
        except RefusedError:
            continue
    assert len(done) > 195
