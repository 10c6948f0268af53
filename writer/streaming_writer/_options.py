"""The settings that all writers share."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypedDict, cast

from streaming_core._arguments import checked, unexpected
from streaming_core._codec import Compression, check_hashes, parse_compression
from streaming_core._names import name_problem
from streaming_core._read import SUMS
from streaming_writer._cut import MAX_SHARD_BYTES, CutRule
from streaming_writer._journal import JOURNAL
from streaming_writer._opening import Mode
from streaming_writer._output import INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._store import StorageOptions
    from streaming_writer._kind import ShardKind

__all__ = ["Options", "WriterOptions"]

_MOST_WORKERS = 8
_RESERVED = {INDEX, SUMS, JOURNAL}


# With more, the C library's heap grows and shrinks with every block: 300 times the page faults.
_MOST_BLOCK_BYTES = 1 << 18


class WriterOptions(TypedDict, total=False):
    """Keyword arguments that every writer takes; see `MDSWriter` for what they mean."""

    keep_local: bool
    compression: str | None
    hashes: Sequence[str] | None
    checksums: bool
    size_limit: int | str | None
    progress_bar: bool
    max_workers: int | None
    retry: int
    exist_ok: bool
    resume: bool
    append: bool
    part: int | str | None
    storage_options: StorageOptions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`WriterOptions` with their defaults, checked as a whole."""

    keep_local: bool = False
    compression: str | None = None
    hashes: Sequence[str] | None = None
    checksums: bool = False
    size_limit: int | str | None = 1 << 26
    progress_bar: bool = False
    max_workers: int | None = None
    retry: int = 2
    exist_ok: bool = False
    resume: bool = False
    append: bool = False
    part: int | str | None = None
    # Secrets, perhaps: never shown, and in none of the settings that are written down.
    storage_options: StorageOptions | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be used, before anything is touched."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        name = given.pop("part") if isinstance(self.part, str) else None
        if name is not None and (name in _RESERVED or name_problem(name) is not None):
            raise unexpected(name, "part", "a number, or the name of a folder")
        for option, value in checked(given).items():
            object.__setattr__(self, option, value)
        self.codec()
        self.hash_names()
        self.mode()

    def codec(self) -> Compression | None:
        """Return the compression."""
        return parse_compression(self.compression)

    def hash_names(self) -> tuple[str, ...]:
        """Return the hashes for the index, sorted."""
        return check_hashes(self.hashes or ())

    def limit(self) -> int | None:
        """Return the size limit in bytes, or None."""
        return cast("int | None", self.size_limit) or None

    def block_bytes(self) -> int:
        """Return how many bytes of single samples are gathered before they go into a shard."""
        # No more than a shard, so that a shard that is full is stored soon and then safe.
        return min(_MOST_BLOCK_BYTES, self.limit() or _MOST_BLOCK_BYTES)

    def mode(self) -> Mode:
        """Return what to do with what is already there."""
        return Mode(exist_ok=self.exist_ok, resume=self.resume, append=self.append)

    def workers(self) -> int:
        """Return the number of threads that finish shards."""
        # More threads than cores, because each also waits for the disk or the network.
        return self.max_workers or min(_MOST_WORKERS, (os.cpu_count() or 1) + 2)

    def cut_rule(self, kind: ShardKind) -> CutRule:
        """Return when shards of `kind` are cut."""
        hard = MAX_SHARD_BYTES - kind.header_bytes
        limit = min(self.limit() or hard, hard)
        return CutRule(limit, kind.base_bytes, kind.record_bytes)
