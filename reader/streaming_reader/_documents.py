"""What lies in a folder that caches a remote, what comes from there, and what to do about both."""

from __future__ import annotations

import logging
import os
import sys
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

from streaming_core._read import parse_sums
from streaming_core.errors import ChecksumError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index import ShardInfo, ShardTable

__all__ = [
    "Documents",
    "Source",
    "Verdict",
    "has_grown",
    "judge",
    "outdated_files",
    "parsed_sums",
]

_log = logging.getLogger("streaming_core.reader")
_FRESH: Final = 30.0
"""Seconds for which the processes of a node need not ask what one of them has asked."""


class Source(NamedTuple):
    """Where a folder's files come from, as noted in the folder."""

    url: str
    """The remote, without secrets."""
    size: int
    """Bytes of its index."""
    digest: str
    """The index's hash."""
    etag: str
    """What the remote said of that version; nothing if it was not asked."""
    asked: float = 0.0
    """When the remote was asked for its version last, of `time.time`."""
    by: int = 0
    """The process that asked."""

    def is_fresh(self, now: float) -> bool:
        """Tell whether another process of the same job has asked just now.

        One that has ended is of another job: the remote may have been written since. A process that
        opens twice wants to know.
        """
        return self.by != os.getpid() and 0 <= now - self.asked < _FRESH and _is_alive(self.by)


class Verdict(Enum):
    """What to do with an index that lies in the folder."""

    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


def judge(noted: str | None, url: str, *, same: bool | None, grown: bool) -> Verdict:
    """Return what to do with a folder whose files came from `noted` (None: nobody knows).

    `same` tells whether its index is that of `url` now, None if that cannot be asked; `grown`
    whether that of `url` has all its files and more.

    Example:
        >>> judge("s3://a", "s3://b", same=False, grown=False)
        <Verdict.REFUSE: 'refuse'>
    """
    if same:
        return Verdict.KEEP
    if noted is not None and noted != url:
        return Verdict.REFUSE
    if same is None:
        return Verdict.KEEP
    return Verdict.REPLACE if grown or noted == url else Verdict.REFUSE


class Documents(NamedTuple):
    """An index and the hashes beside it, as they were read."""

    data: bytes
    table: ShardTable
    sums: bytes | None
    """None if it is not known whether there are any."""

    def is_same(self, other: Documents) -> bool:
        """Tell whether both describe the same files."""
        return self.data == other.data and (
            not (self.sums and other.sums) or self.sums == other.sums
        )

    @property
    def digest(self) -> str:
        """The index's hash."""
        return xxhash.xxh3_64_hexdigest(self.data)


def outdated_files(old: Documents, new: Documents) -> list[str]:
    """Return the files of `old` of which it is not known that `new` has the same."""
    old_sums, new_sums = parsed_sums(old.sums), parsed_sums(new.sums)
    there = {info.raw.basename: info for info in _shards(new.table)}
    return [
        file.basename
        for info in _shards(old.table)
        if not _agree(info, there.get(info.raw.basename), old_sums, new_sums)
        for file in info.files().values()
    ]


def has_grown(old: Documents, new: Documents) -> bool:
    """Tell whether the new index has all files of the old one as they were."""
    old_sums, new_sums = parsed_sums(old.sums), parsed_sums(new.sums)

    def files(info: ShardInfo, sums: Mapping[str, str]) -> list[object]:
        return [
            (role, file.basename, file.bytes, file.hashes, sums.get(file.basename))
            for role, file in info.files().items()
        ]

    there = {info.raw.basename: info for info in _shards(new.table)}
    return all(
        (now := there.get(info.raw.basename)) is not None
        and files(info, old_sums) == files(now, new_sums if old_sums else {})
        for info in _shards(old.table)
    )


def _shards(table: ShardTable) -> list[ShardInfo]:
    return [table.shard(at) for at in range(table.num_shards)]


def _agree(
    old: ShardInfo, new: ShardInfo | None, old_sums: Mapping[str, str], new_sums: Mapping[str, str]
) -> bool:
    """Tell whether two shards have files of the same sizes, and of hashes known to be equal."""
    if new is None:
        return False
    files, others = old.files(), new.files()
    if {role: (file.basename, file.bytes) for role, file in files.items()} != {
        role: (file.basename, file.bytes) for role, file in others.items()
    }:
        return False
    for role in ("zip", "zip_meta") if "zip" in files else ("raw", "raw_meta"):
        if role not in files:
            continue
        name = files[role].basename
        known = {**files[role].hashes, "sum": old_sums.get(name)}
        now = {**others[role].hashes, "sum": new_sums.get(name)}
        pairs = [(known[key], now[key]) for key in known if known[key] and now.get(key)]
        if not pairs or any(one != other for one, other in pairs):
            return False
    return True


def parsed_sums(sums: bytes | None) -> Mapping[str, str]:
    try:
        return parse_sums(sums or b"")
    except ChecksumError as error:
        _log.warning("reading without the hashes beside the index: %s", error)
        return {}


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where asking would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return process > 0
