"""Which samples of which shards are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import numpy as np

from streaming_core._format._shard import Shard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streaming_core.errors import ShardCorruptError

__all__ = ["Parts"]

S = TypeVar("S", bound=Shard)


@final
class Parts(Generic[S]):
    """Samples of several shards, in the order wanted: for each its shard and its row.

    That each shard has its rows is checked here.
    """

    __slots__ = ("length", "rows", "shards", "which")

    def __init__(
        self, shards: Sequence[S], which: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> None:
        """Want row `rows[i]` of `shards[which[i]]`, for each i; `IndexError` if one is not there.

        Raises `ValueError` for other numbers of the one than of the other.
        """
        if len(which) != len(rows):
            msg = f"{len(rows)} rows are wanted, but for {len(which)} the shard is given"
            raise ValueError(msg)
        self.length = len(rows)
        self.shards = shards
        self.which = which
        self.rows = rows
        if self.length:
            self._check()

    def _check(self) -> None:
        # Seen without their sign, negative numbers are larger than any that is right.
        numbers = self.which.view(np.uint64)
        if int(numbers.max()) >= len(self.shards):
            number = int(self.which[int(numbers.argmax())])
            msg = f"of {len(self.shards)} shard(s), number {number} is wanted"
            raise IndexError(msg)
        rows = self.rows.view(np.uint64)
        counts = [len(shard) for shard in self.shards]
        if int(rows.max()) < min(counts):
            return
        bad = rows >= self.each(np.array(counts, np.uint64))
        if bad.any():
            shard, row = self.find(int(bad.argmax()))
            raise shard.no_row(row)

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a value per shard as one per sample."""
        return np.full(self.length, values[0]) if len(values) == 1 else values.take(self.which)

    def find(self, place: int) -> tuple[S, int]:
        """Return the shard and the row of one sample."""
        return self.shards[int(self.which[place])], int(self.rows[place])

    def by_shard(self) -> Iterator[tuple[S, NDArray[np.int64]]]:
        """Yield each shard that is wanted with the places of its samples."""
        order = np.argsort(self.which, kind="stable")
        bounds = np.searchsorted(self.which[order], np.arange(len(self.shards) + 1))
        for shard, start, stop in zip(self.shards, bounds, bounds[1:], strict=False):
            if start < stop:
                yield shard, order[start:stop]

    def samples(self) -> list[dict[str, Any]]:
        """Return the samples, decoded one by one."""
        which: list[int] = self.which.tolist()
        rows: list[int] = self.rows.tolist()
        return [self.shards[i].row(row) for i, row in zip(which, rows, strict=True)]

    def corrupt(self, place: int, error: object) -> ShardCorruptError:
        """Return the error that says which sample is broken, and with `error` how."""
        shard, row = self.find(place)
        return shard.corrupt(row, error)
