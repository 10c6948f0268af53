"""What the caches of a machine keep, and removing what was not used for long."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_reader._cache import Kept

__all__ = ["CacheEntry", "CacheReport", "look_at_cache"]

_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Files that are kept together."""

    folder: str
    what: str
    """`decoded` (data of other formats), `shards`, or `index` (of such data, and orders of it)."""
    sources: Sequence[str]
    """What it was made of."""
    num_files: int
    num_bytes: int
    last_used: float
    """Of `time.time`."""
    in_use: bool
    """Whether a process that lives uses it."""
    removed_bytes: int
    """How many of the bytes are gone now."""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What `cache` found, and did."""

    folder: str
    entries: Sequence[CacheEntry]

    @property
    def num_bytes(self) -> int:
        """The bytes that there were."""
        return sum(entry.num_bytes for entry in self.entries)

    @property
    def removed_bytes(self) -> int:
        """The bytes of them that are gone now."""
        return sum(entry.removed_bytes for entry in self.entries)


def look_at_cache(folder: str | None = None, *, unused_days: float | None = None) -> CacheReport:
    """Return what is kept below a folder, by default the user's cache.

    With `unused_days` what nobody used for so many days is removed, unless a process uses it.

    Raises:
        SchemaError: There is no such folder.
    """
    from streaming_reader._cache import kept_below, remove_kept  # noqa: PLC0415 - not for all
    from streaming_reader._cache_home import cache_home  # noqa: PLC0415 - as above

    root = cache_home() if folder is None else Path(folder)
    if folder is not None and not root.is_dir():
        msg = f"no folder {folder!r}; give one that data was kept in, as with local="
        raise SchemaError(msg)
    before = None if unused_days is None else time.time() - unused_days * _DAY
    entries: list[CacheEntry] = []
    for kept in kept_below(str(root)):
        is_old = before is not None and not kept.in_use and kept.last_used <= before
        entries.append(_entry(kept, remove_kept(kept) if is_old else 0))
    return CacheReport(str(root), sorted(entries, key=lambda entry: entry.folder))


def _entry(kept: Kept, removed: int) -> CacheEntry:
    return CacheEntry(
        folder=kept.folder,
        what=kept.what,
        sources=kept.sources,
        num_files=len(kept.files),
        num_bytes=kept.num_bytes,
        last_used=kept.last_used,
        in_use=kept.in_use,
        removed_bytes=removed,
    )
