"""`windowed`: an order of which any window is computed on its own.

Spans of shards are put in order by the seed, dealt out to the canonical nodes and put in order
again by the epoch, which costs shards. Within a canonical node samples then change places twice,
within blocks of half a shuffle block; the second time the blocks lie half a block further on. So
a sample moves by less than a shuffle block, and in a batch the samples of one to two neighbouring
blocks are mixed evenly.

All random numbers are raw words of Philox, which numpy keeps the same for ever, under the key
(seed, epoch) and a counter that names what they are for. A permutation is the order of such words,
each with its index in its low bits, so that there are no ties and no sort can differ.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import numpy as np

from streaming_reader._order._shuffle import Pieces, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["WindowedSequence", "spread_choices"]

_TABLE_BYTES: Final = 32 << 20
_LEAST_TABLES: Final = 3
_GROUP_BITS: Final = 24
_WORD: Final = (1 << 64) - 1
# What random numbers are for: a word of the counter.
_ORDER_OF_UNITS, _ORDER_OF_PIECES, _FIRST_STAGE, _SECOND_STAGE, _PART, _TIES = range(1, 7)


def permutation(
    count: int, key: tuple[int, int], purpose: int, where: tuple[int, int]
) -> NDArray[np.uint64]:
    """Return the permutation of `count` numbers that belongs to the key, purpose and place."""
    counter = [0, where[0] & _WORD, where[1] & _WORD, purpose]
    words = np.random.Philox(key=[part & _WORD for part in key], counter=counter).random_raw(count)
    low = np.uint64((1 << max(count - 1, 0).bit_length()) - 1)
    words &= ~low
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    words &= low
    return words


def spread_choices(
    sizes: NDArray[np.int64], choose: int, *, seed: int, epoch: int, first: int = 0
) -> NDArray[np.int64]:
    """Return how many samples each shard gives: its share, by largest remainder.

    Equal remainders are settled by (seed, epoch). `first` is the id of the first sample.

    Example:
        >>> spread_choices(np.array([5, 3, 7, 4]), 25, seed=9176, epoch=0)
        array([7, 4, 9, 5])
    """
    total = int(sizes.sum())
    if not total:
        return np.zeros(len(sizes), np.int64)
    copies, left = divmod(choose, total)
    share, remainder = np.divmod(sizes * left, total)
    lacking = left - int(share.sum())
    if lacking:
        ties = permutation(len(sizes), (seed, epoch), _TIES, (0, first))
        share[np.lexsort((ties, -remainder))[:lacking]] += 1
    return sizes * copies + share


@final
class WindowedSequence:
    """The samples of one or more streams that lie together, in windowed order."""

    def __init__(
        self,
        sizes: NDArray[np.int64],
        chosen: NDArray[np.int64],
        first: int,
        *,
        groups: int,
        block: int,
        key: tuple[int, int],
        part_epoch: int,
    ) -> None:
        """Order `chosen` samples of shards of `sizes`, the first of which has the id `first`.

        `key` is seed and epoch; samples of a part-used shard are drawn by seed and `part_epoch`.
        """
        self._spans = _Spans(sizes, chosen, first, key, part_epoch, groups)
        self._borders: NDArray[np.int64] = int(chosen.sum()) * np.arange(groups + 1) // groups
        half = max(block // 2, 1)
        tables = _Tables()
        # First the order of blocks as they lie, then that of blocks half a block further on.
        self._inner = _Stage(tables, key, (_FIRST_STAGE, first), (half, 0))
        self._outer = _Stage(tables, key, (_SECOND_STAGE, first), (half, half // 2))

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids at `positions`."""
        flat = positions.ravel()
        groups = np.searchsorted(self._borders, flat, side="right") - 1
        starts = self._borders[groups]
        sizes = self._borders[groups + 1] - starts
        inside = self._outer.take(groups, flat - starts, sizes)
        inside = self._inner.take(groups, inside, sizes)
        return self._spans.take(inside + starts).reshape(positions.shape)

    def find(self, sample: int) -> NDArray[np.int64]:
        """Return the positions of `sample`, by going back the way it came."""
        found: list[int] = []
        for place in self._spans.find(sample):
            group = int(np.searchsorted(self._borders, place, side="right")) - 1
            start, stop = self._borders[group : group + 2].tolist()
            inside = self._inner.find(group, place - start, stop - start)
            found.append(start + self._outer.find(group, inside, stop - start))
        return np.array(sorted(found), np.int64)


