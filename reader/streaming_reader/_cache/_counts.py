"""What a cache has done in this process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from streaming_core._store import RequestCounts

__all__ = ["Counts"]


@dataclass(slots=True)
class Counts(RequestCounts):
    """Numbers that only grow; threads that count at the same moment may lose one.

    Example:
        >>> (Counts(shards_opened=3) - Counts(shards_opened=1)).shards_opened
        2
    """

    shards_opened: int = 0
    """Shards that were mapped, fetched or not."""
    shards_fetched: int = 0
    """Shards that were made from files of the remote, or from compressed ones here."""
    fill_ns: int = 0
    """Nanoseconds that threads took to bring shards here, decoding included."""
    make_ns: int = 0
    """Those of them that went into decoding files which are no shards."""

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
