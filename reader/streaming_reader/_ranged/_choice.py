"""Whether to read a few ranges of a shard, or to have all of it: arithmetic only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "MOST_OF_SHARD",
    "Cost",
    "Line",
    "Offer",
    "allowance",
    "choose_alone",
    "choose_together",
    "even_offsets",
    "gap_bytes",
    "spans_of",
]

_GAP_BYTES: Final = 64 << 10
"""Reading so many bytes in vain costs no more than another request."""
_GAPS: Final = 64
"""Of small shards, which are read by ranges only over slow lines, less is read in vain."""
MOST_OF_SHARD: Final = 4
"""Ranges of one shard never add up to more than one part in so many of its bytes."""
_REQUEST_SECONDS: Final = 0.0005
"""What a request costs a processor, however many are under way."""
_WORTH: Final = 2.0
"""While whole shards are coming anyway, ranges have to be so many times as fast."""
_PAUSES: Final = 4.0
"""Ranges may take one part in so many of the time that goes by anyway."""
_SHARE: Final = 8
"""An iteration reads no more by ranges than one part in so many of what it uses."""


@dataclass(frozen=True, slots=True)
class Line:
    """How fast a store answers, as far as is known."""

    latency: float
    """Seconds until a small answer is there."""
    rate: float
    """Bytes in a second of all ranges that are read at once."""
    whole_rate: float
    """Bytes in a second of all whole shards that are fetched at once."""


class Cost(NamedTuple):
    """What reading ranges takes.

    Example:
        >>> Cost(100, 2, rounds=1).plus(Cost(50, 1, rounds=1))
        Cost(nbytes=150, requests=3, rounds=2)
    """

    nbytes: int = 0
    """Bytes, those of headers included."""
    requests: int = 0
    """How many requests these are."""
    rounds: int = 0
    """How many of them have to be waited for one after the other."""

    def plus(self, other: Cost) -> Cost:
        """Return the cost of both, one after the other."""
        return Cost(*map(int.__add__, self, other))

    def seconds(self, line: Line) -> float:
        """Return how long that takes."""
        moving = self.nbytes / line.rate
        return self.rounds * line.latency + moving + self.requests * _REQUEST_SECONDS


class Offer(NamedTuple):
    """What ranges of one shard would cost, and what they have cost so far."""

    shard_bytes: int
    """Bytes of the whole shard."""
    cost: Cost
    """What is to be read now."""
    spent: Cost = Cost()
    """What was read before."""

    @property
    def fits(self) -> bool:
        """Whether all ranges of the shard stay within their part of its bytes."""
        return MOST_OF_SHARD * (self.spent.nbytes + self.cost.nbytes) <= self.shard_bytes


def choose_alone(offer: Offer, line: Line) -> bool:
    """Tell whether to read ranges of a shard that nobody is fetching.

    What was spent on its ranges before counts: once that would have paid for the shard, the shard
    is had. So the cost is never more than about twice that of the better way, whatever comes.

    Example:
        >>> line = Line(latency=0.04, rate=50e6, whole_rate=50e6)
        >>> choose_alone(Offer(64 << 20, Cost(100_000, 2, 2)), line)
        True
        >>> choose_alone(Offer(1 << 20, Cost(100_000, 2, 2)), line)
        False
        >>> choose_alone(Offer(64 << 20, Cost(4096, 1, 1), spent=Cost(200_000, 40, 40)), line)
        False
    """
    whole = line.latency + offer.shard_bytes / line.whole_rate
    return offer.fits and offer.spent.plus(offer.cost).seconds(line) <= whole


def choose_together(
    offers: Sequence[Offer],
    line: Line,
    allowed_bytes: float,
    *,
    pause: float = math.inf,
    others_bytes: int = 0,
) -> list[bool]:
    """Tell of which shards to read ranges, at once, while all of them are being fetched anyway.

    Ranges come on top of the whole shards, so they are limited to `allowed_bytes`, and worth it
    only where they let a batch come much sooner than the shards that it needs, which are those of
    `offers` and others of `others_bytes`. `pause` is how many seconds the last batch was worked on:
    whoever takes batches as fast as they come would only have the shards delayed by ranges of the
    same bytes.

    Example:
        >>> line = Line(latency=0.04, rate=50e6, whole_rate=50e6)
        >>> offer = Offer(8 << 20, Cost(200_000, 7, 2))
        >>> choose_together([offer] * 3, line, allowed_bytes=500_000)
        [True, True, False]
        >>> choose_together([Offer(1 << 20, Cost(100_000, 2, 2))], line, allowed_bytes=1e9)
        [False]
    """
    chosen = [False] * len(offers)
    left = allowed_bytes
    for i, offer in enumerate(offers):
        if offer.fits and offer.cost.nbytes <= left:
            left -= offer.cost.nbytes
            chosen[i] = True
    taken = [offer for offer, is_chosen in zip(offers, chosen, strict=True) if is_chosen]
    if not taken:
        return chosen
    together = Cost(
        nbytes=sum(offer.cost.nbytes for offer in taken),
        requests=sum(offer.cost.requests for offer in taken),
        rounds=max(offer.cost.rounds for offer in taken),
    )
    seconds = together.seconds(line)
    total = others_bytes + sum(offer.shard_bytes for offer in offers)
    rest = total - sum(offer.shard_bytes for offer in taken)
    whole = line.latency + total / line.whole_rate
    waited = line.latency + rest / line.whole_rate if rest else 0.0
    if _WORTH * max(seconds, waited) <= whole and _PAUSES * seconds <= pause:
        return chosen
    return [False] * len(offers)


def allowance(own_bytes: float, spent_bytes: int) -> float:
    """Return how many bytes of ranges an iteration may yet read, on top of its whole shards.

    `own_bytes` are those of the samples that it gives. All iterations of a node together are thus
    kept to a part of what the node reads, however many of them share its shards.

    Example:
        >>> allowance(8e9, 4_000_000)
        996000000.0
    """
    return max(0.0, own_bytes / _SHARE - spent_bytes)


def gap_bytes(shard_bytes: int) -> int:
    """Return up to how many bytes between two ranges of a shard are read as well.

    Example:
        >>> gap_bytes(64 << 20), gap_bytes(6400)
        (65536, 100)
    """
    return min(_GAP_BYTES, shard_bytes // _GAPS)


def even_offsets(header_bytes: int, count: int, size: int) -> NDArray[np.int64]:
    """Return where `count` records begin and end if all have one size, after a header.

    Example:
        >>> even_offsets(20, 3, 50).tolist()
        [20, 30, 40, 50]
    """
    steps = np.arange(count + 1, dtype=np.int64)
    return header_bytes + steps * (size - header_bytes) // max(1, count)


def spans_of(
    offsets: NDArray[np.int64] | NDArray[np.uint32],
    rows: NDArray[np.int64],
    gap: int,
) -> list[tuple[int, int]]:
    """Return the ranges of bytes that hold some rows, in order, those with small gaps as one.

    Each begins where a row begins and ends where one ends. Rows without bytes give none.

    Example:
        >>> spans_of(np.array([20, 30, 40, 50, 60]), np.array([3, 0, 0, 1]), gap=5)
        [(20, 40), (50, 60)]
    """
    rows = np.unique(rows)
    starts = offsets[rows].astype(np.int64)
    stops = offsets[rows + 1].astype(np.int64)
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    if not len(starts):
        return []
    apart = np.flatnonzero(starts[1:] - stops[:-1] > gap)
    firsts: list[int] = starts[np.concatenate(([0], apart + 1))].tolist()
    lasts: list[int] = stops[np.concatenate((apart, [len(stops) - 1]))].tolist()
    return list(zip(firsts, lasts, strict=True))
