"""One worker's part of an epoch: windows of ids, their shards fetched ahead, decoded in order."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import numpy as np

from streaming_core._columns import iterate_rows
from streaming_core._format import gather
from streaming_reader._fetch import Fetcher, first_uses
from streaming_reader._shared import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from streaming_core._columns import Columns
    from streaming_core._format import Shard
    from streaming_reader._catalogue import Catalogue

__all__ = ["Feed", "decode", "decode_rows"]

_T = TypeVar("_T")

_WINDOW_BYTES: Final = 8 << 20
_MOST_WINDOW: Final = 1 << 14
_AT: Final = {name: at for at, name in enumerate(COUNTERS)}


def decode(
    source: Catalogue, get: Callable[[int], Shard], ids: NDArray[np.int64], *, copy: bool = True
) -> Columns:
    """Return the samples `ids` in columns, in order, their shards had from `get`.

    Without `copy`, columns of rows that lie side by side may be read-only views of the shard.

    Raises:
        SchemaError: They have different columns.
    """
    shards, rows = source.locate(ids)
    parts = [(get(number), rows[where], where) for number, where in _runs(shards)]
    return gather(parts, len(ids), copy=copy)


def decode_rows(
    source: Catalogue, get: Callable[[int], Shard], ids: NDArray[np.int64], *, copy: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the samples `ids` in order, whatever columns each has."""
    if source.uniform:
        return iterate_rows(decode(source, get, ids, copy=copy))
    shards, rows = source.locate(ids)
    opened = {number: get(number) for number in first_uses(shards).tolist()}
    pairs = zip(shards.tolist(), rows.tolist(), strict=True)
    return (opened[shard].row(row) for shard, row in pairs)


def _runs(shards: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
    """Yield each shard with the places that want it, in order of first use."""
    if not len(shards):
        return
    if shards[0] == shards[-1] and (shards == shards[0]).all():
        yield int(shards[0]), slice(0, len(shards))
        return
    order = np.argsort(shards, kind="stable")
    ordered = shards[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1, [len(shards)]])
    firsts = order[starts[:-1]]
    for i in np.argsort(firsts):
        places = order[starts[i] : starts[i + 1]]
        if places[-1] - places[0] + 1 == len(places):
            yield int(ordered[starts[i]]), slice(int(places[0]), int(places[-1]) + 1)
        else:
            yield int(ordered[starts[i]]), places


class Feed:
    """Gives a worker's samples in order, fetching shards for those to come.

    One thread uses it. `close` it, or use it with `with`.
    """

    def __init__(
        self,
        source: Catalogue,
        windows: Iterator[NDArray[np.int64]],
        *,
        ahead: int,
        timeout: float,
        counters: NDArray[np.int64],
    ) -> None:
        """Give the samples of `windows`, wanting the shards of `ahead` samples beyond each."""
        self._source = source
        self._windows = windows
        self._ahead = ahead
        self._counters = counters
        self._fetcher = Fetcher(source, timeout=timeout)
        self._coming: deque[NDArray[np.int64]] = deque()
        self._pulled = 0
        self._known = source.counts()
        mean = max(1.0, source.mean_sample_bytes)
        self._window = max(1, min(_MOST_WINDOW, int(_WINDOW_BYTES / mean)))
        """How many samples are decoded at a time."""

    def samples(self) -> Iterator[dict[str, Any]]:
        """Yield sample after sample."""
        size = min(self._window, 64)  # the first sample should not wait for thousands
        while True:
            ids = self._take(size)
            if not len(ids):
                return
            while len(ids):
                count = self._arrived(ids)
                yield from self._rows(ids[:count])
                ids = ids[count:]
            size = min(self._window, size * 4)

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[Columns]:
        """Yield batches of `size` samples, the last of which may be smaller.

        Small ones are decoded several at a time, and are then parts of the same memory.
        """
        most, together = max(1, self._window // size), 1
        while True:
            ids = self._take(together * size)
            while len(ids):
                count = self._arrived(ids) if together > 1 else len(ids)
                # Whole batches only, at least one, whether its shards are here or not.
                count = len(ids) if count == len(ids) else max(size, count // size * size)
                if drop_last and count < size:
                    return
                yield from self._batches(ids[:count], size, drop_last=drop_last)
                ids = ids[count:]
            if not self._coming and not self._pull(1):
                return
            together = min(most, 2 * together)

    def _batches(self, ids: NDArray[np.int64], size: int, *, drop_last: bool) -> Iterator[Columns]:
        columns = self._timed(decode, ids, copy=True)
        self._count("bytes_used", columns.nbytes)
        for start in range(0, len(ids), size):
            batch = columns if len(ids) <= size else columns.slice(start, start + size)
            if drop_last and len(batch) < size:
                return
            self._count("samples", len(batch))
            self._count("batches", 1)
            yield batch

    def _rows(self, ids: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        self._count("samples", len(ids))
        if not self._source.uniform:
            return self._timed(decode_rows, ids, copy=False)
        columns = self._timed(decode, ids, copy=False)
        self._count("bytes_used", columns.nbytes)
        return iterate_rows(columns)

    def close(self) -> None:
        """Fetch no more."""
        self._fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, most: int) -> NDArray[np.int64]:
        """Return the next ids, up to `most`, and want the shards of those beyond."""
        self._pull(most + self._ahead)
        taken: list[NDArray[np.int64]] = []
        while self._coming and most:
            head = self._coming.popleft()
            if len(head) > most:
                self._coming.appendleft(head[most:])
                head = head[:most]
            taken.append(head)
            most -= len(head)
        self._pulled -= sum(map(len, taken))
        return taken[0] if len(taken) == 1 else np.concatenate([np.zeros(0, np.int64), *taken])

    def _pull(self, wanted: int) -> bool:
        """Know at least `wanted` ids to come; tell whether there are any."""
        while self._pulled < wanted:
            began = time.perf_counter_ns()
            window = next(self._windows, None)
            self._count("wait_order_ns", time.perf_counter_ns() - began)
            if window is None:
                break
            self._coming.append(window)
            self._pulled += len(window)
            shards, _ = self._source.locate(window)
            self._fetcher.want(first_uses(shards).tolist())
        return self._pulled > 0

    def _arrived(self, ids: NDArray[np.int64]) -> int:
        """Return how many of `ids` can be had without waiting, at least one."""
        shards, _ = self._source.locate(ids)
        late = [s for s in first_uses(shards).tolist() if not self._fetcher.ready(s)]
        if not late:
            return len(ids)
        return max(1, int(np.flatnonzero(np.isin(shards, late))[0]))

    def _timed(self, make: Callable[..., _T], ids: NDArray[np.int64], *, copy: bool) -> _T:
        """Decode `ids`, counting apart what was spent on waiting for shards."""
        waited = 0

        def get(shard: int) -> Shard:
            nonlocal waited
            began = time.perf_counter_ns()
            found = self._fetcher.get(shard)
            waited += time.perf_counter_ns() - began
            return found

        began = time.perf_counter_ns()
        made = make(self._source, get, ids, copy=copy)
        self._count("wait_shard_ns", waited)
        self._count("decode_ns", time.perf_counter_ns() - began - waited)
        now = self._source.counts()
        if now != self._known:
            for name, number in asdict(now - self._known).items():
                self._count(name, number)
            self._known = now
        return made

    def _count(self, name: str, number: int) -> None:
        self._counters[_AT[name]] += number
