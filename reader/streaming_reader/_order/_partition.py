"""Who gets which big position, in closed form: no array is longer than what is asked for.

The positions of an epoch lie in a matrix (`Grid`), a row for each canonical node, and are read
column by column. Each node takes every P-th of what is read (a `Lane`), each of its ranks every
R-th of that, and each batch the next B of that. What does not come out even is repeated.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

import numpy as np

from streaming_core.errors import OrderError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Evened", "Grid", "Lane", "Partition", "partition"]

_log = logging.getLogger("streaming_core.reader")


@final
class Grid:
    """The matrix of big positions, addressed by the number of an element in reading order."""

    def __init__(self, samples: int, rows: int, nodes: int) -> None:
        """Lay out `samples` in `rows`, so that `nodes` get the same number each."""
        if max(rows, nodes) % min(rows, nodes):
            msg = (
                f"one of the canonical nodes ({rows}) and the nodes ({nodes}) has to be a multiple "
            )
            raise OrderError(msg + "of the other: set num_canonical_nodes accordingly")
        ratio = nodes // rows if rows < nodes else 1
        self._samples = samples
        self._rows = rows
        self._width = -(-samples // rows)
        pad = -self._width % ratio
        self._columns = self._width + pad
        # With hardly any samples there is one to a row, or none, and they are dealt out in turn.
        self._tiny = samples < rows or (samples == rows and rows < nodes)
        self._starts: NDArray[np.int64] = np.arange(rows, dtype=np.int64) * samples // rows
        sizes = np.diff(self._starts, append=samples)
        self._short: NDArray[np.bool_] = sizes < self._width
        # Columns beyond the width repeat columns from here on.
        self._copied = self._width - pad - ratio + 1
        if pad and not self._tiny and self._copied < 0:
            msg = f"{samples} samples in {rows} canonical nodes are too few for {nodes} nodes: "
            raise OrderError(msg + f"each needs at least {pad + ratio - 1}, or as many nodes")

    @property
    def columns(self) -> int:
        """Number of columns, padding included."""
        return self._columns

    @property
    def size(self) -> int:
        """Number of elements, padding included."""
        return self._rows * self._columns

    @property
    def distinct(self) -> int:
        """Number of elements before those that repeat others on account of the nodes."""
        return self._rows * self._width

    def take(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the big positions of elements, which count down the columns."""
        columns: NDArray[np.int64] = elements // self._rows
        rows: NDArray[np.int64] = elements - columns * self._rows
        if self._tiny:
            return (rows * self._columns + columns) % self._samples
        if columns.size and columns.max() >= self._width - 1:
            columns = np.where(columns < self._width, columns, columns - self._width + self._copied)
            columns -= (columns == self._width - 1) & self._short[rows]
        return self._starts[rows] + columns

    def find(self, position: int) -> list[int]:
        """Return the elements that hold a big position."""
        if self._tiny:
            found = range(position, self.size, self._samples)
            return [i % self._columns * self._rows + i // self._columns for i in found]
        row = int(np.searchsorted(self._starts, position, side="right")) - 1
        column = position - int(self._starts[row])
        columns = [column]
        if self._short[row] and column == self._width - 2:
            columns.append(column + 1)
        if 0 <= column - self._copied < self._columns - self._width:
            columns.append(column - self._copied + self._width)
        return [each * self._rows + row for each in columns]


@final
class Lane:
    """A row of elements with some of them repeated at the end, so that each rank gets as many."""

    def __init__(self, elements: int, ranks: int) -> None:
        """Lengthen a lane of `elements` to a multiple of `ranks`."""
        self._elements = elements
        self._extra = -elements % ranks
        self.size = elements + self._extra
        # Those before the last few are repeated; in a lane shorter than that, all in turn.
        again = elements - ranks - self._extra + 1
        self._again = max(again, 0)

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which element is at each place."""
        if not self._extra or not places.size or places.max() < self._elements:
            return places
        repeated = self._again + (places - self._elements) % max(self._elements, 1)
        return np.where(places < self._elements, places, repeated)

    def find(self, element: int) -> list[int]:
        """Return the places of an element."""
        repeated = range(element - self._again, self._extra, self._elements)
        return [element, *(self._elements + i for i in repeated if i >= 0)]


@final
class Partition:
    """All big positions of an epoch, dealt out to global steps and slots.

    Slots count through a global batch: ranks in order, and the samples of each.
    """

    def __init__(self, samples: int, rows: int, world: tuple[int, int, int], drop: int) -> None:
        """Deal `samples` of `rows` canonical nodes to (nodes, ranks per node, batch size)."""
        self._nodes, self._ranks, self._batch = world
        self._grid = Grid(samples, rows, self._nodes)
        self._drop = drop - drop % self._nodes
        if drop >= self._grid.distinct:
            # All was given; what follows is only there to give these nodes as many.
            self._drop = max(self._grid.size, self._drop)
        elif self._drop != drop:
            msg = "going on after %d samples instead of %d, a multiple of the nodes (%d)"
            _log.warning(msg, self._drop, drop, self._nodes)
        self._lane = Lane(max(self._grid.size - self._drop, 0) // self._nodes, self._ranks)
        self._per_rank = self._lane.size // self._ranks

    @property
    def samples(self) -> int:
        """Number of samples of all ranks, repeated ones counted each time."""
        return self._lane.size * self._nodes

    @property
    def filled(self) -> NDArray[np.int64]:
        """The slots of the last global step that are not empty."""
        own = self._per_rank - (self.steps - 1) * self._batch
        slots = np.arange(self._nodes * self._ranks * self._batch)
        return slots[slots % self._batch < own]

    @property
    def full_steps(self) -> int:
        """Number of global steps without an empty slot."""
        return self._per_rank // self._batch

    @property
    def steps(self) -> int:
        """Number of global steps with any sample."""
        return -(-self._per_rank // self._batch)

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the big positions of `slots` in each of `steps`; -1 where there is none."""
        rank, slot = np.divmod(slots, self._batch)
        node, rank = np.divmod(rank, self._ranks)
        stride = self._batch * self._ranks
        places = (steps * stride)[:, np.newaxis] + (slot * self._ranks + rank)
        empty = None
        if places.size and places[-1].max() >= self._lane.size:
            empty = places >= self._lane.size
            places[empty] = 0
        elements = self._lane.take(places) * self._nodes + (node + self._drop)
        if empty is None:
            return self._grid.take(elements)
        elements[empty] = 0
        positions = np.full(places.shape, -1, np.int64)
        positions[~empty] = self._grid.take(elements[~empty])
        return positions

    def find(self, position: int) -> list[tuple[int, int]]:
        """Return the steps and slots of a big position; those before the drop are left out."""
        found: list[tuple[int, int]] = []
        for element in self._grid.find(position):
            if element >= self._drop:
                inside, node = divmod(element - self._drop, self._nodes)
                found += [self._place(node, place) for place in self._lane.find(inside)]
        return found

    def _place(self, node: int, place: int) -> tuple[int, int]:
        index, rank = divmod(place, self._ranks)
        step, slot = divmod(index, self._batch)
        return step, (node * self._ranks + rank) * self._batch + slot


@final
class Evened:
    """A partition in other slots than it was made for, whose last step gives each rank as many."""

    def __init__(self, dealt: Partition, ranks: int, batch: int) -> None:
        """Deal out the last step of `dealt`, which is not full, to `ranks` with such a batch."""
        self._dealt = dealt
        self._last = dealt.steps - 1
        filled = dealt.filled
        each = -(-len(filled) // ranks)
        slots = np.arange(ranks * batch).reshape(ranks, batch)[:, :each].ravel()
        self._came_from = np.full(ranks * batch, -1, np.int64)
        self._came_from[slots] = filled[np.arange(len(slots)) % len(filled)]
        self.samples = self._last * ranks * batch + len(slots)
        """Number of samples of all ranks, repeated ones counted each time."""

    @property
    def full_steps(self) -> int:
        """Number of global steps without an empty slot."""
        return self._dealt.full_steps

    @property
    def steps(self) -> int:
        """Number of global steps with any sample."""
        return self._dealt.steps

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the big positions of `slots` in each of `steps`; -1 where there is none."""
        positions = self._dealt.take(steps, slots)
        if steps[-1] == self._last:
            slots = self._came_from[slots]
            positions[-1] = -1
            positions[-1, slots >= 0] = self._dealt.take(steps[-1:], slots[slots >= 0])[0]
        return positions

    def find(self, position: int) -> list[tuple[int, int]]:
        """Return the steps and slots of a big position; those before the drop are left out."""
        found: list[tuple[int, int]] = []
        for step, slot in self._dealt.find(position):
            there = [slot]
            if step == self._last:
                there = np.flatnonzero(self._came_from == slot).tolist()
            found += [(step, each) for each in there]
        return found


def partition(
    algo: str,
    samples: int,
    *,
    rows: int,
    nodes: int,
    ranks: int,
    batch: int,
    drop: int = 0,
    initial_nodes: int | None = None,
) -> Partition | Evened:
    """Deal out `samples` as `orig` or `relaxed` does.

    `relaxed` keeps the global batches of the run that began on `initial_nodes` where the canonical
    nodes do not fit the present ones. Counted through global batches its slots are the same then
    and now, so that it is `orig` on the nodes of then; but its last step is dealt out so that all
    present ranks get as many. After all samples were given, nothing is left.
    """
    fits = nodes <= rows and rows % nodes == 0
    fits = fits or (nodes > rows and nodes % rows == 0)
    if algo == "orig" or initial_nodes is None or fits:
        return Partition(samples, rows, (nodes, ranks, batch), drop)
    together = nodes * ranks * batch
    if together % (initial_nodes * ranks):
        msg = (
            f"a global batch of {together} samples cannot be divided by the {initial_nodes} nodes "
        )
        msg += f"x {ranks} ranks that this run began on: change batch_size or the number of nodes"
        raise OrderError(msg)
    world = (initial_nodes, ranks, together // (initial_nodes * ranks))
    dealt = Partition(samples, rows, world, drop)
    if dealt.steps == dealt.full_steps:
        return dealt
    return Evened(dealt, nodes * ranks, batch)
