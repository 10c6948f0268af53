"""What lies in a folder that caches a remote, what comes from there, and what to do about both."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from contextlib import suppress
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

from streaming_core._index import INDEX_NAME
from streaming_core._read import SUMS, parse_sums
from streaming_core.errors import ChecksumError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._index import FileInfo, FileRole, ShardInfo, ShardTable
    from streaming_core._store import LocalStore, Store

__all__ = [
    "ABSENT",
    "Came",
    "Documents",
    "Source",
    "Verdict",
    "gained_sums",
    "has_grown",
    "is_copy",
    "judge",
    "lacking_sums",
    "outdated_files",
    "parsed_sums",
    "version_text",
    "witnesses",
]

_log = logging.getLogger("streaming_core.reader")
_FRESH: Final = 30.0
"""Seconds for which the processes of a node need not ask what one of them has asked."""
_COMPARED_BYTES: Final = 1 << 16
ABSENT: Final = "absent"
"""The version of a file that is not there."""
_MD5: Final = re.compile(r'"?([0-9a-f]{32})"?')


def version_text(etag: str, size: int) -> str:
    """Return etag and size as they are noted; nothing if the store gives no etag.

    Example:
        >>> version_text("1f-9a", 3), version_text("", 3)
        ('1f-9a 3', '')
    """
    return f"{etag} {size}" if etag else ""


class Came(NamedTuple):
    """A document as it came from the remote."""

    data: bytes
    etag: str
    """Nothing if that is not known."""
    sure: bool = False
    """Whether it is known to have come as it is there."""

    @property
    def version(self) -> str:
        """What is noted of it."""
        return ABSENT if self.etag == ABSENT else version_text(self.etag, len(self.data))

    @property
    def claims_md5(self) -> bool:
        """Whether the etag looks as if it were a hash of the content, as it is on S3."""
        return _MD5.fullmatch(self.etag) is not None

    @property
    def is_proven(self) -> bool:
        """Whether the etag is the hash of what came."""
        found = _MD5.fullmatch(self.etag)
        if found is None:
            return False
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest() == found[1]


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
    sure: bool = False
    """Whether index and sums are known to have come as they are there: by their hash, or twice."""
    versions: Mapping[str, str] = MappingProxyType({})
    """The versions of the sums and, where nothing else tells of changes, of some shard files."""

    def is_current(self, now: Mapping[str, str | None]) -> bool:
        """Tell whether the remote has these versions `now`; None is one that could not be asked."""
        index = now.get(INDEX_NAME)
        if index in {None, ABSENT}:
            return True
        if not self.etag or index != version_text(self.etag, self.size):
            return False
        sums = now.get(SUMS)
        return sums in {None, self.versions.get(SUMS)} and sums != "" and not self.is_rewritten(now)

    def with_sound_versions(self) -> Source:
        """Return it without versions that are none, as a file that somebody changed may have."""
        found: object = self.versions
        return self if isinstance(found, dict) else self._replace(versions={})

    def with_versions(self, now: Mapping[str, str | None]) -> Source:
        """Return what is to be noted, with those versions that are known now."""
        known = {name: text for name, text in now.items() if text and name != INDEX_NAME}
        return self._replace(versions={**self.versions, **known})

    def is_rewritten(self, now: Mapping[str, str | None]) -> bool:
        """Tell whether a shard file is another one `now`."""
        return any(
            now.get(name) and before and now[name] != before
            for name, before in self.versions.items()
            if name != SUMS
        )

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
    for role in _stored_roles(old):
        name = files[role].basename
        known = {**files[role].hashes, "sum": old_sums.get(name)}
        now = {**others[role].hashes, "sum": new_sums.get(name)}
        pairs = [(known[key], now[key]) for key in known if known[key] and now.get(key)]
        if not pairs or any(one != other for one, other in pairs):
            return False
    return True


def _stored_roles(info: ShardInfo) -> list[FileRole]:
    """Return the roles of the files that lie in the remote."""
    files = info.files()
    roles: tuple[FileRole, ...] = ("zip", "zip_meta") if "zip" in files else ("raw", "raw_meta")
    return [role for role in roles if role in files]


def _stored_data(info: ShardInfo) -> FileInfo:
    return info.zip or info.raw


def _is_here(folder: LocalStore, file: FileInfo) -> bool:
    with suppress(OSError):
        return os.path.getsize(folder.path / file.basename) == file.bytes  # noqa: PTH202 - quicker
    return False


def witnesses(documents: Documents) -> list[str]:
    """Return the files whose versions tell whether a data set was rewritten, the sums aside.

    The first and the last, if neither sums nor hashes in the index would change with them.
    """
    count = documents.table.num_shards
    if documents.sums or not count:
        return []
    files = [_stored_data(documents.table.shard(at)) for at in sorted({0, count - 1})]
    return [] if all(file.hashes for file in files) else [file.basename for file in files]


def is_copy(folder: LocalStore, remote: Store, documents: Documents) -> bool:
    """Tell whether the files in a folder are those of a remote with an equal index.

    Values of fixed size give equal indexes to other data. Where no hash tells them apart, the first
    and the last file that is here is compared by its first and last bytes.
    """
    count = documents.table.num_shards
    if not witnesses(documents):
        return True
    for shards in (range(count), reversed(range(count))):
        files = (_stored_data(documents.table.shard(at)) for at in shards)
        here = next((file for file in files if _is_here(folder, file)), None)
        if here is not None:
            some = min(_COMPARED_BYTES, here.bytes)
            ranges = [(0, some), (here.bytes - some, here.bytes)]
            found = [
                [bytes(part) for part in store.get_ranges(here.basename, ranges)]
                for store in (folder, remote)
            ]
            if found[0] != found[1]:
                return False
    return True


def lacking_sums(table: ShardTable, sums: bytes) -> list[str]:
    """Return the files of the remote that have no line in its sums."""
    known = _sound_sums(sums)
    return [
        name
        for info in _shards(table)
        for role in _stored_roles(info)
        if (name := info.files()[role].basename) not in known
    ]


def gained_sums(old: Documents, new: Documents) -> bool:
    """Tell whether files of `old` may be in the folder whose sums were not known."""
    before = _sound_sums(old.sums or b"")
    gained = _sound_sums(new.sums or b"").keys() - before.keys()
    return bool(gained) and any(
        file.basename in gained for info in _shards(old.table) for file in info.files().values()
    )


def parsed_sums(sums: bytes | None) -> Mapping[str, str]:
    """Return the hash of each file by name; lines that are none count for nothing."""
    try:
        return parse_sums(sums or b"")
    except ChecksumError as error:
        found = _sound_sums(sums or b"")
        _log.warning("checking only %d files by the hashes beside the index: %s", len(found), error)
        return found


def _sound_sums(sums: bytes) -> Mapping[str, str]:
    try:
        return parse_sums(sums)
    except ChecksumError:
        found: dict[str, str] = {}
        for line in sums.splitlines(keepends=True):
            with suppress(ChecksumError):
                found.update(parse_sums(line))
        return found


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return process > 0
