"""Whether two texts that stores gave for the version of a file can be of the same bytes. Pure."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

__all__ = ["may_be_same"]

_LOCAL: Final = re.compile(r"[0-9a-f]+-([0-9a-f]{1,16})-([0-9a-f]+)")
_PAIR: Final = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})")
_DATE: Final = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
_SECOND: Final = 1_000_000_000
_MICROSECOND: Final = 1_000


class _Time(NamedTuple):
    """When a file was written, as far as its version says."""

    nanoseconds: int
    step: int
    """How fine that is."""
    size: int | None = None

    def agrees(self, other: _Time) -> bool:
        """Tell whether both can be of one file; copies that keep times often keep seconds only."""
        steps = [self.step, other.step, *(_SECOND for one in (self, other) if one.is_whole())]
        step = max(steps)
        sizes = {self.size, other.size} - {None}
        return self.nanoseconds // step == other.nanoseconds // step and len(sizes) < 2  # noqa: PLR2004 - all the same

    def is_whole(self) -> bool:
        return not self.nanoseconds % _SECOND


def may_be_same(version: str, other: str, size: int) -> bool:
    """Tell whether a file of `size` bytes with one version can be the same where it has the other.

    A file that was copied with its time, or is served by a web server, has another text but the
    same time: that of this machine (inode, nanoseconds and size), the `ETag` of nginx (seconds and
    size) and of Apache (size and microseconds), and `Last-Modified` can be compared, as exactly as
    both say. All others must be equal. Nothing at all says nothing.

    Example:
        >>> may_be_same("1f-18ea390bb31f0946-215", "2a-18ea390bb31f0946-215", 0x215)
        True
        >>> may_be_same("1f-18ea390bb31f0946-215", '"6921b1c5-215"', 0x215)
        False
        >>> may_be_same('W/"abc"', '"abc"', 5), may_be_same('"abc"', '"abd"', 5)
        (True, False)
    """
    one, two = _bare(version), _bare(other)
    if one == two or not one or not two:
        return True
    first, second = _time(one, size), _time(two, size)
    return first is not None and second is not None and first.agrees(second)


def _bare(version: str) -> str:
    """Return a version without what some services add to it in headers, and others in listings."""
    return version.removeprefix("W/").strip('"')


def _time(version: str, size: int) -> _Time | None:
    """Return when the file was written, None if its version does not say so."""
    local = _LOCAL.fullmatch(version)
    if local is not None:
        return _Time(int(local[1], 16), 1, int(local[2], 16))
    pair = _PAIR.fullmatch(version)
    if pair is not None:
        first, second = int(pair[1], 16), int(pair[2], 16)
        if second == size:  # nginx
            return _Time(first * _SECOND, _SECOND, size)
        if first == size:  # Apache
            return _Time(second * _MICROSECOND, _MICROSECOND, size)
        return None
    if _DATE.fullmatch(version) is None:
        return None
    try:
        moment = parsedate_to_datetime(version)
    except ValueError:
        return None
    return _Time(int(moment.timestamp()) * _SECOND, _SECOND)
