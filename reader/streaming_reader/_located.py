"""In which shards samples lie, many at a time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Located", "Locator", "Spanner", "compact", "first_uses"]

_BUCKETS_PER_SHARD: Final = 4
_MOST_BORDERS: Final = 4
_SPAN_PER_SAMPLE: Final = 16
"""A table may have so many entries per sample looked up in it, to cost no more than sorting."""
_LEAST_SPAN: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Samples, and where each lies."""

    ids: NDArray[np.int64]
    """Numbers of the samples."""
    shards: NDArray[np.int64]
    """Number of each one's shard."""
    rows: NDArray[np.int64]
    """Its number in there."""

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int | None = None) -> Self:
        """Return the samples from `start` to `stop`."""
        at = slice(start, stop)
        return type(self)(self.ids[at], self.shards[at], self.rows[at])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the samples of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.int64)
        return cls(
            np.concatenate([none, *(part.ids for part in parts)]),
            np.concatenate([none, *(part.shards for part in parts)]),
            np.concatenate([none, *(part.rows for part in parts)]),
        )


class Locator:
    """Finds samples in shards that lie end to end.

    A search in the starts mispredicts a branch per halving, so samples are told apart by their high
    bits first: those of one bucket are of a few shards only, most often of one.

    Example:
        >>> located = Locator(np.array([0, 3, 3, 5]))(np.array([4, 0, 3]))
        >>> located.shards.tolist(), located.rows.tolist()
        ([2, 0, 2], [1, 0, 0])
    """

    __slots__ = ("_borders", "_ends", "_first", "_shift", "_starts")

    def __init__(self, starts: NDArray[np.int64]) -> None:
        """Take where each shard starts, and the number of all samples."""
        self._starts = starts
        self._ends = starts[1:]
        total = int(starts[-1])
        most = _BUCKETS_PER_SHARD * max(1, len(starts) - 1)
        self._shift = max(0, (max(1, total) // most).bit_length())
        """Each bucket has 2 to the power of this many samples."""
        begins = np.arange(0, total + (1 << self._shift), 1 << self._shift)
        first = np.searchsorted(starts, np.minimum(begins, max(0, total - 1)), side="right") - 1
        self._first = first.astype(np.int32)
        """The shard of each bucket's first sample."""
        self._borders = int(np.diff(first).max(initial=0))
        """How many shards a bucket goes on to, at most."""

    def __call__(self, ids: NDArray[np.int64]) -> Located:
        """Return where samples lie; the ids must be in range."""
        if self._borders > _MOST_BORDERS:
            shards = np.searchsorted(self._starts, ids, side="right") - 1
        else:
            shards = self._first.take(ids >> self._shift).astype(np.int64)
            for _ in range(self._borders):
                shards += ids >= self._ends.take(shards)
        return Located(ids, shards, ids - self._starts.take(shards))


class Spanner:
    """From a sample's number to its shard and its row in there.

    Example:
        >>> spanner = Spanner([3, 0, 2])
        >>> spanner[2], spanner[3]
        ((0, 2), (2, 0))
    """

    __slots__ = ("_starts",)

    def __init__(self, shard_sizes: ArrayLike, span_size: int = 1 << 10) -> None:  # noqa: ARG002 - the reference's way to be quick
        """Take how many samples each shard has."""
        self._starts: list[int] = np.cumsum([0, *np.asarray(shard_sizes, np.int64)]).tolist()

    def __getitem__(self, sample: int) -> tuple[int, int]:
        """Return shard and row; `IndexError` if there is no such sample."""
        if not 0 <= sample < self._starts[-1]:
            msg = f"sample {sample} is out of range: there are {self._starts[-1]}"
            raise IndexError(msg)
        shard = bisect_right(self._starts, sample) - 1
        return shard, sample - self._starts[shard]


def first_uses(shards: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each shard once, in order of its first use.

    Example:
        >>> first_uses(np.array([5, 2, 5, 9, 2])).tolist()
        [5, 2, 9]
    """
    if not len(shards):
        return shards
    low, high = int(shards.min()), int(shards.max())
    if low == high:
        return shards[:1]
    if _is_wide(high - low, len(shards)):
        found, at = np.unique(shards, return_index=True)
    else:
        at = np.full(high - low + 1, len(shards))
        np.minimum.at(at, shards - low, np.arange(len(shards)))
        found = np.flatnonzero(at < len(shards))
        at = at[found]
        found += low
    ordered: NDArray[np.int64] = found[np.argsort(at)]
    return ordered


def compact(shards: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each shard once, in order of its first use, and for each of `shards` which it is.

    Example:
        >>> [part.tolist() for part in compact(np.array([5, 2, 5, 9, 2]))]
        [[5, 2, 9], [0, 1, 0, 2, 1]]
    """
    distinct = first_uses(shards)
    if len(distinct) <= 1:
        return distinct, np.zeros(len(shards), np.int64)
    low, high = int(distinct.min()), int(distinct.max())
    if _is_wide(high - low, len(shards)):
        order = np.argsort(distinct)
        return distinct, order[np.searchsorted(distinct, shards, sorter=order)]
    table = np.empty(high - low + 1, np.int64)
    table[distinct - low] = np.arange(len(distinct))
    return distinct, table.take(shards - low)


def _is_wide(span: int, count: int) -> bool:
    return span > max(_LEAST_SPAN, _SPAN_PER_SAMPLE * count)
