"""How fast a store answers, measured on our own requests to it."""

from __future__ import annotations

import threading
import time
from typing import Final

from streaming_reader._ranged._choice import Line

__all__ = ["Meter"]

_DEFAULT: Final = Line(latency=0.04, rate=100e6, whole_rate=100e6)
"""A store in the same region, until something is known."""
_MOVE: Final = 0.3
"""How much of an estimate each new measurement is."""
_TELLING_BYTES: Final = 256 << 10
"""Fewer bytes say little of how fast they come."""
_FORGET_SECONDS: Final = 60.0
"""What was measured so long ago is as good as unknown."""
_LEAST_SECONDS: Final = 1e-4
_REST_SECONDS: Final = 10.0
"""How long to leave a store alone that asked for that without saying how long."""


class Meter:
    """Moving estimates for one store, in one process. Threads may share it.

    Example:
        >>> meter = Meter(Line(latency=0.1, rate=1e6, whole_rate=1e6))
        >>> meter.line.latency
        0.1
    """

    __slots__ = ("_active", "_began", "_default", "_guard", "_line", "_moment", "_rest", "_whole")

    def __init__(self, default: Line | None = None) -> None:
        """Begin with `default`, or with what is usual."""
        self._default = default or _DEFAULT
        self._line = self._default
        self._guard = threading.Lock()
        self._moment = time.monotonic()
        self._active = 0
        """Whole shards that are coming now."""
        self._began = 0.0
        """Since when there is any."""
        self._whole = 0
        """Bytes that came since then."""
        self._rest = 0.0

    @property
    def line(self) -> Line:
        """What is known now."""
        if time.monotonic() - self._moment > _FORGET_SECONDS:
            return self._default
        return self._line

    @property
    def rests(self) -> bool:
        """Whether the store has asked for fewer requests, not long ago."""
        return time.monotonic() < self._rest

    def was_busy(self, retry_after: float | None) -> None:
        """Note that the store has asked for fewer requests."""
        seconds = _REST_SECONDS if retry_after is None else retry_after
        self._rest = max(self._rest, time.monotonic() + seconds)

    def brought(self, nbytes: int, seconds: float, rounds: int, quickest: float) -> None:
        """Note how long some ranges took together, in so many rounds, and the quickest of them."""
        with self._guard:
            line = self._line
            latency = line.latency + _MOVE * (min(quickest, seconds) - line.latency)
            rate = line.rate
            if nbytes >= _TELLING_BYTES:
                moving = max(seconds - rounds * latency, seconds / 4, _LEAST_SECONDS)
                rate = _moved(rate, nbytes / moving)
            self._set(latency, rate, line.whole_rate)

    def whole_begins(self) -> None:
        """Note that a whole shard is being fetched."""
        with self._guard:
            if not self._active:
                self._began, self._whole = time.monotonic(), 0
            self._active += 1

    def whole_ends(self, nbytes: int) -> None:
        """Note that it is over, and how many bytes came."""
        with self._guard:
            self._active -= 1
            self._whole += nbytes
            if self._whole < _TELLING_BYTES:
                return
            now = time.monotonic()
            rate = self._whole / max(now - self._began, _LEAST_SECONDS)
            line = self._line
            self._set(line.latency, line.rate, _moved(line.whole_rate, rate))
            if not self._active:
                self._whole = 0

    def _set(self, latency: float, rate: float, whole_rate: float) -> None:
        self._line = Line(latency, rate, whole_rate)
        self._moment = time.monotonic()


def _moved(known: float, seen: float) -> float:
    """Return a rate moved towards what was seen, by as much in factors either way."""
    moved: float = known ** (1 - _MOVE) * seen**_MOVE
    return moved
