"""All shards of all streams under running numbers: where a sample lies, and its open shard."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from streaming_core._store import last_progress
from streaming_reader._cache import Counts, touch_pages
from streaming_reader._located import Located, Locator, Spanner, first_uses
from streaming_reader._ranged import RangeCounts, Ranged, rows_by_shard
from streaming_reader._unified import unified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from streaming_core._format import Shard
    from streaming_core._index import ShardInfo, ShardTable
    from streaming_reader._cache import ShardCache
    from streaming_reader._ranged import Origin
    from streaming_reader._unified import Unified

__all__ = ["Catalogue"]

_WORD_BYTES: Final = 8
"""What a number takes."""


class Catalogue:
    """The tables and caches of all streams, in order; a `_fetch.Shards`.

    Shards and samples are numbered through all streams. Threads may share it.
    """

    def __init__(
        self,
        tables: Sequence[ShardTable],
        caches: Sequence[ShardCache],
        *,
        timeout: float,
        origins: Sequence[Origin] = (),
    ) -> None:
        """Take one table and one cache for each stream, and how long nothing may come.

        `origins` are where ranges of each stream's shards come from, if that can be.
        """
        self.timeout = timeout
        """Seconds without a byte after which whoever waits for a shard gives up."""
        self.tables = tuple(tables)
        self.caches = tuple(caches)
        self.shards_per_stream = np.array([t.num_shards for t in tables], np.int64)
        self.samples_per_stream = np.array([t.num_samples for t in tables], np.int64)
        self.shard_offsets = _starts(self.shards_per_stream)
        """Number of each stream's first shard, and that of all shards."""
        self.sample_offsets = _starts(self.samples_per_stream)
        """Number of each stream's first sample, and that of all samples."""
        self.samples_per_shard = np.concatenate(
            [np.zeros(0, np.int64), *(table.samples for table in tables)]
        )
        self.shard_starts = _starts(self.samples_per_shard)
        """Number of each shard's first sample, and that of all samples."""
        self.num_shards = int(self.shard_offsets[-1])
        """Number of all shards."""
        self.num_samples = int(self.sample_offsets[-1])
        """Number of all samples."""
        ranged = Ranged(origins, self.shard_offsets.tolist()) if origins else None
        self.ranged = ranged if ranged is not None and ranged.is_useful else None
        """What reads ranges of shards that are not here; None if nothing can."""
        self.is_measured = False
        """Whether the bytes of single samples are counted, which takes time."""
        self.sample_bytes = 0
        """Bytes of the single samples that were read since they are counted."""

    @cached_property
    def stream_per_shard(self) -> NDArray[np.int64]:
        """Which stream each shard is of."""
        return np.repeat(np.arange(len(self.tables)), self.shards_per_stream)

    @cached_property
    def mean_sample_bytes(self) -> float:
        """Decompressed bytes of a sample, on average."""
        total = sum(table.total_bytes("raw") for table in self.tables)
        return total / max(1, self.num_samples)

    @cached_property
    def uniform(self) -> bool:
        """Whether all samples have the same columns with the same encodings."""
        return len({str(s.identity()) for table in self.tables for s in table.schemas}) < 2  # noqa: PLR2004 - one, or none

    @cached_property
    def unified(self) -> Unified | None:
        """What the samples of all streams have in common; None if nothing is to be done for it."""
        return unified([schema for table in self.tables for schema in table.schemas])

    @property
    def limit(self) -> int | None:
        """The most bytes that the files of all streams may have here; None without a limit."""
        return next((c.group.limit for c in self.caches if c.group is not None), None)

    def fingerprint(self) -> str:
        """Return what tells this data from other data: the same streams in the same order."""
        return xxhash.xxh3_128("".join(t.fingerprint() for t in self.tables).encode()).hexdigest()

    # --- samples ----------------------------------------------------------------------------------

    def locate(self, ids: NDArray[np.int64]) -> Located:
        """Return where each sample lies; the ids must be in range."""
        return self._locator(ids)

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.shard_starts)

    @cached_property
    def spanner(self) -> Spanner:
        """Gives shard and row of any number."""
        return Spanner(self.samples_per_shard)

    @cached_property
    def _starts_list(self) -> list[int]:
        starts: list[int] = self.shard_starts.tolist()
        return starts

    def find(self, sample: int) -> tuple[int, int]:
        """Return shard and row of one sample in range, the quick way."""
        starts = self._starts_list
        shard = bisect_right(starts, sample) - 1
        return shard, sample - starts[shard]

    # --- shards -----------------------------------------------------------------------------------

    def place(self, shard: int) -> tuple[ShardCache, int]:
        """Return the cache that holds `shard`, and its number there; `IndexError` if none does."""
        if not 0 <= shard < self.num_shards:
            msg = f"shard {shard} is out of range: there are {self.num_shards}, counted from 0"
            raise IndexError(msg)
        stream, number = self._in_stream(shard)
        return self.caches[stream], number

    def _in_stream(self, shard: int) -> tuple[int, int]:
        if len(self.caches) == 1:
            return 0, shard
        stream = int(np.searchsorted(self.shard_offsets, shard, side="right")) - 1
        return stream, shard - int(self.shard_offsets[stream])

    def info(self, shard: int) -> ShardInfo:
        """Return what the index says of `shard`."""
        stream, number = self._in_stream(shard)
        return self.tables[stream].shard(number)

    def is_local(self, shard: int) -> bool:
        """Tell whether opening it needs no download."""
        cache, number = self.place(shard)
        return cache.is_near(number)

    def _is_mapped(self, shard: int) -> bool:
        cache, number = self.place(shard)
        return cache.is_mapped(number)

    def open(self, shard: int) -> Shard:
        """Return it, downloaded first if it must be."""
        if len(self.caches) == 1:
            return self.caches[0].open(shard)
        cache, number = self.place(shard)
        return cache.open(number)

    def last_progress(self) -> float:
        """Return when anything last arrived (`time.monotonic`), whichever shard it is of."""
        return last_progress()

    def sample(self, shard: int, row: int) -> dict[str, Any]:
        """Return one sample, for which not all of its shard is fetched if that is not here."""
        if self.ranged is None or self._is_mapped(shard) or self.is_local(shard):
            found = self.open(shard).row(row)
        else:
            one = Located(np.array([-1]), np.array([shard]), np.array([row]))
            found = self.opener(one)(shard).row(row)
        if self.is_measured:
            self.sample_bytes += sum(map(_nbytes, found.values()))
        return found

    def opener(self, located: Located) -> Callable[[int], Shard]:
        """Return what opens the shards of some samples, to read these samples of and no others.

        Where a shard is not here, and little of it was ever wanted, only that is fetched.
        """
        ranged = self.ranged
        if ranged is None or not len(located):
            return self.open
        late = [at for at in first_uses(located.shards).tolist() if not self.is_local(at)]
        if not late:
            return self.open
        held = ranged.rows(rows_by_shard(located, late), timeout=self.timeout)

        def get(shard: int) -> Shard:
            if shard in held:
                return held[shard]
            found = self.open(shard)
            ranged.whole(shard, found)
            return found

        return get

    def warm(self, shard: Shard) -> None:
        """Get the pages of an open shard mapped, of which many are going to be used."""
        touch_pages(shard.data)

    def counts(self) -> Counts:
        """Return what this process has done to all caches so far."""
        return sum((cache.counts for cache in self.caches), Counts())

    def range_counts(self) -> RangeCounts:
        """Return what this process has read by ranges so far."""
        return RangeCounts() if self.ranged is None else self.ranged.counts

    def evict_coldest(self) -> bool:
        """Remove the shard of the first stream that has one which was not used for longest."""
        return any(cache.evict_coldest() is not None for cache in self.caches)

    def weight(self, shard: int) -> int:
        """Return the bytes of its decompressed data."""
        stream, number = self._in_stream(shard)
        return int(self.tables[stream].raw_bytes[number])

    def describe(self, shard: int) -> str:
        """Return its name and where it comes from."""
        cache, _ = self.place(shard)
        return f"shard {shard}, {self.info(shard).raw.basename}, from {cache.source}"


def _nbytes(value: object) -> int:
    """Return what a value takes in `Columns.nbytes`; other objects count as nothing there too."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.nbytes
    return _WORD_BYTES if isinstance(value, int | float) else 0


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    starts: NDArray[np.int64] = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
