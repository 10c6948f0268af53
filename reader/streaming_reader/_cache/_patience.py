"""How long to wait for something that is on its way: until nothing has come for too long."""

from __future__ import annotations

import time

__all__ = ["Patience", "last_sign", "sign"]


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
