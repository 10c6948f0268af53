"""Records on their way into shards: reused buffers, cut where the limit says."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

import numpy as np

from streaming_core.errors import SampleError
from streaming_writer._cut import MAX_SHARD_BYTES, CutRule, plan_cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from streaming_core._store import Buffer
    from streaming_writer._blocks import Block

__all__ = ["Assembly", "Body", "BodyPool"]

_FIRST_CAPACITY = 1 << 26
_HEADER_ROOM = 1 << 24
"""Kept free before the records. It takes no memory until a header is written there."""


class Body:
    """The records of one shard, in order.

    Small ones lie side by side in a buffer that is reused for later shards; large ones are left
    where they are until they are stored.
    """

    __slots__ = ("_data", "_filled", "_kept", "_lengths", "_may_keep", "count", "size")

    def __init__(self, *, may_keep: bool) -> None:
        """Make an empty one; memory comes with the first records.

        `may_keep` allows large records to stay where they are, as suits shards that are stored as
        they are; what is compressed is gathered anyway, and that into memory already touched.
        """
        self._may_keep = may_keep
        self._data = np.empty(0, np.uint8)
        self._filled = 0
        """Bytes of the records in the buffer."""
        self._kept: list[tuple[int, Sequence[bytes]]] = []
        """Pieces that lie elsewhere, each run with the byte of the buffer that it precedes."""
        self._lengths: list[NDArray[np.int64]] = []
        self.size = 0
        """Bytes of all records."""
        self.count = 0
        """Number of records."""

    def append(self, block: Block, start: int, stop: int) -> None:
        """Add records `start` to `stop` (exclusive) of `block` at the end."""
        lengths = block.lengths[start:stop]
        size = int(lengths.sum())
        pieces = block.pieces(start, stop) if self._may_keep else None
        if pieces is not None:
            self._kept.append((self._filled, pieces))
        else:
            block.write(start, stop, self._room(size))
            self._filled += size
        self._lengths.append(lengths)
        self.size, self.count = self.size + size, self.count + stop - start

    def _room(self, size: int) -> NDArray[np.uint8]:
        """Return the next `size` bytes of the buffer, which grows if it must."""
        begin = _HEADER_ROOM + self._filled
        end = begin + size
        if end > len(self._data):
            grown = np.empty(max(end, 2 * begin, _HEADER_ROOM + _FIRST_CAPACITY), np.uint8)
            grown[_HEADER_ROOM:begin] = self._data[_HEADER_ROOM:begin]
            self._data = grown
        return self._data[begin:end]

    def headed(self, header: bytes) -> list[Buffer]:
        """Return `header` and all records, in as few buffers as that takes without a copy."""
        if self._kept:
            return [header, *self._in_order()]
        end = _HEADER_ROOM + self._filled
        start = _HEADER_ROOM - len(header)
        if start < 0 or end > len(self._data):
            return [header, self._data.data[_HEADER_ROOM:end]]
        self._data[start:_HEADER_ROOM] = np.frombuffer(header, np.uint8)
        return [self._data.data[start:end]]

    def _in_order(self) -> Iterator[Buffer]:
        done, records = 0, self._data.data[_HEADER_ROOM:]
        for at, pieces in self._kept:
            if at > done:
                yield records[done:at]
            yield from pieces
            done = at
        if self._filled > done:
            yield records[done : self._filled]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each record."""
        if len(self._lengths) == 1:
            return self._lengths[0]
        return np.concatenate([np.empty(0, np.int64), *self._lengths])

    def clear(self) -> None:
        """Forget the records and keep the memory of the buffer."""
        self._lengths.clear()
        self._kept.clear()
        self.size = self.count = self._filled = 0


class BodyPool:
    """A fixed number of bodies; when all are out, one waits for the next to come back."""

    def __init__(self, count: int, *, may_keep: bool) -> None:
        """Make `count` bodies; `may_keep` as each of them takes it."""
        # Last in, first out: memory that was touched is cheap, and the rest may never be needed.
        self._free: list[Body] = []
        # Of C, so that no signal handler raises while it is locked.
        self._given: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(count):
            self.give(Body(may_keep=may_keep))

    def take(self, *, timeout: float) -> Body | None:
        """Return an empty body, or None if none came back within `timeout` seconds."""
        try:
            self._given.get(timeout=timeout)
        except queue.Empty:
            return None
        return self._free.pop()

    def give(self, body: Body) -> None:
        """Hand a body back."""
        body.clear()
        self._free.append(body)
        self._given.put(None)


class Assembly:
    """The open shard, and the decision when it is full."""

    def __init__(
        self, rule: CutRule, *, take: Callable[[], Body], full: Callable[[Body], None], fresh: bool
    ) -> None:
        """Take bodies from `take` and hand each full one to `full`.

        `fresh` says that no shard exists yet: only then may the first record leave an empty shard.
        """
        self._rule = rule
        self._take = take
        self._full = full
        self._body: Body | None = None
        self._ask_first = fresh

    @property
    def num_open(self) -> int:
        """Number of records in the open shard."""
        return self._body.count if self._body else 0

    def add(self, block: Block) -> None:
        """Append all records of `block`, finishing the shards that they fill."""
        largest = int(block.lengths.max())
        if largest + self._rule.base_bytes + self._rule.record_bytes > MAX_SHARD_BYTES:
            msg = f"a sample of {largest} bytes; a shard holds at most {MAX_SHARD_BYTES}"
            raise SampleError(msg)
        for start, stop, cut in self._segments(block):
            if cut:
                self.close()
            if start < stop:
                self._open().append(block, start, stop)
            self._ask_first = True

    def _segments(self, block: Block) -> Iterator[tuple[int, int, bool]]:
        body = self._body
        counted = self._rule.base_bytes
        if body:
            counted += body.size + body.count * self._rule.record_bytes
        cuts = plan_cuts(block.lengths, counted, self._rule, ask_first=self._ask_first)
        starts, stops = [0, *cuts], [*cuts, len(block.lengths)]
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            yield start, stop, i > 0

    def _open(self) -> Body:
        if self._body is None:
            self._body = self._take()
        return self._body

    def close(self) -> None:
        """Hand the open shard on, even if it is empty."""
        body, self._body = self._open(), None
        self._full(body)
