"""How well an order mixes the shards, and how many shards it needs at a time.

The same measures for any order, so that shuffles can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Quality", "measure"]


@dataclass(frozen=True, slots=True)
class Quality:
    """What was measured of an order in which one reader goes through its samples."""

    spread: float
    """Root mean square distance, in samples, of a sample from the middle of its shard's samples.
    More is better mixed."""
    same_shard: float
    """Chance that two samples of a batch are of the same shard. Less is better mixed."""
    in_order: float
    """Share of stored neighbours that come in the order they are stored; 0.5 is without trace."""
    live_shards: int
    """Most shards that were begun and will be used again, at any time: what a cache has to hold."""
    mean_live_shards: float
    """The same on average over samples."""


def measure(order: NDArray[np.int64], shard_sizes: NDArray[np.int64], batch: int) -> Quality:
    """Measure an order of sample ids, each at most once, of shards of `shard_sizes`.

    Example:
        >>> measure(np.arange(12), np.array([4, 4, 4]), batch=4).live_shards
        1
    """
    borders = np.cumsum(shard_sizes)
    shard = np.searchsorted(borders, order, side="right")
    places = np.arange(len(order))
    counts = np.bincount(shard, minlength=len(shard_sizes))
    used = counts > 0
    middles = np.bincount(shard, places, len(shard_sizes)) / np.maximum(counts, 1)
    first = np.full(len(shard_sizes), len(order))
    last = np.full(len(shard_sizes), -1)
    np.minimum.at(first, shard, places)
    np.maximum.at(last, shard, places)
    changes = np.zeros(len(order) + 1, np.int64)
    np.add.at(changes, first[used], 1)
    np.add.at(changes, last[used] + 1, -1)
    live = np.cumsum(changes[:-1])
    return Quality(
        spread=float(np.sqrt(np.mean((places - middles[shard]) ** 2))),
        same_shard=_same_shard(shard, batch),
        in_order=_in_order(order, shard),
        live_shards=int(live.max()),
        mean_live_shards=float(live.mean()),
    )


def _same_shard(shard: NDArray[np.int64], batch: int) -> float:
    whole = len(shard) // batch
    rows = np.sort(shard[: whole * batch].reshape(whole, batch), axis=1)
    # Of a sorted row, each run of r equal shards gives r(r-1)/2 pairs.
    begins = np.ones(rows.shape, np.bool_)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    runs = np.diff(np.flatnonzero(begins.ravel()), append=rows.size).astype(np.float64)
    return float((runs * (runs - 1)).sum() / (whole * batch * (batch - 1)))


def _in_order(order: NDArray[np.int64], shard: NDArray[np.int64]) -> float:
    by_id = order.argsort(kind="stable")
    neighbours = (np.diff(order[by_id]) == 1) & (np.diff(shard[by_id]) == 0)
    return float((np.diff(by_id) > 0)[neighbours].mean())
