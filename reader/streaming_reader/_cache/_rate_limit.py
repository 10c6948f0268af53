"""The rate limit that all processes of a node share for a store that said that it is busy.

A store that answers 429 or 503 is left alone until the moment it named, then asked at intervals
that become shorter as it answers. The state is one small file that exists only while the store is
slow: a request to a store that was not busy only costs a look for that file.
"""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH100, PTH103, PTH108, PTH110, PTH118, PTH120

from __future__ import annotations

import math
import os
import random
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from streaming_core._store import note_progress
from streaming_core.errors import StoreBusyError
from streaming_reader._cache._locks import FileHandle
from streaming_reader._cache._places import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._store import ProgressDeadline

__all__ = ["NodeRateLimiter", "RateState", "after_answer", "after_refusal", "next_turn"]

_RECORD: Final = struct.Struct("<ddddq")
_FIRST_SPACING: Final = 0.1
_LEAST_SPACING: Final = 0.002
"""Below this, the store is as quick as ever."""
_MOST_SPACING: Final = 4.0
_PAUSES: Final = 8
"""How many intervals a store is left alone for that does not say how long it wants to be."""
_MOST_ANSWERS: Final = 16
_LONGEST: Final = 300.0
"""Seconds; whatever says more was written by another clock."""
_STALE: Final = 60.0
"""Seconds after which a refusal says nothing any more."""
_LOCK_SECONDS: Final = 10.0


class RateState(NamedTuple):
    """What is known of a store; moments are of `time.time`, which the processes of a node share."""

    closed_until: float = 0.0
    """When it may be asked again."""
    next_turn: float = 0.0
    """The first turn that nobody has taken."""
    spacing: float = 0.0
    """Seconds between two turns."""
    refused_at: float = 0.0
    """When it said last that it was busy, and that was news."""
    answers: int = 0
    """What it has answered since the interval was changed."""


def after_refusal(
    state: RateState,
    now: float,
    began: float | None,
    retry_after: float | None,
    jitter: float = 0.0,
) -> RateState:
    """Return what is known after a request was refused that was made at `began`.

    The interval doubles once for all requests that were on their way together.

    Example:
        >>> first = after_refusal(RateState(), 100.0, None, 1.0)
        >>> first.closed_until, first.spacing
        (101.0, 0.1)
        >>> (
        ...     after_refusal(first, 100.1, 99.9, 1.0).spacing,
        ...     after_refusal(first, 102, 101, 1).spacing,
        ... )
        (0.1, 0.2)
    """
    is_news = not state.spacing or (began is not None and began > state.refused_at)
    spacing = state.spacing
    if is_news:
        spacing = min(2 * spacing, _MOST_SPACING) or _FIRST_SPACING
    pause = _PAUSES * spacing if retry_after is None else retry_after
    until = now
    if is_news or retry_after is not None:
        until = now + min(pause * (1.0 + jitter), _LONGEST)
    closed = max(state.closed_until, until)
    return RateState(
        closed,
        # Who has taken a turn before then takes another.
        closed if is_news else max(state.next_turn, closed),
        spacing,
        now if is_news else state.refused_at,
        0,
    )


def after_answer(state: RateState, began: float) -> RateState | None:
    """Return what is known after a request of `began` was answered; None if all is well again.

    The interval is halved after about a second of answers.

    Example:
        >>> after_answer(RateState(spacing=1.0, refused_at=5.0), 6.0)
        RateState(closed_until=0.0, next_turn=0.0, spacing=0.5, refused_at=5.0, answers=0)
        >>> after_answer(RateState(spacing=0.003, refused_at=5.0, answers=15), 6.0) is None
        True
    """
    if began <= state.refused_at:
        return state  # it was let through before the others were not
    answers = state.answers + 1
    if answers * state.spacing < 1.0 and answers < _MOST_ANSWERS:
        return state._replace(answers=answers)
    spacing = state.spacing / 2
    return None if spacing < _LEAST_SPACING else state._replace(spacing=spacing, answers=0)


def next_turn(state: RateState, now: float) -> tuple[float, RateState]:
    """Return when a request may be made, and what is known once that turn is taken.

    Example:
        >>> at, then = next_turn(RateState(closed_until=10.0, spacing=0.5), 8.0)
        >>> at, next_turn(then, 8.0)[0]
        (10.0, 10.5)
    """
    turn = max(now, state.closed_until, state.next_turn)
    return turn, state._replace(next_turn=turn + state.spacing)


