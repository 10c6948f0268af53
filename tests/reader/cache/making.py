"""Data sets, stores and looks at folders that the cache tests share, and their processes."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_core import JSONWriter, MDSWriter, ShardTable, load_index
from streaming_core._read import SUMS, parse_sums
from streaming_core._store import LocalStore
from streaming_reader._cache import CacheGroup, CacheSettings, ShardCache

if TYPE_CHECKING:
    from collections.abc import Generator

    from streaming_core._store import Store

__all__ = [
    "NUM_SAMPLES",
    "LoggedStore",
    "Made",
    "StuckStore",
    "all_ids",
    "bytes_at_once",
    "expected",
    "folder_bytes",
    "ids",
    "make",
    "names",
    "open_descriptors",
    "ordinary_files",
]

NUM_SAMPLES = 120
_COLUMNS = {"id": "int", "text": "str"}


class Made:
    """A data set in a folder that stands for the remote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = LocalStore(folder, durable=False)
        self.table: ShardTable = load_index(folder)
        self.sums = parse_sums((folder / SUMS).read_bytes())

    def cache(
        self,
        local: Path,
        *,
        remote: Store | None = None,
        group: CacheGroup | None = None,
        sums: bool = True,
        **settings: Any,
    ) -> ShardCache:
        """Return a cache of it in `local`."""
        given = self.sums if sums else None
        store = remote or self.store
        return ShardCache(self.table, store, local, CacheSettings(**settings), group, sums=given)

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return self.table.num_shards

    @property
    def largest(self) -> int:
        """Bytes of the largest shard with all its files."""
        return max(
            sum(file.bytes for file in self.table.shard(i).files().values())
            for i in range(self.num_shards)
        )


def make(
    folder: Path, *, compression: str | None = None, text: bool = False, hashes: Any = None
) -> Made:
    """Write `NUM_SAMPLES` samples in some twelve shards of different content and size."""
    writer = JSONWriter if text else MDSWriter
    with writer(
        out=str(folder),
        columns=_COLUMNS,
        size_limit=900,
        compression=compression,
        hashes=hashes,
        checksums=True,
    ) as out:
        for i in range(NUM_SAMPLES):
            out.write({"id": i, "text": f"text {i} " * (3 + i % 5)})
    return Made(folder)


def ids(shard: Any) -> list[int]:
    """Return the ids of all samples of an open shard."""
    return [sample["id"] for sample in shard]


def all_ids(cache: ShardCache, made: Made) -> list[int]:
    """Return the ids of all samples, read shard by shard through a cache."""
    return [i for shard in range(made.num_shards) for i in ids(cache.open(shard))]


def expected(made: Made, shard: int) -> list[int]:
    """Return the ids that a shard holds."""
    first, end = made.table.sample_offsets[shard : shard + 2]
    return list(range(int(first), int(end)))


class LoggedStore(LocalStore):
    """A folder that notes each stream it is asked for, and hands out few bytes at a time."""

    __slots__ = ("_log", "_piece", "_seconds")

    def __init__(
        self, path: Path, log: Path, *, piece: int = 1 << 20, seconds: float = 0.0
    ) -> None:
        super().__init__(path, False)
        self._log = log
        self._piece = piece
        self._seconds = seconds

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the file's bytes, slowly."""
        handle = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{key}\n".encode())
        os.close(handle)
        never = threading.Event()
        with closing(super().stream(key, start=start, max_bytes=max_bytes)) as pieces:
            for piece in pieces:
                for at in range(0, len(piece), self._piece):
                    never.wait(self._seconds)
                    yield piece[at : at + self._piece]


class StuckStore(LocalStore):
    """A folder that hands out the first bytes of each file, and then nothing for ever."""

    __slots__ = ("_first",)

    def __init__(self, path: Path, first: int) -> None:
        super().__init__(path, False)
        self._first = first

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the first bytes."""
        with closing(super().stream(key, start=start, max_bytes=max_bytes)) as pieces:
            whole = b"".join(pieces)
        assert self._first < len(whole)
        if self._first:
            yield memoryview(whole)[: self._first]
        threading.Event().wait()


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def ordinary_files(folder: Path) -> set[str]:
    """Return the files of the data set in a folder, all else left out."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".streaming" not in path.parts
    }


def folder_bytes(folder: Path, *, parts: bool = False) -> int:
    """Return the bytes of all files below a folder, without those in the making unless asked."""
    total = 0
    for root, _, names in os.walk(folder):
        if Path(root).name == "parts" and not parts:
            continue
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def bytes_at_once(folder: Path, *, parts: bool = False) -> int | None:
    """Return the bytes of all files at one moment; None if any appeared or went meanwhile.

    A listing alone is not a snapshot: what moves while it is read may be counted twice. What two
    listings in a row both have was there at once, between the two.
    """
    before, after = (_listed(folder, parts=parts) for _ in range(2))
    return sum(before.values()) if before.keys() == after.keys() else None


def _listed(folder: Path, *, parts: bool) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for root, _, files in os.walk(folder):
        if Path(root).name == "parts" and not parts:
            continue
        for name in files:
            path = Path(root) / name
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            found[str(path), status.st_ino] = status.st_size
    return found


def open_descriptors() -> list[str]:
    """Return what this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            name = str(link.readlink())
        except FileNotFoundError:
            continue
        if not name.startswith("/proc/"):
            found.append(name)
    return sorted(found)
