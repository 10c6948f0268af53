"""The files of one data set in one folder: which are there, in use, or being made."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from streaming_core._codec import parse_compression
from streaming_core._index import ROLES
from streaming_core._read import SUMS
from streaming_reader._cache._ledger import Ledger, State
from streaming_reader._cache._locks import is_free
from streaming_reader._cache._places import Places, file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from streaming_core._index import FileInfo, FileRole, ShardInfo, ShardTable
    from streaming_reader._cache._ledger import Entry

__all__ = ["FilePair", "Shelf", "combined", "file_pairs", "raw_files"]

_INDEX: Final = "index.json"


class Shelf:
    """What one folder has of a data set's shards. Holds no open file, so it pickles and forks."""

    def __init__(self, table: ShardTable, folder: str) -> None:
        self.table = table
        self.places = Places(folder)

    @cached_property
    def ledger(self) -> Ledger:
        """What the node's processes note about the shards."""
        return Ledger(self.places.ledger, self.table.num_shards, self.table.fingerprint())

    @property
    def fixed_bytes(self) -> int:
        """The bytes in the folder that no eviction can free."""
        paths = (self.places.file(_INDEX), self.places.file(SUMS), self.places.source)
        stamps = map(file_stamp, paths)
        return sum(stamp.size for stamp in stamps if stamp is not None) + self.ledger.nbytes

    @property
    def index_bytes(self) -> int:
        """The size of the index beside the shards."""
        stamp = file_stamp(self.places.file(_INDEX))
        return 0 if stamp is None else stamp.size

    @property
    def is_writable(self) -> bool:
        """Whether files can be added to the folder and removed, as far as permissions tell."""
        folders = filter(os.path.isdir, (self.places.folder, self.places.control))
        return all(os.access(folder, os.W_OK) for folder in folders)

    @property
    def largest_bytes(self) -> int:
        """The bytes of the largest shard, with all its files."""
        sizes = sum(np.maximum(self.table.file_bytes(role), 0) for role in ROLES)
        return int(np.max(sizes, initial=0))

    def changed(self, info: ShardInfo) -> int | None:
        """Return when the shard's decompressed files were last written; None if one is amiss."""
        moments = 0
        for file in raw_files(info):
            stamp = file_stamp(self.places.file(file.basename))
            if stamp is None or (stamp.size != file.bytes and not info.schema.is_made):
                return None
            moments = combined(moments, stamp.changed)
        return moments

    def is_held(self, shard: int) -> bool:
        """Tell whether any process, this one included, has the shard mapped."""
        return not is_free(self.places.file(self.table.basenames("raw")[shard]))

    def is_being_made(self, shard: int) -> bool:
        """Tell whether any process, this one included, is fetching the shard."""
        return not is_free(self.places.lock(self.table.basenames("raw")[shard]))

    def bytes_there(self, info: ShardInfo) -> int:
        """Return the bytes of the shard's files that are there, whatever their sizes should be."""
        stamps = [file_stamp(self.places.file(file.basename)) for file in info.files().values()]
        return sum(stamp.size for stamp in stamps if stamp is not None)

    def remove(self, shard: int) -> bool:
        """Remove the shard's files; tell whether there was any."""
        info = self.table.shard(shard)
        there = self.bytes_there(info) > 0
        for file in info.files().values():
            self.places.remove(file.basename)
        return there

    def publish(self, shard: int, entry: Entry, act: Callable[[], None], deadline: float) -> None:
        """Let `act` bring a shard into place, and note it in the ledger if that can be had."""
        try:
            page = self.ledger.locked(deadline)
        except OSError:
            act()
            return
        with page:
            # What is known of the files is noted first, so that dying in between loses nothing.
            page.set(shard, entry._replace(state=State.FETCHING))
            act()
            page.set(shard, entry)

    def scan(self) -> NDArray[np.int64]:
        """Return the bytes that each shard has in the folder, by looking."""
        sizes = np.zeros(self.table.num_shards, np.int64)
        for role in self.table.files:
            names = self.table.basenames(role)
            there = self._sizes_there({os.path.dirname(name) for name in names})
            if there:
                for shard, name in enumerate(names):
                    sizes[shard] += there.get(name, 0)
        return sizes

    def _sizes_there(self, folders: Iterable[str]) -> dict[str, int]:
        """Return the size of each file in some folders below ours, by its name in the index."""
        found: dict[str, int] = {}
        for folder in folders:
            lead = f"{folder}/" if folder else ""
            try:
                with os.scandir(os.path.join(self.places.folder, folder)) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):  # another process has just evicted it
                            if entry.is_file():
                                found[lead + entry.name] = entry.stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                continue
        return found


class FilePair(NamedTuple):
    """A file that samples are read from, with the compressed file it is stored as, if it is."""

    role: Literal["raw", "raw_meta"]
    """What it is to its shard."""
    raw: FileInfo
    """The decompressed file."""
    zip: FileInfo | None
    """The compressed one."""

    @property
    def stored(self) -> FileInfo:
        """The file that the store has."""
        return self.zip or self.raw

    @property
    def stored_role(self) -> FileRole:
        """What the stored file is to its shard."""
        if self.zip is None:
            return self.role
        return "zip" if self.role == "raw" else "zip_meta"


def file_pairs(info: ShardInfo) -> list[FilePair]:
    """Return the files of a shard: its data, and its meta file if it has one."""
    zipped = parse_compression(info.schema.compression) is not None
    pairs = [FilePair("raw", info.raw, info.zip if zipped else None)]
    if info.raw_meta is not None:
        pairs.append(FilePair("raw_meta", info.raw_meta, info.zip_meta if zipped else None))
    return pairs


def raw_files(info: ShardInfo) -> list[FileInfo]:
    """Return the decompressed files that a shard is read from."""
    return [info.raw] if info.raw_meta is None else [info.raw, info.raw_meta]


def combined(first: int, second: int) -> int:
    """Return one number for two moments in order; never 0, which stands for nothing known."""
    return (first * 31 + second) % ((1 << 62) - 1) + 1
