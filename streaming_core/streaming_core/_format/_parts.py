"""Which samples of which shards go where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final

import numpy as np

from streaming_core._format._shard import Shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core.errors import ShardCorruptError

__all__ = ["Part", "Parts", "Where"]

S = TypeVar("S", bound=Shard)

Where: TypeAlias = "slice | NDArray[np.int64]"
"""The place of each row of a part among all that are wanted."""
Part: TypeAlias = "tuple[Shard, NDArray[np.int64], Where]"
"""A shard, rows of it, and for each row its place."""


@final
class Parts(Generic[S]):
    """The rows wanted of several shards, part after part, and the place of each.

    All is checked here: each shard has its rows, and each of `length` places is filled.
    """

    __slots__ = ("counts", "length", "places", "rows", "shards")

    def __init__(self, parts: Sequence[tuple[S, NDArray[np.int64], Where]], length: int) -> None:
        """Raise `IndexError` for a row that is not there, `ValueError` for places not filled."""
        self.length = length
        self.shards = [shard for shard, _, _ in parts]
        rows = [rows for _, rows, _ in parts]
        self.counts = [len(part) for part in rows]
        self.rows = rows[0] if len(rows) == 1 else np.concatenate(rows or [_NONE])
        self.places = self._places([where for _, _, where in parts])
        self._check_rows()

    def _places(self, wheres: Sequence[Where]) -> NDArray[np.int64] | None:
        """Return the place of each row, or None where these simply follow each other."""
        at, ordered = 0, True
        runs: list[range | NDArray[np.int64]] = []
        for where, count in zip(wheres, self.counts, strict=True):
            run = range(self.length)[where] if isinstance(where, slice) else where
            if len(run) != count:
                msg = f"a part has {count} rows, but {len(run)} places for them"
                raise ValueError(msg)
            ordered = ordered and isinstance(run, range) and run == range(at, at + count)
            runs.append(run)
            at += count
        if at != self.length:
            msg = f"the parts have {at} rows, but {self.length} places are to be filled"
            raise ValueError(msg)
        if ordered:
            return None
        places = np.concatenate([np.asarray(run, np.int64) for run in runs])
        filled = np.zeros(self.length, np.bool_)
        filled[places] = True
        if not filled.all():
            msg = f"no part has a sample for place {int(filled.argmin())} of {self.length}"
            raise ValueError(msg)
        return places

    def _check_rows(self) -> None:
        if not self.length:
            return
        # Seen without its sign, a negative number is larger than any row.
        rows = self.rows.view(np.uint64)
        if len(self.shards) == 1:
            limit = len(self.shards[0])
            if int(np.maximum.reduce(rows)) < limit:
                return
            bad = rows >= limit
        else:
            limits = [len(shard) for shard in self.shards]
            if int(np.maximum.reduce(rows)) < min(limits):
                return
            bad = rows >= np.repeat(np.array(limits, np.uint64), self.counts)
            if not bad.any():
                return
        shard, row = self._at(int(bad.argmax()))
        raise shard.no_row(row)

    def arranged(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return one value per row, given part after part, by place."""
        if self.places is None:
            return values
        out = np.empty_like(values)
        out[self.places] = values
        return out

    def each(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a value per part as one per row, part after part."""
        return np.repeat(values, self.counts)

    def split(self, values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return one value per row, given part after part, in an array for each part."""
        if len(self.counts) == 1:
            return [values]
        return np.split(values, np.cumsum(self.counts)[:-1])

    def find(self, place: int) -> tuple[S, int]:
        """Return the shard and the row of the sample at `place`."""
        index = place
        if self.places is not None:
            index = int((self.places == place).argmax())
        return self._at(index)

    def samples(self) -> list[dict[str, Any]]:
        """Return the samples by place, decoded one by one."""
        shards: list[int] = self.arranged(self.each(np.arange(len(self.shards)))).tolist()
        rows: list[int] = self.arranged(self.rows).tolist()
        return [self.shards[i].row(row) for i, row in zip(shards, rows, strict=True)]

    def _at(self, index: int) -> tuple[S, int]:
        part = int(np.searchsorted(np.cumsum(self.counts), index, side="right"))
        return self.shards[part], int(self.rows[index])

    def corrupt(self, place: int, error: object) -> ShardCorruptError:
        """Return the error that says which sample is broken, and with `error` how."""
        shard, row = self.find(place)
        return shard.corrupt(row, error)


_NONE = np.empty(0, np.int64)
