"""Whether bytes arrive fast enough: one rule for heads, indexes, footers, ranges, and shards."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_RATE", "MinimumRate", "too_slow"]

LEAST_RATE: Final = 256.0
"""Bytes a second. A request that waits a whole timeout and gets less has failed."""


class MinimumRate:
    """The bytes of one request, and how long it waited for them.

    Only the time spent waiting counts, so a caller may take its time between two reads.

    Example:
        >>> rate = MinimumRate(60.0)
        >>> rate.is_enough(100, 59.0), rate.is_enough(100, 2.0)
        (True, False)
    """

    __slots__ = ("_bytes", "_seconds", "_timeout")

    def __init__(self, timeout: float) -> None:
        """Judge each span of more than `timeout` seconds of waiting."""
        self._timeout = timeout
        self._bytes = 0
        self._seconds = 0.0

    @property
    def timeout(self) -> float:
        """How many seconds of waiting are judged together."""
        return self._timeout

    def is_enough(self, num_bytes: int, seconds: float) -> bool:
        """Count bytes that took so many seconds; False if a whole timeout brought too few."""
        self._bytes += num_bytes
        self._seconds += seconds
        if self._seconds <= self._timeout:
            return True
        enough = self._bytes >= LEAST_RATE * self._seconds
        self._bytes, self._seconds = 0, 0.0
        return enough


def too_slow(timeout: float) -> str:
    """Return what to say of a request that did not get enough."""
    return (
        f"less than {LEAST_RATE:.0f} bytes a second came for {timeout:g} seconds; raise the "
        "download timeout if the line is that slow"
    )
