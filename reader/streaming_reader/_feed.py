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
from streaming_reader._fetch import BUDGET_BYTES, Fetcher
from streaming_reader._located import Located, compact, first_uses
from streaming_reader._ranged import Announced, Forerun
from streaming_reader._shared import COUNTERS
from streaming_reader._threads import close_at_exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from streaming_core._format import Shard
    from streaming_reader._batch import Batch, BatchFormat, RaggedForm
    from streaming_reader._catalogue import Catalogue
    from streaming_reader._ranged import Outlook, RangeCounts

__all__ = ["Feed", "decode", "decode_any", "decode_as", "decode_list"]

_T = TypeVar("_T")

_WINDOW_BYTES: Final = 8 << 20
_JOINT_BYTES: Final = 4 << 20
"""Whoever keeps one of several batches that were decoded together keeps no more than this."""
_MOST_WINDOW: Final = 1 << 14
_FIRST: Final = 64
"""The first sample should not wait for thousands."""
_AT: Final = {name: at for at, name in enumerate(COUNTERS)}


def decode(
    source: Catalogue, get: Callable[[int], Shard], located: Located, *, copy: bool = True
) -> Columns:
    """Return samples in columns, in order, their shards had from `get`.

    Without `copy`, columns of rows that lie side by side may be read-only views of the shard.

    Raises:
        SchemaError: They have different columns.
    """
    if not len(located):
        schemas = [schema for table in source.tables for schema in table.schemas]
        return gather_none(schemas[0]) if schemas else Columns(0, {})
    distinct, which = compact(located.shards)
    shards = [get(shard) for shard in distinct.tolist()]
    one = source.unified
    if one is None:
        return gather(shards, which, located.rows, copy=copy)
    return one.form(gather(shards, which, located.rows, one.names, copy=copy))


def decode_any(
    source: Catalogue, get: Callable[[int], Shard], located: Located, *, copy: bool = True
) -> Batch:
    """Return samples in columns as `decode` does, or as they are if theirs differ."""
    if source.uniform or _have_same_names(source, located):
        return decode(source, get, located, copy=copy)
    return Mixed(list(decode_rows(source, get, located, copy=copy)))


def decode_as(
    source: Catalogue,
    ids: NDArray[np.int64],
    batch_format: BatchFormat,
    ragged: RaggedForm = "list",
) -> Any:  # noqa: ANN401 - the format's type
    """Return the samples `ids` in one batch; raises as `as_format`."""
    located = source.locate(ids)
    return as_format(decode_any(source, source.opener(located), located), batch_format, ragged)


