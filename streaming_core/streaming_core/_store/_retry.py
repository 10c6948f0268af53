"""When a failed request is made again: the one rule that writers and readers share."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    RangeError,
    StoreBusyError,
    StoreError,
    StreamingError,
    UnsafeKeyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Attempts", "Retry", "is_final"]

_T = TypeVar("_T")

_FINAL: Final = (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    RangeError,
    UnsafeKeyError,
)
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LONGEST_ASKED_SECONDS: Final = 600.0
"""Where there is no deadline, a store that wants to be left alone for longer is not waited for."""
_BLINK_SECONDS: Final = 0.05
"""How long being told to stop goes unnoticed; some systems deliver Ctrl-C only between waits."""


def is_final(error: StreamingError) -> bool:
    """Tell whether asking again cannot help: the answer is no, or there is nobody to ask.

    Example:
        >>> is_final(ObjectNotFoundError("none")), is_final(StoreError("connection reset"))
        (True, False)
    """
    return isinstance(error, _FINAL)


class Retry:
    """How often a request is tried, and for how long; immutable, so threads may share it.

    Pauses double from `first_pause` on, each shortened at random by up to a half, so that many
    processes that failed together do not come back together. A busy store that says when it wants
    to be asked again is left alone for as long, and up to a fifth longer. `stop`, once true, ends
    every pause, now and later; the tries left are then made at once.

    Example:
        >>> Retry(3).call(lambda: "answer")
        'answer'
    """

    __slots__ = ("_first_pause", "_stop", "_timeout", "tries")

    def __init__(
        self,
        tries: int,
        *,
        timeout: float | None = None,
        first_pause: float = 0.5,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.tries = max(1, tries)
        """How often a request is made, at least once."""
        self._timeout = timeout
        self._first_pause = first_pause
        self._stop = stop

    def begin(self, *, deadline: float | None = None) -> Attempts:
        """Return a count of attempts that starts now.

        No pause reaches past `deadline` (of `time.monotonic`) or the timeout, counted from now.
        """
        limits = [] if deadline is None else [deadline]
        if self._timeout is not None:
            limits.append(time.monotonic() + self._timeout)
        return Attempts(self, min(limits, default=None))

    def call(self, act: Callable[[], _T]) -> _T:
        """Return what `act` returns, called again after each `StoreError` that may pass."""
        attempts = self.begin()
        while True:
            try:
                return act()
            except StoreError as error:
                attempts.failed(error)

    def pause_seconds(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row, drawn at random."""
        longest: float = min(self._first_pause * 2.0 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def wait(self, seconds: float) -> None:
        """Wait, unless told to stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._stop is not None and self._stop():
                return
            time.sleep(min(left, _BLINK_SECONDS))


class Attempts:
    """The attempts at one request, or at one chain of requests that counts as one."""

    __slots__ = ("_deadline", "_retry", "failures")

    def __init__(self, retry: Retry, deadline: float | None) -> None:
        self._retry = retry
        self._deadline = deadline
        self.failures = 0
        """How many attempts have failed so far."""

    def failed(self, error: StreamingError) -> None:
        """Count a failure and wait until the next attempt is due; raise `error` if none is.

        Raises `StoreBusyError` if the store wants to be left alone for longer than there is time.
        """
        self.failures += 1
        if is_final(error) or self.failures >= self._retry.tries:
            raise error
        asked = _asked_seconds(error)
        left = math.inf if asked is None else _LONGEST_ASKED_SECONDS
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
        if asked is None:
            pause = self._retry.pause_seconds(self.failures)
            if pause >= left:
                raise error
        else:
            if asked >= left:
                msg = (
                    f"{error}; the store wants to be left alone for {asked:.0f} seconds, longer "
                    f"than the {max(0.0, left):.0f} that are left; try again later, or allow more "
                    "time"
                )
                raise StoreBusyError(msg, retry_after=asked) from error
            # The jitter gives way to the deadline, what the store asked for does not.
            pause = min(asked * random.uniform(1.0, 1.2), left)  # noqa: S311 - spreads load
        self._retry.wait(pause)


def _asked_seconds(error: StreamingError) -> float | None:
    """Return for how long a store wants to be left alone; None if it does not say."""
    seconds = error.retry_after if isinstance(error, StoreBusyError) else None
    return seconds if seconds is not None and seconds > 0 else None
