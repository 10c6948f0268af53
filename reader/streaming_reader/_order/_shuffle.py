"""The reference's shuffles, bit for bit.

Every one takes the sizes of the units that lie in a row, and returns a permutation of all their
samples. The calls to numpy's generator, and their order, are part of what is promised; all the
rest is free, and is done on arrays. Shuffling an array draws the same numbers as shuffling a list
of the same length, so that spans are shuffled as arrays of their numbers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core.errors import OrderError
from streaming_reader._order._sampling import expand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Pieces", "check_block", "cut", "shuffled"]

_LEAST_SPREAD: Final = 0.75
_MOST_SPREAD: Final = 1.25
_LEAST_BLOCK: Final = {"py1b": 1, "py1br": 2, "py1e": 1, "device_per_stream": 1}
_MOST_ALIKE: Final = 1 << 14
_log = logging.getLogger("streaming_core.reader")


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Spans of sample numbers, in order, dealt out to groups."""

    starts: NDArray[np.int64]
    """First sample number of each piece."""
    sizes: NDArray[np.int64]
    """Samples of each piece, none of them 0."""
    first_of: NDArray[np.int64]
    """Number of each group's first piece, and the number of all pieces at the end."""

    def groups(self) -> Iterator[slice]:
        """Yield each group's pieces."""
        for start, stop in zip(
            self.first_of[:-1].tolist(), self.first_of[1:].tolist(), strict=True
        ):
            yield slice(start, stop)

    def ordered(self, order: NDArray[np.int64]) -> Pieces:
        """Return the pieces in another order, which must keep the groups."""
        return Pieces(self.starts[order], self.sizes[order], self.first_of)


def cut(starts: NDArray[np.int64], sizes: NDArray[np.int64], groups: int) -> Pieces:
    """Deal spans out to groups of equal size, cutting those that cross a border.

    Example:
        >>> cut(np.array([5, 0]), np.array([4, 5]), groups=3).sizes
        array([3, 1, 2, 3])
    """
    ends = np.cumsum(sizes)
    lies_at = ends - sizes
    total = int(ends[-1]) if len(ends) else 0
    borders = total * np.arange(groups + 1) // groups
    edges = np.union1d(lies_at, borders[borders < total])
    span = np.searchsorted(lies_at, edges, side="right") - 1
    return Pieces(
        starts[span] + edges - lies_at[span],
        np.diff(edges, append=total),
        np.searchsorted(edges, borders),
    )


def shuffled(
    algo: str, sizes: NDArray[np.int64], *, groups: int, seed: int, epoch: int, block: int
) -> NDArray[np.int64]:
    """Return all sample numbers of units of these sizes in the order that `algo` gives.

    `groups` are the canonical nodes. `windowed` is not made here: it needs no array.

    Example:
        >>> shuffled("naive", np.array([2, 3]), groups=1, seed=9176, epoch=0, block=0)
        array([2, 1, 0, 3, 4])
    """
    check_block(algo, block)
    rng = np.random.default_rng(seed + epoch)
    if algo == "naive":
        return rng.permutation(int(sizes.sum()))
    if algo == "py2s":
        return _py2s(sizes, groups, seed, rng)
    pieces = _prelude(sizes, groups, seed, rng)
    samples = expand(pieces.starts, pieces.sizes)
    ends = [0, *np.cumsum(pieces.sizes).tolist()]
    views = [samples[ends[group.start] : ends[group.stop]] for group in pieces.groups()]
    if algo == "py1s":
        _shuffle_spans(samples, pieces.sizes, rng)
    elif algo == "py1b":
        for view in views:
            for start in range(0, len(view), block):
                rng.shuffle(view[start : start + block])
    elif algo == "py1br":
        _py1br(views, block, rng)
    else:
        for group, view in zip(pieces.groups(), views, strict=True):
            _py1e(view, pieces.sizes[group], block, rng)
    return samples


def _prelude(sizes: NDArray[np.int64], groups: int, seed: int, rng: np.random.Generator) -> Pieces:
    order = np.arange(len(sizes))
    np.random.default_rng(seed).shuffle(order)
    starts = np.cumsum(sizes) - sizes
    pieces = cut(starts[order], sizes[order], groups)
    numbers = np.arange(len(pieces.sizes))
    for group in pieces.groups():
        rng.shuffle(numbers[group])
    return pieces.ordered(numbers)


def _shuffle_spans(
    samples: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator
) -> None:
    shuffle, start = rng.shuffle, 0
    for end in np.cumsum(sizes).tolist():
        shuffle(samples[start:end])
        start = end


