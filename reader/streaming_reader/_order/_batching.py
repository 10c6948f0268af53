"""From sequences to global batches, by the four batching methods.

A global batch has a row of slots: ranks in order, and the samples of each. A method answers for
any range of steps and slots, so that a rank's window costs what the window holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from streaming_core.errors import OrderError
from streaming_reader._order._partition import Grid, Lane

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from numpy.typing import NDArray

    from streaming_reader._order._partition import Evened, Partition
    from streaming_reader._order._sequence import Sequence

__all__ = [
    "Batching",
    "DeviceBatching",
    "Rows",
    "SharedBatching",
    "StratifiedBatching",
    "StreamBatching",
    "portions",
]

_log = logging.getLogger("streaming_core.reader")


class Batching(Protocol):
    """The global batches of an epoch."""

    @property
    def steps(self) -> int:
        """Number of global batches, without those that only even out the workers."""
        ...

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids of `slots` (a range) in `steps` (below `steps`); -1 for none."""
        ...

    def find(self, sample: int) -> list[tuple[int, int]]:
        """Return the (step, slot) of a sample id, all of them."""
        ...


def _distinct(numbers: NDArray[np.int64]) -> list[int]:
    found: list[int] = np.unique(numbers).tolist()
    return found


@final
class SharedBatching:
    """`random`: all streams are one sequence; also each stream of the other methods for itself."""

    def __init__(self, sequence: Sequence, dealt: Partition | Evened) -> None:
        self._sequence = sequence
        self._dealt = dealt

    @property
    def steps(self) -> int:
        """Number of global batches, the last of which may have empty slots."""
        return self._dealt.steps

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids of `slots` in `steps`."""
        positions = self._dealt.take(steps, slots)
        empty = positions < 0
        if not empty.any():
            return self._sequence.take(positions)
        positions[~empty] = self._sequence.take(positions[~empty])
        return positions

    def find(self, sample: int) -> list[tuple[int, int]]:
        """Return the (step, slot) of a sample id."""
        positions = self._sequence.find(sample).tolist()
        return [place for position in positions for place in self._dealt.find(position)]


def portions(proportion: NDArray[np.float64], together: int) -> NDArray[np.int64]:
    """Return how many samples of a global batch each stream has.

    Example:
        >>> portions(np.array([0.3, 0.7]), 8)
        array([2, 6])
    """
    exact = proportion * together
    found = exact.astype(np.int64)
    lacking = together - int(found.sum())
    if lacking:
        found[(exact - found).argsort()[::-1][:lacking]] += 1
    if (found <= 0).any():
        stream = int(np.flatnonzero(found <= 0)[0])
        msg = f"stream {stream} has no sample in a global batch of {together}: its share is "
        msg += f"{proportion[stream]:.3g}. Take a larger batch_size, or a larger share for it"
        raise OrderError(msg)
    return found


@final
class StratifiedBatching:
    """`stratified`: each global batch has the same number of samples of each stream."""

    def __init__(
        self,
        sequences: Items[Sequence],
        counts: Items[int],
        portion: NDArray[np.int64],
        rows: int,
        ranks: int,
    ) -> None:
        """Take `portion` of each sequence (of `counts` samples); `ranks` are those of a node."""
        self._sequences = sequences
        self._grids = [Grid(count, rows, 1) for count in counts]
        self._lanes = [Lane(grid.size, ranks) for grid in self._grids]
        self._portion: list[int] = portion.tolist()
        self._borders: list[int] = [0, *np.cumsum(portion).tolist()]

    @property
    def steps(self) -> int:
        """Number of global batches that all streams can fill."""
        return min(lane.size // part for lane, part in zip(self._lanes, self._portion, strict=True))

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids of `slots` in `steps`."""
        taken = np.empty((len(steps), len(slots)), np.int64)
        cuts = np.searchsorted(slots, self._borders).tolist()
        for stream, sequence in enumerate(self._sequences):
            own = slice(cuts[stream], cuts[stream + 1])
            if own.start < own.stop:
                part = steps * self._portion[stream] - self._borders[stream]
                places = self._lanes[stream].take(part[:, np.newaxis] + slots[own])
                taken[:, own] = sequence.take(self._grids[stream].take(places))
        return taken

    def find(self, sample: int) -> list[tuple[int, int]]:
        """Return the (step, slot) of a sample id."""
        found: list[tuple[int, int]] = []
        for stream, sequence in enumerate(self._sequences):
            for position in sequence.find(sample).tolist():
                for element in self._grids[stream].find(position):
                    for place in self._lanes[stream].find(element):
                        step, slot = divmod(place, self._portion[stream])
                        found.append((step, slot + self._borders[stream]))
        return [place for place in found if place[0] < self.steps]


