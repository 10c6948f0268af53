"""How long to wait for something that is on its way: until nothing has come for too long."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["LEAST_RATE", "Flow", "Patience", "last_sign", "sign"]

LEAST_RATE: Final = 256.0
"""Bytes a second; whoever brings less over a whole timeout brings nothing."""


class _Signs:
    """The last moment at which anything came into this process."""

    __slots__ = ("moment",)

    def __init__(self) -> None:
        self.moment = float("-inf")


_signs = _Signs()


def sign(moment: float | None = None) -> None:
    """Note that something comes: now, or at an earlier moment (of `time.monotonic`)."""
    _signs.moment = max(_signs.moment, time.monotonic() if moment is None else moment)


def last_sign() -> float:
    """Return when anything came last, of `time.monotonic`; far in the past if nothing has."""
    return _signs.moment


class Patience:
    """A deadline that moves on whenever something comes.

    One thread uses it.

    Example:
        >>> patience = Patience(60.0)
        >>> before = patience.deadline
        >>> patience.renew()
        >>> patience.deadline >= before
        True
    """

    __slots__ = ("_since", "seconds")

    def __init__(self, seconds: float) -> None:
        """Wait so long from now on."""
        self.seconds = seconds
        """How long nothing may come."""
        self._since = time.monotonic()

    @property
    def deadline(self) -> float:
        """When it is over, of `time.monotonic`, if nothing comes until then."""
        return self._since + self.seconds

    def renew(self, moment: float | None = None) -> None:
        """Wait anew from now on, or from the moment at which something came."""
        now = time.monotonic() if moment is None else moment
        self._since = max(self._since, now)
        sign(self._since)


class Flow:
    """The bytes of one request as they come, and whether enough of them do.

    Example:
        >>> flow = Flow(60.0, now=0.0)
        >>> flow.is_enough(100, now=59.0), flow.is_enough(100, now=61.0)
        (True, False)
    """

    __slots__ = ("_bytes", "_since", "_timeout")

    def __init__(self, timeout: float, *, now: float | None = None) -> None:
        """Begin now; each `timeout` seconds have to bring something."""
        self._timeout = timeout
        self._since = time.monotonic() if now is None else now
        self._bytes = 0

    def is_enough(self, num_bytes: int, *, now: float | None = None) -> bool:
        """Count bytes that came; False if a whole timeout brought less than `LEAST_RATE`."""
        now = time.monotonic() if now is None else now
        self._bytes += num_bytes
        passed = now - self._since
        if passed <= self._timeout:
            return True
        enough = self._bytes >= LEAST_RATE * passed
        self._since, self._bytes = now, 0
        return enough
