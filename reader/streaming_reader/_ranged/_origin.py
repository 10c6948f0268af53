"""Where the ranges of one stream's shards come from, and what is known of their layout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from streaming_core._store import LocalStore
from streaming_reader._ranged._choice import Cost, even_offsets, gap_bytes, spans_of
from streaming_reader._ranged._meter import Meter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._index import ShardInfo, ShardTable
    from streaming_core._store import Store
    from streaming_reader._cache import CacheSettings, NodeRateLimiter
    from streaming_reader._ranged._choice import Line

__all__ = ["Header", "Origin"]

_WORD: Final = 4
_SPARE: Final = 64
"""Settings that another writer made may be longer by so much."""


class Header(NamedTuple):
    """How long the part of a shard is that precedes its records."""

    nbytes: int
    is_sure: bool
    """Whether the index alone says so, as all records have one size."""


class Origin:
    """One stream's shards in their store. Pickles, without what was measured; threads may share it.

    Ranges are read where the store is no folder of this machine and files are stored as they are
    read. They are not where somebody asked for a hash of every file, which no range has.
    """

    __slots__ = (
        "_config_bytes",
        "_default",
        "_has_versions",
        "limiter",
        "meter",
        "settings",
        "store",
        "table",
    )

    def __init__(
        self,
        table: ShardTable,
        store: Store | None,
        settings: CacheSettings,
        *,
        limiter: NodeRateLimiter | None = None,
        line: Line | None = None,
    ) -> None:
        """Read from `store`; `line` holds until something is measured."""
        usable = store is not None and not isinstance(store, LocalStore)
        self.store = store if usable and settings.validate_hash is None else None
        """None if no ranges are read."""
        self.table = table
        self.settings = settings
        """How shards are fetched whose ranges do not come."""
        self.limiter = limiter
        """Spaces the requests of the node while the store is busy; None if nothing does."""
        self._default = line
        self._config_bytes: dict[int, int] = {}
        """Bytes of the settings in the header, by schema, once seen."""
        self._has_versions = True
        self.meter = Meter(line)
        """How fast the store answers."""

    def __getstate__(self) -> dict[str, object]:
        """Leave out what belongs to this process."""
        fresh: dict[str, object] = {"_config_bytes": {}, "_has_versions": True, "meter": None}
        return {name: fresh.get(name, getattr(self, name)) for name in self.__slots__}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.renew()

    def renew(self) -> None:
        """Forget what was measured, in a process that was forked."""
        self.meter = Meter(self._default)

    def serves(self, shard: int) -> bool:
        """Tell whether ranges of a shard can be read."""
        if self.store is None or not self._has_versions:
            return False
        schema = self.table.schemas[int(self.table.schema_ids[shard])]
        return schema.format == "mds" and int(self.table.zip_bytes[shard]) < 0

    def lacks_versions(self) -> None:
        """Note that the store does not tell versions apart: parts of two could be mixed."""
        self._has_versions = False

    def header(self, info: ShardInfo) -> Header:
        """Return how long the header of a shard is, or may be."""
        least = _WORD * (info.samples + 2)
        sizes = info.schema.column_sizes
        if None not in sizes:
            nbytes = info.raw.bytes - info.samples * sum(size or 0 for size in sizes)
            if nbytes >= least:
                return Header(nbytes, is_sure=True)
        known = self._config_bytes.get(int(self.table.schema_ids[info.index]))
        if known is None:
            document = json.dumps(info.schema.document(), sort_keys=True)
            known = len(document.encode()) + _SPARE
        return Header(min(least + known, info.raw.bytes), is_sure=False)

    def learn(self, info: ShardInfo, header_bytes: int) -> None:
        """Note how long a header was: the settings of others with the same columns are as long."""
        schema = int(self.table.schema_ids[info.index])
        self._config_bytes[schema] = header_bytes - _WORD * (info.samples + 2)

    def spans(
        self, info: ShardInfo, rows: NDArray[np.int64], header: Header
    ) -> list[tuple[int, int]]:
        """Return the ranges that hold header and rows, if all records have one size."""
        offsets = even_offsets(header.nbytes, info.samples, info.raw.bytes)
        first = np.concatenate(([0], offsets))
        return spans_of(first, np.concatenate(([0], rows + 1)), gap_bytes(info.raw.bytes))

    def cost(
        self, info: ShardInfo, rows: NDArray[np.int64], offsets: NDArray[np.uint32] | None
    ) -> Cost:
        """Return what reading `rows` of a shard takes; its `offsets` are known where it was begun.

        Where they are not, and records differ in size, it is what they would take if they did not.
        """
        if offsets is not None:
            spans, rounds = spans_of(offsets, rows, gap_bytes(info.raw.bytes)), 1
        else:
            header = self.header(info)
            spans = self.spans(info, rows, header)
            rounds = 1 if header.is_sure else 2
        nbytes = sum(stop - start for start, stop in spans)
        return Cost(nbytes, max(len(spans), rounds), rounds)
