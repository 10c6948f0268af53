"""Where one shard ends and the next begins: a pure function of record lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["MAX_SHARD_BYTES", "CutRule", "plan_cuts"]

MAX_SHARD_BYTES = 2**32 - 1
"""A shard's offsets are unsigned 32-bit numbers."""


@dataclass(frozen=True, slots=True)
class CutRule:
    """What counts against the limit of a shard."""

    limit: int
    """The most bytes a shard may count, unless one record alone counts more."""
    base_bytes: int
    """What an empty shard counts."""
    record_bytes: int
    """What each record counts beyond its own length."""


def plan_cuts(
    lengths: NDArray[np.int64], counted: int, rule: CutRule, *, ask_first: bool = True
) -> list[int]:
    """Return the positions in `lengths` before which a new shard begins, ascending.

    `counted` is what the open shard counts so far. A shard is cut before a record that would take
    it
    over the limit; that record then opens the next shard whatever its size. So a shard goes over
    the
    limit only if one record alone does, and a first record that does leaves an empty shard before
    it (`ask_first=False` says that a cut has just been made there).

    Example:
        >>> rule = CutRule(limit=100, base_bytes=10, record_bytes=0)
        >>> plan_cuts(np.array([40, 50, 1, 200, 5]), 10, rule)
        [2, 3, 4]
    """
    find = _finder(lengths, rule.record_bytes)
    cuts: list[int] = []
    start, room = 0, rule.limit - counted
    while True:
        fit = find(start, room)
        # The record that opens a shard is in it without being asked whether it fits.
        cut = max(fit, start + 1) if cuts or not ask_first else fit
        if cut >= len(lengths):
            return cuts
        cuts.append(cut)
        start, room = cut, rule.limit - rule.base_bytes


def _finder(lengths: NDArray[np.int64], extra: int) -> Callable[[int, int], int]:
    """Return a function from (start, room) to the record at which those from `start` on fill it."""
    if len(lengths) and lengths.strides == (0,):  # one number seen many times: no need to add up
        each = int(lengths[0]) + extra
        most = len(lengths)
        return lambda start, room: start + (room // each if each else most) if room >= 0 else start
    ends = np.cumsum(lengths + extra)

    def find(start: int, room: int) -> int:
        done = int(ends[start - 1]) if start else 0
        return int(np.searchsorted(ends, done + room, side="right"))

    return find
