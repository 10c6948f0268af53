"""Whether a request makes progress: when something last arrived, and whether it is enough."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["MinimumRate", "ProgressDeadline", "last_progress", "note_progress", "too_slow"]

_LEAST_RATE: Final = 256.0
"""Bytes a second. A request that waits a whole timeout and gets less has failed."""

_latest = [float("-inf")]
"""When anything last arrived in this process."""


def note_progress(moment: float | None = None) -> None:
    """Note that something arrived: now, or at an earlier moment (of `time.monotonic`)."""
    _latest[0] = max(_latest[0], time.monotonic() if moment is None else moment)


def last_progress() -> float:
    """Return when anything last arrived in this process (`time.monotonic`); -inf if nothing did."""
    return _latest[0]


class ProgressDeadline:
    """A deadline that moves on whenever something arrives.

    One thread uses it.

    Example:
        >>> progress = ProgressDeadline(60.0)
        >>> before = progress.deadline
        >>> progress.renew()
        >>> progress.deadline >= before
        True
    """

    __slots__ = ("_since", "seconds")

    def __init__(self, seconds: float) -> None:
        """Wait so long from now on."""
        self.seconds = seconds
        """How long nothing may arrive."""
        self._since = time.monotonic()

    @property
    def deadline(self) -> float:
        """When the wait ends (of `time.monotonic`) if nothing arrives until then."""
        return self._since + self.seconds

    def renew(self, moment: float | None = None) -> None:
        """Start over now, or at the moment at which something arrived."""
        now = time.monotonic() if moment is None else moment
        self._since = max(self._since, now)
        note_progress(self._since)


class MinimumRate:
    """The bytes of one request, and how long it waited for them.

    Only the time spent waiting counts, so a caller may take its time between two reads.

    Example:
        >>> rate = MinimumRate(60.0)
        >>> rate.is_enough(100, 59.0), rate.is_enough(100, 2.0)
        (True, False)
    """

    __slots__ = ("_bytes", "_seconds", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        """How many seconds of waiting are judged together."""
        self.reset()

    def reset(self) -> None:
        """Start over, for another request."""
        self._bytes, self._seconds = 0, 0.0

    def is_enough(self, num_bytes: int, seconds: float) -> bool:
        """Count bytes that took so many seconds; False if a whole timeout brought too few."""
        self._bytes += num_bytes
        self._seconds += seconds
        if self._seconds <= self.timeout:
            return True
        enough = self._bytes >= _LEAST_RATE * self._seconds
        self.reset()
        return enough


def too_slow(timeout: float) -> str:
    """Return what to say of a request that did not get enough."""
    return (
        f"less than {_LEAST_RATE:.0f} bytes a second came for {timeout:g} seconds; raise the "
        "download timeout if the line is that slow"
    )