@final
class _Spans:
    """The order before samples change places: copies and parts of shards, one after another."""

    def __init__(
        self,
        sizes: NDArray[np.int64],
        chosen: NDArray[np.int64],
        first: int,
        key: tuple[int, int],
        part_epoch: int,
        groups: int,
    ) -> None:
        self._sizes = sizes
        self._first_ids: NDArray[np.int64] = first + np.cumsum(sizes) - sizes
        self._part_key = (key[0], part_epoch)
        self._parts = _Tables()
        copies, rest = np.divmod(chosen, np.maximum(sizes, 1))
        self._shard_of: NDArray[np.intp] = np.repeat(np.arange(len(sizes)), copies + (rest > 0))
        unit_sizes = sizes[self._shard_of]
        parts = np.flatnonzero(rest)
        unit_sizes[np.cumsum(copies + (rest > 0))[parts] - 1] = rest[parts]
        # Where the units would lie in the order of shards: pieces of them are named by that.
        self._unit_starts: NDArray[np.int64] = np.cumsum(unit_sizes) - unit_sizes
        self._unit_sizes = unit_sizes
        order = permutation(len(unit_sizes), (key[0], 0), _ORDER_OF_UNITS, (0, first)).astype(
            np.int64
        )
        pieces = cut(self._unit_starts[order], unit_sizes[order], groups)
        numbers = permutation(len(pieces.sizes), key, _ORDER_OF_PIECES, (0, first)).astype(np.int64)
        group_of = np.repeat(np.arange(groups), np.diff(pieces.first_of))
        self._pieces: Pieces = pieces.ordered(numbers[group_of[numbers].argsort(kind="stable")])
        self._piece_ends: NDArray[np.int64] = np.cumsum(self._pieces.sizes)

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids at places of this order."""
        piece = np.searchsorted(self._piece_ends, places, side="right")
        back = self._piece_ends[piece] - places
        named = self._pieces.starts[piece] + self._pieces.sizes[piece] - back
        unit = np.searchsorted(self._unit_starts, named, side="right") - 1
        inside = named - self._unit_starts[unit]
        shard = self._shard_of[unit]
        partial = self._unit_sizes[unit] < self._sizes[shard]
        if partial.any():
            for chosen in _alike(np.where(partial, shard, -1)):
                each = int(shard[chosen[0]])
                if partial[chosen[0]]:
                    inside[chosen] = self._part(each)[inside[chosen]]
        return self._first_ids[shard] + inside

    def find(self, sample: int) -> Iterator[int]:
        """Yield the places of a sample id."""
        shard = int(np.searchsorted(self._first_ids, sample, side="right")) - 1
        if shard < 0 or sample - self._first_ids[shard] >= self._sizes[shard]:
            return
        inside = sample - int(self._first_ids[shard])
        low, high = np.searchsorted(self._shard_of, [shard, shard + 1]).tolist()
        for unit in range(low, high):
            offset = inside
            if self._unit_sizes[unit] < self._sizes[shard]:
                part = self._part(shard)
                offset = int(np.searchsorted(part, inside))
                if offset == len(part) or part[offset] != inside:
                    continue
            named = int(self._unit_starts[unit]) + offset
            ahead = named - self._pieces.starts
            piece = int(np.flatnonzero((ahead >= 0) & (ahead < self._pieces.sizes))[0])
            yield int(self._piece_ends[piece] - self._pieces.sizes[piece] + ahead[piece])

    def _part(self, shard: int) -> NDArray[np.uint32]:
        """Return the samples drawn from a shard that is not used whole, ascending."""

        def draw() -> NDArray[np.uint64]:
            # A part is a shard's last unit, after the whole copies.
            unit = int(np.searchsorted(self._shard_of, shard, side="right")) - 1
            where = (0, int(self._first_ids[shard]))
            drawn = permutation(int(self._sizes[shard]), self._part_key, _PART, where)
            return np.sort(drawn[: int(self._unit_sizes[unit])])

        return self._parts.get((shard,), draw)


@final
class _Stage:
    """Samples of a group changing places within blocks; the first block is `shift` long."""

    def __init__(
        self,
        tables: _Tables,
        key: tuple[int, int],
        purpose: tuple[int, int],
        blocks: tuple[int, int],
    ) -> None:
        """Draw for a purpose and stream, in blocks of (size, shift)."""
        self._tables = tables
        self._key = key
        self._purpose, self._stream = purpose
        self._size, shift = blocks
        self._before = self._size - shift

    def take(
        self, groups: NDArray[np.int64], inside: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return where in its group each sample comes from; `sizes` are those of its group."""
        blocks = (inside + self._before) // self._size
        came_from = np.empty_like(inside)
        for alike in _alike((blocks << _GROUP_BITS) | groups):
            some = alike[0]
            start, table = self._table(int(groups[some]), int(blocks[some]), int(sizes[some]))
            came_from[alike] = table[inside[alike] - start]
            came_from[alike] += start
        return came_from

    def find(self, group: int, source: int, size: int) -> int:
        """Return where in its group a sample goes."""
        start, table = self._table(group, (source + self._before) // self._size, size)
        return start + int(np.flatnonzero(table == source - start)[0])

    def _table(self, group: int, block: int, size: int) -> tuple[int, NDArray[np.uint32]]:
        start = max(block * self._size - self._before, 0)
        count = min((block + 1) * self._size - self._before, size) - start
        where = ((block << _GROUP_BITS) | group, self._stream)
        return start, self._tables.get(
            (self._purpose, group, block),
            lambda: permutation(count, self._key, self._purpose, where),
        )


@final
class _Tables:
    """The permutations used last, as far as a bound on their bytes allows."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], NDArray[np.uint32]] = OrderedDict()
        self._bytes = 0

    def get(
        self, name: tuple[int, ...], make: Callable[[], NDArray[np.uint64]]
    ) -> NDArray[np.uint32]:
        """Return the table of this name, made if it is not kept."""
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        table = self._kept[name] = make().astype(np.uint32)
        self._bytes += table.nbytes
        while self._bytes > _TABLE_BYTES and len(self._kept) > _LEAST_TABLES:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return table


def _alike(labels: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Return the indices of equal labels together."""
    if not labels.size:
        return []
    order = labels.argsort(kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