def check_block(algo: str, block: int, method: str = "random") -> None:
    """Refuse a shuffle block that is too small for a shuffle or batching method."""
    least = max(_LEAST_BLOCK.get(algo, 0), _LEAST_BLOCK.get(method, 0))
    if block < least:
        msg = (
            f"{algo} needs a shuffle block of at least {least}; {block} came (a stream's block is "
        )
        raise OrderError(msg + "its share of shuffle_block_size): raise shuffle_block_size")


def _py1br(views: list[NDArray[np.int64]], block: int, rng: np.random.Generator) -> None:
    low, high = int(_LEAST_SPREAD * block), int(_MOST_SPREAD * block)
    staggers = rng.integers(0, low, (len(views),)).tolist()
    for view, stagger in zip(views, staggers, strict=True):
        slices: list[slice] = []
        end, size = 0, len(view)
        # As the reference does: the second block begins before the first one ends.
        while end < size:
            length = int(rng.integers(low, high))
            part = slice(max(end - stagger, 0), min(end + length - stagger, size))
            slices.append(part)
            end += part.stop - part.start
        for part in slices:
            rng.shuffle(view[part])


def _py1e(
    view: NDArray[np.int64], sizes: NDArray[np.int64], block: int, rng: np.random.Generator
) -> None:
    if not len(view):
        msg = "a canonical node has no samples, so py1e cannot shuffle them: take fewer "
        raise OrderError(msg + "num_canonical_nodes, or more samples per epoch")
    _shuffle_spans(view, sizes, rng)
    low, high, total = int(_LEAST_SPREAD * block), int(_MOST_SPREAD * block), len(view)
    places = np.arange(total, dtype=np.float64)
    integers, uniform, start, narrow = rng.integers, rng.uniform, 0, 0
    for size in sizes.tolist():
        spread = int(integers(low, high))
        narrow += spread < size
        reach = max((spread - size) / 2, 0)
        least, most = max(-reach, -start), min(reach, total - start - size)
        places[start : start + size] += uniform(least, most, size)
        start += size
    if narrow:
        _say_narrow(block)
    view[:] = view[_order_of(places)]


@cache
def _say_narrow(block: int) -> None:
    """Tell the user, but not once more for every node and epoch."""
    msg = "py1e: shards longer than their shuffle block (shuffle_block_size=%d) are shuffled within"
    _log.warning(msg + " themselves only; a larger block mixes them with others", block)


def _order_of(places: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return what sorts `places`, none of them negative; equal ones keep their order.

    Sorting words that hold a place's leading bits and its number is several times quicker than
    sorting numbers by their places. The few whose leading bits agree are put right afterwards.
    """
    count = len(places)
    low = max(1, (count - 1).bit_length())
    fraction = 64 - low - (int(places.max(initial=0.0)) + 1).bit_length()
    if fraction < 0:
        return np.lexsort((np.arange(count), places))
    # Scaling by a power of two is exact, so what is cut off is all that can be lost.
    words = np.ldexp(places, fraction).astype(np.uint64)
    words <<= np.uint64(low)
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    order = (words & np.uint64((1 << low) - 1)).view(np.int64)
    words >>= np.uint64(low)
    alike = np.flatnonzero(words[1:] == words[:-1])
    if len(alike) > _MOST_ALIKE:
        return np.lexsort((np.arange(count), places))
    for run in np.split(alike, np.flatnonzero(np.diff(alike) > 1) + 1) if len(alike) else ():
        part = slice(int(run[0]), int(run[-1]) + 2)
        # By number already, so that equal places stay as they are.
        order[part] = order[part][np.argsort(places[order[part]], kind="stable")]
    return order


def _py2s(
    sizes: NDArray[np.int64], groups: int, seed: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    first = np.random.default_rng(seed)
    order = np.arange(len(sizes))
    first.shuffle(order)
    starts = np.cumsum(sizes) - sizes
    samples = expand(starts[order], sizes[order])
    _shuffle_spans(samples, sizes[order], first)
    # The pieces lie in `samples` one after another, so that a piece starts where it lies.
    ends = np.cumsum(sizes[order])
    pieces = cut(ends - sizes[order], sizes[order], groups)
    numbers = np.arange(len(pieces.sizes))
    done: list[NDArray[np.int64]] = []
    for group in pieces.groups():
        own = numbers[group]
        rng.shuffle(own)
        part = samples[expand(pieces.starts[own], pieces.sizes[own])]
        _shuffle_spans(part, pieces.sizes[own], rng)
        done.append(part)
    return np.concatenate(done)