class NodeRateLimiter:
    """The rate limit of one store, kept at `path` for all processes of the node; pickles and forks.

    Where the file cannot be written, each thread waits on its own.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the limiter of the store that a cache folder is filled from."""
        return cls(os.path.join(os.path.abspath(folder), CONTROL, "pace"))

    def __repr__(self) -> str:
        return f"NodeRateLimiter({self._path!r})"

    def wait(self, progress: ProgressDeadline) -> float | None:
        """Wait until it is our turn to ask; return when that was, None if nobody has to wait.

        Raises `StoreBusyError` if our turn is after the deadline.
        """
        if not os.path.exists(self._path):
            return None
        turn, closed = 0.0, True
        while closed:
            now = time.time()
            turn = self._take_turn(now, progress)
            if turn > now:
                time.sleep(turn - now)
                note_progress()
            # Other requests may have been refused meanwhile.
            closed = self._update(lambda state: state).closed_until > time.time()
        return turn

    def refused(
        self, began: float | None, error: StoreBusyError, progress: ProgressDeadline
    ) -> None:
        """Let everybody wait, because the store was busy when it was asked at `began`.

        Raises the error if it is to be left alone for longer than the deadline allows.
        """
        now, jitter = time.time(), random.uniform(0.0, 0.2)  # noqa: S311 - spreads load
        wait = error.retry_after
        then = self._update(lambda state: after_refusal(state, now, began, wait, jitter))
        self._check(then.closed_until - now, progress, error)
        if not os.path.exists(self._path):
            time.sleep(then.closed_until - now)

    def answered(self, began: float | None) -> None:
        """Note that the store has answered what it was asked at `began`, as `wait` returned it."""
        if began is None:
            return
        self._update(lambda state: after_answer(state, began) if state.spacing else state)

    # --- within -----------------------------------------------------------------------------------

    def _take_turn(self, now: float, progress: ProgressDeadline) -> float:
        """Return when the next request may be made, and leave that moment to this caller."""
        turn = now

        def take(state: RateState) -> RateState:
            nonlocal turn
            turn, then = next_turn(state, now)
            self._check(turn - now, progress, None)
            return then if state.spacing else state

        self._update(take)
        return turn

    def _check(
        self, seconds: float, progress: ProgressDeadline, error: StoreBusyError | None
    ) -> None:
        """Raise `StoreBusyError` if so many seconds are more than is waited for."""
        if seconds > 0 and time.monotonic() + seconds >= progress.deadline:
            msg = (
                f"the store is busy: the next request may be made in {seconds:.1f} seconds, which "
                f"is longer than is waited for; raise the download timeout ({self._path})"
            )
            raise error or StoreBusyError(msg, retry_after=seconds)

    def _update(self, change: Callable[[RateState], RateState | None]) -> RateState:
        """Write to the file what `change` makes of what it says; return that.

        Without a file, or where it cannot be locked, it says nothing. It is removed once nothing is
        known.
        """
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            deadline = time.monotonic() + _LOCK_SECONDS
            lock = FileHandle.locked(
                self._path, deadline, f"keeping the rate limit in {self._path}"
            )
        except OSError:  # read-only, or held for longer than any process should
            return change(RateState()) or RateState()
        with lock:
            before = _read(lock.number, time.time())
            now = change(before) or RateState()
            with suppress(OSError):
                if not now.spacing:
                    os.unlink(self._path)
                elif now != before:
                    os.pwrite(lock.number, _RECORD.pack(*now), 0)
            return now


def _read(handle: int, now: float) -> RateState:
    """Return what a file says; nothing if it is not sound, or of another time."""
    try:
        state = RateState(*_RECORD.unpack(os.pread(handle, _RECORD.size + 1, 0)))
    except (OSError, struct.error):
        return RateState()
    latest = max(state.closed_until, state.refused_at)
    sound = all(map(math.isfinite, state)) and 0 < state.spacing <= _MOST_SPACING
    return state if sound and -_STALE <= latest - now <= 2 * _LONGEST else RateState()