def decode_list(source: Catalogue, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return the samples `ids`, whatever columns each has."""
    located = source.locate(ids)
    return list(decode_rows(source, source.opener(located), located)) if len(ids) else []


def _have_same_names(source: Catalogue, located: Located) -> bool:
    shards = first_uses(located.shards)
    streams = source.stream_per_shard[shards]
    stream_list: list[int] = streams.tolist()
    numbers: list[int] = (shards - source.shard_offsets[streams]).tolist()
    names: set[frozenset[str]] = set()
    for stream, number in zip(stream_list, numbers, strict=True):
        table = source.tables[stream]
        names.add(frozenset(table.schemas[int(table.schema_ids[number])].column_names))
    return len(names) <= 1


def decode_rows(
    source: Catalogue, get: Callable[[int], Shard], located: Located, *, copy: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield samples in order, whatever columns each has."""
    if source.uniform:
        return iterate_rows(decode(source, get, located, copy=copy))
    opened = {number: get(number) for number in first_uses(located.shards).tolist()}
    pairs = zip(located.shards.tolist(), located.rows.tolist(), strict=True)
    return (opened[shard].row(row) for shard, row in pairs)


def _fetchers(
    source: Catalogue, timeout: float, outlook: Outlook | None
) -> tuple[Fetcher, Forerun | None]:
    """Return what fetches shards, and what reads ranges before, where there are any to be read."""
    ranged = source.ranged
    # What is fetched ahead is mapped, and so stays on the disk even if it is evicted meanwhile.
    budget = BUDGET_BYTES if source.limit is None else min(BUDGET_BYTES, source.limit // 4)
    if ranged is None or outlook is None:
        return Fetcher(source, timeout=timeout, budget=budget), None
    shards = Announced(source, ranged)
    fetcher = Fetcher(shards, timeout=timeout, budget=budget)
    return fetcher, Forerun(shards, ranged, fetcher, outlook, timeout=timeout)


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
        outlook: Outlook | None = None,
    ) -> None:
        """Give the samples of `windows`, wanting the shards of `ahead` samples beyond each.

        With an `outlook` what is needed before its shards are here may be read by ranges.
        """
        self._source = source
        self._windows = windows
        self._ahead = ahead
        self._is_closed = False
        self._counters = counters
        self._fetcher, self._forerun = _fetchers(source, timeout, outlook)
        close_at_exit(self)
        self._aside = np.zeros(0, np.int64)
        """The rest of a window, of which no shard is wanted yet."""
        self._given: Located | None = None
        """The samples of the batch that was given last."""
        self._coming: deque[Located] = deque()
        """Samples to come whose shards are wanted."""
        self._pulled = 0
        """How many these are."""
        self._known = source.counts()
        self._read: RangeCounts = source.range_counts()
        mean = max(1.0, source.mean_sample_bytes)
        self._window = max(1, min(_MOST_WINDOW, int(_WINDOW_BYTES / mean)))
        """How many samples are decoded at a time, at most."""
        self._joint = max(1, min(_MOST_WINDOW, int(_JOINT_BYTES / mean)))
        """How many where they are several batches."""

    def samples(self) -> Iterator[dict[str, Any]]:
        """Yield sample after sample."""
        size = min(self._window, _FIRST)
        while True:
            coming = self._take(size)
            if not len(coming):
                self._finish()
                return
            while len(coming):
                count = self._arrived(coming, _FIRST)
                yield from self._rows(coming.part(0, count))
                coming = coming.part(count)
            size = min(self._window, size * 4)

    def ids(self) -> Iterator[int]:
        """Yield the ids instead of their samples, each when its shard is there; for `use`."""
        if self._forerun is not None:
            self._forerun.release()
        while len(coming := self._take(_FIRST)):
            last = -1
            self._note_counts()
            for sample, shard in zip(coming.ids.tolist(), coming.shards.tolist(), strict=True):
                if shard != last and not (self._forerun and self._forerun.is_thin(shard)):
                    began = time.perf_counter_ns()
                    self._fetcher.get(shard)
                    self.count("wait_shard_ns", time.perf_counter_ns() - began)
                    last = shard
                self.count("samples", 1)
                yield sample

    def use(self, one: Callable[[int], _T], sample: int) -> _T:
        """Return what `one` makes of an id, counting the bytes of the samples that it reads."""
        source = self._source
        source.is_measured = True
        before = source.sample_bytes
        try:
            made = one(sample)
        except Exception as error:
            shard, row = source.find(sample)
            error.add_note(f"raised for sample {sample}: row {row} of {source.describe(shard)}")
            raise
        self.count("bytes_used", source.sample_bytes - before)
        return made

    def describe(self, at: int) -> str:
        """Return which sample one of the batch given last is, and where it lies."""
        if self._given is None or at >= len(self._given):
            return "a sample"
        shard = self._source.describe(int(self._given.shards[at]))
        return f"sample {self._given.ids[at]}: row {self._given.rows[at]} of {shard}"

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[Batch]:
        """Yield batches of `size` samples, the last of which may be smaller.

        Small ones are decoded several at a time, and are then parts of the same memory: about
        4 MiB, which live until the last of them is gone. Those before a shard or sample that cannot
        be had are given before its error is raised.
        """
        most, together = max(1, self._joint // size), 1
        while True:
            coming = self._take(together * size)
            while len(coming):
                total = len(coming)
                count = self._arrived(coming, size)
                # Whole batches only, at least one, whether its shards are here or not.
                count = total if count == total else min(total, max(size, count // size * size))
                if drop_last and count < size:
                    break
                for batch in self._decoded(coming.part(0, count), size):
                    if drop_last and len(batch) < size:
                        break
                    self.count("samples", len(batch))
                    self.count("batches", 1)
                    yield batch
                coming = coming.part(count)
            if not self._coming and not self._pull(1):
                self._finish()
                return
            together = min(most, 2 * together)

    def _decoded(self, located: Located, size: int) -> Iterator[Batch]:
        """Yield the batches of some samples, decoded together if that can be."""
        if len(located) > size and (self._source.uniform or self._source.unified):
            try:
                columns = self._timed(decode, located, copy=True)
            except StreamingError:
                pass  # one of them is broken: those before it are not
            else:
                self.count("bytes_used", columns.nbytes)
                for start in range(0, len(located), size):
                    self._given = located.part(start, start + size)
                    yield columns.slice(start, start + size)
                return
        for start in range(0, len(located), size):
            self._given = located.part(start, start + size)
            batch = self._timed(decode_any, self._given, copy=True)
            self.count("bytes_used", batch.nbytes)
            yield batch

    def _rows(self, located: Located) -> Iterator[dict[str, Any]]:
        try:
            if not self._source.uniform:
                rows = self._timed(decode_rows, located, copy=False)
            else:
                columns = self._timed(decode, located, copy=False)
                self.count("bytes_used", columns.nbytes)
                rows = iterate_rows(columns)
        except StreamingError:
            if len(located) == 1:
                raise
            # One of them is broken: those before it are not.
            each = (self._rows(located.part(i, i + 1)) for i in range(len(located)))
            return chain.from_iterable(each)
        self.count("samples", len(located))
        return rows

    def close(self) -> None:
        """Fetch no more; a second time does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._note_counts()
        self._fetcher.close()
        if self._forerun is not None:
            self._forerun.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, most: int) -> Located:
        """Return the next samples, up to `most`, and want the shards of those beyond."""
        self._pull(most + self._ahead)
        taken: list[Located] = []
        while self._coming and most:
            head = self._coming.popleft()
            if len(head) > most:
                self._coming.appendleft(head.part(most))
                head = head.part(0, most)
            taken.append(head)
            most -= len(head)
        self._pulled -= sum(map(len, taken))
        return Located.joined(taken)

    def _pull(self, wanted: int) -> bool:
        """Want the shards of `wanted` ids to come, if there are so many; tell if there are any."""
        while self._pulled < wanted:
            if not len(self._aside):
                began = time.perf_counter_ns()
                window = next(self._windows, None)
                self.count("wait_order_ns", time.perf_counter_ns() - began)
                if window is None:
                    break
                self._aside = window
            count = wanted - self._pulled
            piece, self._aside = self._source.locate(self._aside[:count]), self._aside[count:]
            self._coming.append(piece)
            self._pulled += len(piece)
            (self._forerun or self._fetcher).want(first_uses(piece.shards).tolist())
        return self._pulled > 0

    def _arrived(self, located: Located, needed: int) -> int:
        """Return how many samples can be had without waiting or failing, at least one.

        Of the first `needed` ones, those that are late are read by ranges if that is better.
        """
        forerun = self._forerun
        if not (forerun or self._fetcher).at_work:
            return len(located)
        held: frozenset[int] = frozenset()
        ready = self._fetcher.ready
        if forerun is not None:
            began = time.perf_counter_ns()
            held = forerun.bring(located.part(0, needed), self._coming)
            self.count("wait_shard_ns", time.perf_counter_ns() - began)
            ready = forerun.ready
        late = [s for s in first_uses(located.shards).tolist() if not ready(s)]
        if not late:
            return len(located)
        missing = np.isin(located.shards, late)
        if held:
            missing[:needed] &= ~np.isin(located.shards[:needed], list(held))
        return max(1, int(missing.argmax())) if missing.any() else len(located)

    def _finish(self) -> None:
        """Make sure of what was given before its shards were here."""
        if self._forerun is not None:
            self._forerun.finish()

    def _timed(self, make: Callable[..., _T], located: Located, *, copy: bool) -> _T:
        """Decode samples, counting apart what was spent on waiting for shards."""
        waited = 0

        def get(shard: int) -> Shard:
            nonlocal waited
            began = time.perf_counter_ns()
            found = (self._forerun or self._fetcher).get(shard)
            waited += time.perf_counter_ns() - began
            return found

        began = time.perf_counter_ns()
        made = make(self._source, get, located, copy=copy)
        self.count("wait_shard_ns", waited)
        self.count("decode_ns", time.perf_counter_ns() - began - waited)
        self._note_counts()
        return made

    def _note_counts(self) -> None:
        """Count what caches and ranges have done since."""
        now, read = self._source.counts(), self._source.range_counts()
        if now != self._known or read != self._read:
            news = {**asdict(now - self._known), **asdict(read - self._read)}
            for name, number in news.items():
                self.count(name, number)
            self._known, self._read = now, read

    def count(self, name: str, number: int) -> None:
        """Add to one of `COUNTERS`."""
        self._counters[_AT[name]] += number
