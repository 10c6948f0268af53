"""One worker's part of an epoch: windows of ids, their shards fetched ahead, decoded in order."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import numpy as np

from streaming_core._columns import Columns, iterate_rows
from streaming_core._format import gather, gather_none
from streaming_core.errors import StreamingError
from streaming_reader._batch import Mixed, as_format
from streaming_reader._fetch import Fetcher, first_uses
from streaming_reader._shared import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from streaming_core._format import Shard
    from streaming_reader._batch import Batch, BatchFormat, RaggedForm
    from streaming_reader._catalogue import Catalogue

__all__ = ["Feed", "decode", "decode_any", "decode_as", "decode_rows"]

_T = TypeVar("_T")

_WINDOW_BYTES: Final = 8 << 20
_JOINT_BYTES: Final = 4 << 20
"""Whoever keeps one of several batches that were decoded together keeps no more than this."""
_MOST_WINDOW: Final = 1 << 14
_FIRST: Final = 64
"""The first sample should not wait for thousands."""
_AT: Final = {name: at for at, name in enumerate(COUNTERS)}


def decode(
    source: Catalogue, get: Callable[[int], Shard], ids: NDArray[np.int64], *, copy: bool = True
) -> Columns:
    """Return the samples `ids` in columns, in order, their shards had from `get`.

    Without `copy`, columns of rows that lie side by side may be read-only views of the shard.

    Raises:
        SchemaError: They have different columns.
    """
    if not len(ids):
        schemas = [schema for table in source.tables for schema in table.schemas]
        return gather_none(schemas[0]) if schemas else Columns(0, {})
    shards, rows = source.locate(ids)
    parts = [(get(number), rows[where], where) for number, where in _runs(shards)]
    return gather(parts, len(ids), copy=copy)


def decode_any(
    source: Catalogue, get: Callable[[int], Shard], ids: NDArray[np.int64], *, copy: bool = True
) -> Batch:
    """Return the samples `ids` in columns as `decode` does, or as they are if theirs differ."""
    if source.uniform or _have_same_names(source, ids):
        return decode(source, get, ids, copy=copy)
    return Mixed(list(decode_rows(source, get, ids, copy=copy)))


def decode_as(
    source: Catalogue,
    get: Callable[[int], Shard],
    ids: NDArray[np.int64],
    batch_format: BatchFormat,
    ragged: RaggedForm = "list",
) -> Any:  # noqa: ANN401 - the format's type
    """Return the samples `ids` in one batch; raises as `as_format`."""
    return as_format(decode_any(source, get, ids), batch_format, ragged)


def _have_same_names(source: Catalogue, ids: NDArray[np.int64]) -> bool:
    shards = first_uses(source.locate(ids)[0])
    streams = source.stream_per_shard[shards]
    stream_list: list[int] = streams.tolist()
    numbers: list[int] = (shards - source.shard_offsets[streams]).tolist()
    names: set[frozenset[str]] = set()
    for stream, number in zip(stream_list, numbers, strict=True):
        table = source.tables[stream]
        names.add(frozenset(table.schemas[int(table.schema_ids[number])].column_names))
    return len(names) <= 1


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
        self._aside = np.zeros(0, np.int64)
        """The rest of a window, of which no shard is wanted yet."""
        self._coming: deque[NDArray[np.int64]] = deque()
        """Ids to come whose shards are wanted."""
        self._pulled = 0
        """How many these are."""
        self._known = source.counts()
        mean = max(1.0, source.mean_sample_bytes)
        self._window = max(1, min(_MOST_WINDOW, int(_WINDOW_BYTES / mean)))
        """How many samples are decoded at a time, at most."""
        self._joint = max(1, min(_MOST_WINDOW, int(_JOINT_BYTES / mean)))
        """How many where they are several batches."""

    def samples(self) -> Iterator[dict[str, Any]]:
        """Yield sample after sample."""
        size = min(self._window, _FIRST)
        while True:
            ids = self._take(size)
            if not len(ids):
                return
            while len(ids):
                count = self._arrived(ids)
                yield from self._rows(ids[:count])
                ids = ids[count:]
            size = min(self._window, size * 4)

    def ids(self) -> Iterator[int]:
        """Yield the ids instead of their samples, each when its shard is there."""
        while len(ids := self._take(_FIRST)):
            shards: list[int] = self._source.locate(ids)[0].tolist()
            last = -1
            for sample, shard in zip(ids.tolist(), shards, strict=True):
                if shard != last:
                    began = time.perf_counter_ns()
                    self._fetcher.get(shard)
                    self._count("wait_shard_ns", time.perf_counter_ns() - began)
                    last = shard
                self._count("samples", 1)
                yield sample

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[Batch]:
        """Yield batches of `size` samples, the last of which may be smaller.

        Small ones are decoded several at a time, and are then parts of the same memory: about
        4 MiB, which live until the last of them is gone. Those before a shard or sample that cannot
        be had are given before its error is raised.
        """
        most, together = max(1, self._joint // size), 1
        while True:
            ids = self._take(together * size)
            while len(ids):
                count = self._arrived(ids) if len(ids) > size else len(ids)
                # Whole batches only, at least one, whether its shards are here or not.
                count = len(ids) if count == len(ids) else max(size, count // size * size)
                if drop_last and count < size:
                    return
                for batch in self._decoded(ids[:count], size):
                    if drop_last and len(batch) < size:
                        return
                    self._count("samples", len(batch))
                    self._count("batches", 1)
                    yield batch
                ids = ids[count:]
            if not self._coming and not self._pull(1):
                return
            together = min(most, 2 * together)

    def _decoded(self, ids: NDArray[np.int64], size: int) -> Iterator[Batch]:
        """Yield the batches of `ids`, decoded together if that can be."""
        if len(ids) > size and self._source.uniform:
            try:
                columns = self._timed(decode, ids, copy=True)
            except StreamingError:
                pass  # one of them is broken: those before it are not
            else:
                self._count("bytes_used", columns.nbytes)
                for start in range(0, len(ids), size):
                    yield columns.slice(start, start + size)
                return
        for start in range(0, len(ids), size):
            batch = self._timed(decode_any, ids[start : start + size], copy=True)
            self._count("bytes_used", batch.nbytes)
            yield batch

    def _rows(self, ids: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        try:
            if not self._source.uniform:
                rows = self._timed(decode_rows, ids, copy=False)
            else:
                columns = self._timed(decode, ids, copy=False)
                self._count("bytes_used", columns.nbytes)
                rows = iterate_rows(columns)
        except StreamingError:
            if len(ids) == 1:
                raise
            # One of them is broken: those before it are not.
            return chain.from_iterable(self._rows(ids[i : i + 1]) for i in range(len(ids)))
        self._count("samples", len(ids))
        return rows

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
        """Want the shards of `wanted` ids to come, if there are so many; tell if there are any."""
        while self._pulled < wanted:
            if not len(self._aside):
                began = time.perf_counter_ns()
                window = next(self._windows, None)
                self._count("wait_order_ns", time.perf_counter_ns() - began)
                if window is None:
                    break
                self._aside = window
            piece, self._aside = np.split(self._aside, [wanted - self._pulled])
            self._coming.append(piece)
            self._pulled += len(piece)
            shards, _ = self._source.locate(piece)
            self._fetcher.want(first_uses(shards).tolist())
        return self._pulled > 0

    def _arrived(self, ids: NDArray[np.int64]) -> int:
        """Return how many of `ids` can be had without waiting or failing, at least one."""
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