@final
class Rows:
    """Whose turn it is: the shuffled rows of several streams, those of each in their order.

    A row is known by its code: streams one after another, and the rows of each.
    """

    def __init__(self, counts: Items[int], codes: NDArray[np.int64] | None) -> None:
        """Give out `counts` rows of each stream, in the order of `codes` (None: one by one)."""
        self.borders: NDArray[np.int64] = np.array([0, *np.cumsum(counts)], np.int64)
        self.codes = codes

    @property
    def count(self) -> int:
        """Number of rows of all streams."""
        return int(self.borders[-1])

    @staticmethod
    def shuffle(counts: Items[int], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the codes of all rows in a drawn order."""
        origins = np.repeat(np.arange(len(counts)), counts)
        rng.shuffle(origins)
        codes = np.empty(len(origins), np.int64)
        codes[origins.argsort(kind="stable")] = np.arange(len(origins))
        return codes

    def take(self, turns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the stream and its row at each turn."""
        codes = turns if self.codes is None else self.codes[turns]
        streams = np.searchsorted(self.borders, codes, side="right") - 1
        return streams, codes - self.borders[streams]

    def find(self, stream: int, row: int) -> list[int]:
        """Return the turns of a stream's row: one, or none if the row was left out."""
        code = int(self.borders[stream]) + row
        if code >= self.borders[stream + 1]:
            return []
        return [code] if self.codes is None else np.flatnonzero(self.codes == code).tolist()


@final
class StreamBatching:
    """`per_stream`: each global batch is of one stream."""

    def __init__(self, streams: Items[SharedBatching], rows: Rows) -> None:
        self._streams = streams
        self._rows = rows

    @property
    def steps(self) -> int:
        """Number of global batches, all of them full."""
        return self._rows.count

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids of `slots` in `steps`."""
        taken = np.empty((len(steps), len(slots)), np.int64)
        streams, rows = self._rows.take(steps)
        for stream in _distinct(streams):
            own = streams == stream
            taken[own] = self._streams[stream].take(rows[own], slots)
        return taken

    def find(self, sample: int) -> list[tuple[int, int]]:
        """Return the (step, slot) of a sample id."""
        return [
            (turn, slot)
            for stream, batching in enumerate(self._streams)
            for row, slot in batching.find(sample)
            for turn in self._rows.find(stream, row)
        ]


@final
class DeviceBatching:
    """`device_per_stream`: each rank's batch is of one stream.

    A stream is partitioned by canonical node; a node's rows of batches are made of its canonical
    nodes, and dealt out to all ranks, node by node in turn.
    """

    def __init__(
        self,
        sequences: Items[Sequence],
        counts: Items[int],
        rows: int,
        world: tuple[int, int, int],
    ) -> None:
        """Deal `counts` samples to (nodes, ranks per node, batch size)."""
        self._sequences = sequences
        self._nodes, self._ranks, self._batch = world
        if rows % self._nodes:
            msg = f"device_per_stream needs the canonical nodes ({rows}) to be a multiple of the "
            raise OrderError(msg + f"nodes ({self._nodes}): set num_canonical_nodes accordingly")
        self._width = rows // self._nodes
        self._grids = [Grid(count, rows, rows) for count in counts]
        self._lanes = [Lane(grid.columns, self._ranks) for grid in self._grids]
        self._turns: list[Rows] = []

    @property
    def row_counts(self) -> list[int]:
        """Number of full batches of each stream on each node."""
        return [self._width * lane.size // self._batch for lane in self._lanes]

    def settle(self, turns: list[Rows]) -> None:
        """Take the order of rows of each node; nothing else may be asked before."""
        self._turns = turns

    @property
    def steps(self) -> int:
        """Number of global batches; the last of them may have ranks without any sample."""
        devices, most = self._nodes * self._ranks, self._turns[0].count
        return (most + devices - most % devices) // self._ranks

    def take(self, steps: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids of `slots` in `steps`."""
        taken = np.full((len(steps), len(slots)), -1, np.int64)
        devices = slots // self._batch
        for device in range(int(devices[0]), int(devices[-1]) + 1):
            own = slice(*np.searchsorted(devices, [device, device + 1]).tolist())
            turns, nodes = np.divmod(steps * (self._nodes * self._ranks) + device, self._nodes)
            for node in _distinct(nodes):
                here = (nodes == node) & (turns < self._turns[node].count)
                if here.any():
                    inside = slots[own] - device * self._batch
                    taken[here, own] = self._rows(node, turns[here], inside)
        return taken

    def _rows(
        self, node: int, turns: NDArray[np.int64], inside: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        taken = np.empty((len(turns), len(inside)), np.int64)
        streams, rows = self._turns[node].take(turns)
        for stream in _distinct(streams):
            own = streams == stream
            flat = (rows[own] * self._batch)[:, np.newaxis] + inside
            index, rank = np.divmod(flat, self._ranks)
            index, line = np.divmod(index, self._width)
            columns = self._lanes[stream].take(index * self._ranks + rank)
            line += node * self._width
            elements = columns * (self._nodes * self._width) + line
            taken[own] = self._sequences[stream].take(self._grids[stream].take(elements))
        return taken

    def find(self, sample: int) -> list[tuple[int, int]]:
        """Return the (step, slot) of a sample id."""
        found: list[tuple[int, int]] = []
        for stream, sequence in enumerate(self._sequences):
            for position in sequence.find(sample).tolist():
                for element in self._grids[stream].find(position):
                    found += self._places(stream, element)
        return found

    def _places(self, stream: int, element: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        column, line = divmod(element, self._nodes * self._width)
        node, line = divmod(line, self._width)
        for place in self._lanes[stream].find(column):
            index, rank = divmod(place, self._ranks)
            row, inside = divmod((index * self._width + line) * self._ranks + rank, self._batch)
            for turn in self._turns[node].find(stream, row):
                step, device = divmod(turn * self._nodes + node, self._nodes * self._ranks)
                found.append((step, device * self._batch + inside))
        return found
