"""Which samples of each shard an epoch has, when it does not have each of them once.

The calls to the random generator, and their order, are those of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Units", "expand", "resample", "shard_choices"]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What takes the place of shards once samples were chosen.

    A unit is a shard, a copy of one, or the part of one that was drawn. Big ids count the samples
    of all units in order, repeated ones each time.
    """

    sizes: NDArray[np.int64]
    """Samples of each unit, none of them 0."""
    ids: NDArray[np.int64] | None
    """Sample id of each big id; None where they differ by `first` only."""
    first: int = 0
    """Sample id of big id 0, where there is no `ids`."""

    def all_ids(self) -> NDArray[np.int64]:
        """Return the sample id of each big id."""
        if self.ids is not None:
            return self.ids
        return np.arange(self.first, self.first + int(self.sizes.sum()))


def shard_choices(
    sizes: NDArray[np.int64], choose: int, granularity: int, seed: int
) -> NDArray[np.int64]:
    """Return how many samples each shard gives, of `choose` in all.

    What whole copies leave over is drawn in picks of `granularity` samples of a shard.

    Example:
        >>> shard_choices(np.array([5, 3, 7, 4]), 25, granularity=2, seed=9176)
        array([ 6,  3, 10,  6])
    """
    total = int(sizes.sum())
    if not total:
        return np.zeros(len(sizes), np.int64)
    copies, left = divmod(choose, total)
    chosen = sizes * copies
    if not left:
        return chosen
    picks = -(-sizes // granularity)
    shard_of = np.repeat(np.arange(len(sizes), dtype=np.int32), picks)
    order = np.random.default_rng(seed).permutation(len(shard_of))
    if granularity == 1:
        return chosen + np.bincount(shard_of[order[:left]], minlength=len(sizes))
    pick_sizes = np.full(len(shard_of), granularity, np.int64)
    used = sizes > 0
    pick_sizes[np.cumsum(picks)[used] - 1] = (sizes - (picks - 1) * granularity)[used]
    reached = np.cumsum(pick_sizes[order])
    last = int(np.searchsorted(reached, left))
    taken = pick_sizes[order[: last + 1]]
    taken[-1] -= int(reached[last]) - left
    np.add.at(chosen, shard_of[order[: last + 1]], taken)
    return chosen


def expand(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of all the ranges `start, start + 1, … (length of them)` in a row.

    Example:
        >>> expand(np.array([5, 0]), np.array([2, 3]))
        array([5, 6, 0, 1, 2])
    """
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    ends = np.cumsum(lengths)
    # Steps of one, but from the end of a range to the next one's start; then one pass sums them up.
    numbers = np.ones(int(ends[-1]) if len(ends) else 0, np.int64)
    numbers[:1] = starts[:1]
    numbers[ends[:-1]] = starts[1:] - (starts[:-1] + lengths[:-1] - 1)
    return np.cumsum(numbers, out=numbers)


def resample(
    shards: Iterable[tuple[NDArray[np.int64], NDArray[np.int64], int]], seed: int
) -> Units:
    """Return the units of streams, each given as shard sizes, chosen counts and first sample id."""
    rng = np.random.default_rng(seed)
    made = [_resample(rng, sizes, chosen, first) for sizes, chosen, first in shards]
    unit_sizes = np.concatenate([units.sizes for units in made])
    # Streams as they are, one after another, are as they are together.
    counts = [int(units.sizes.sum()) for units in made]
    expected = made[0].first
    plain = True
    for units, count in zip(made, counts, strict=True):
        plain = plain and units.ids is None and units.first == expected
        expected += count
    if plain:
        return Units(unit_sizes, None, made[0].first)
    return Units(unit_sizes, np.concatenate([units.all_ids() for units in made]))


def _resample(
    rng: np.random.Generator, sizes: NDArray[np.int64], chosen: NDArray[np.int64], first: int
) -> Units:
    if np.array_equal(sizes, chosen):
        return Units(sizes[sizes > 0], None, first)
    # A shard without samples has no units: dividing by 1 gives it neither copies nor a rest.
    copies, rest = np.divmod(chosen, np.maximum(sizes, 1))
    per_shard = copies + (rest > 0)
    shard_of = np.repeat(np.arange(len(sizes)), per_shard)
    unit_sizes = sizes[shard_of]
    parts = np.flatnonzero(rest)
    part_units = np.cumsum(per_shard)[parts] - 1
    unit_sizes[part_units] = rest[parts]
    firsts = first + np.cumsum(sizes) - sizes
    ids = expand(firsts[shard_of], unit_sizes)
    ends = np.cumsum(unit_sizes)[part_units]
    spans: Iterable[tuple[int, int, int, int]] = zip(
        (ends - rest[parts]).tolist(),
        ends.tolist(),
        sizes[parts].tolist(),
        firsts[parts].tolist(),
        strict=True,
    )
    draw = rng.choice
    for start, end, size, shard_first in spans:
        part = ids[start:end]
        drawn: NDArray[np.int64] = draw(size, end - start, replace=False)
        np.add(drawn, shard_first, out=part)
        part.sort()
    return Units(unit_sizes, ids)
