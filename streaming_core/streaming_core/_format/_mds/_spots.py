"""Where the records of the samples wanted lie: addresses, in the order wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._format._mds._shard import OFFSETS_AT
from streaming_core._format._memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._format._mds._shard import MDSShard
    from streaming_core._format._parts import Parts

__all__ = ["ends", "memory_of", "run_of", "starts_of_size", "taken"]

_OFFSET: Final = 4


def memory_of(parts: Parts[MDSShard]) -> Memory:
    """Return the bytes of all shards."""
    shards = parts.shards
    return Memory([shard.address for shard in shards], [shard.bytes.size for shard in shards])


def ends(parts: Parts[MDSShard], memory: Memory) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the addresses at which each sample's record begins, and ends."""
    base = parts.each(np.array([shard.address for shard in parts.shards], np.int64))
    pairs = memory.pick(base + OFFSETS_AT + parts.rows * _OFFSET, 2 * _OFFSET).view("<u4")
    return base + pairs[:, 0], base + pairs[:, 1]


def starts_of_size(parts: Parts[MDSShard], size: int) -> NDArray[np.int64]:
    """Return the address of each sample's record, where all records have one size."""
    firsts = np.array([shard.address + shard.first for shard in parts.shards], np.int64)
    starts = parts.rows * size
    starts += firsts[0] if len(firsts) == 1 else firsts.take(parts.which)
    return starts


def taken(parts: Parts[MDSShard]) -> NDArray[np.void] | None:
    """Return a copy of the records in order, where they lie in one shard and have one size."""
    records = parts.shards[0].records
    if len(parts.shards) != 1 or records is None:
        return None
    return records.take(parts.rows)


def run_of(parts: Parts[MDSShard]) -> NDArray[np.void] | None:
    """Return the records, not copied, where they lie side by side in one shard, in order."""
    records = parts.shards[0].records
    if len(parts.shards) != 1 or records is None or not parts.length:
        return None
    first, last = int(parts.rows[0]), int(parts.rows[-1])
    if last - first != parts.length - 1 or (np.diff(parts.rows) != 1).any():
        return None
    return records[first : last + 1]
