"""A shard of which only some rows are here: memory as large as the file, taken where written."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import xxhash

from streaming_core._format import open_shard
from streaming_core.errors import ChecksumError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._format import Shard
    from streaming_core._index import ShardInfo

__all__ = ["Receipt", "Sparse", "check_receipts"]

_PAGE: Final = mmap.PAGESIZE
_NO_RESERVE: Final = 0x4000
"""MAP_NORESERVE on Linux, which the library does not name everywhere."""


class Receipt(NamedTuple):
    """Bytes that were read by range, to be compared once the whole file is here."""

    start: int
    stop: int
    digest: int


class Sparse:
    """The header and some rows of one version of a shard.

    `take` gives a shard whose other rows are zeros: who has it must read the rows asked for only.
    Threads may share it.
    """

    __slots__ = (
        "_have",
        "_memory",
        "_shard",
        "etag",
        "nbytes",
        "offsets",
        "read_bytes",
        "receipts",
    )

    def __init__(
        self, info: ShardInfo, header: bytes, etag: str, *, allow_unsafe: bool = False
    ) -> None:
        """Take the beginning of the file, with the whole header, as it is in the version `etag`.

        Raises:
            ShardCorruptError: It does not follow the format or the index.
        """
        self.etag = etag
        """The version of the object."""
        self.nbytes = 0
        """Memory that it takes."""
        self.read_bytes = 0
        """Bytes of the file that were written to it."""
        self.receipts: list[Receipt] = []
        """What was written so far."""
        memory = _anonymous(info.raw.bytes)
        self._memory = memoryview(memory)
        self._put(0, header)
        found = open_shard(info, {"raw": self._memory.toreadonly()}, allow_unsafe=allow_unsafe)
        self._shard = found
        self.offsets: NDArray[np.uint32] = np.frombuffer(
            self._memory.toreadonly(), "<u4", info.samples + 1, 4
        )
        """Where each record begins, and where the last one ends."""
        # Rows without bytes are here whatever was read.
        self._have = self.offsets[1:] == self.offsets[:-1]
        self._mark(0, len(header))

    def write(self, start: int, data: bytes) -> None:
        """Keep bytes of the file; rows that lie in there whole can be read from now on."""
        self._put(start, data)
        self._mark(start, start + len(data))

    def has(self, rows: NDArray[np.int64]) -> bool:
        """Tell whether all these rows are here."""
        return bool(self._have[rows].all())

    def missing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those rows that are not here."""
        found: NDArray[np.int64] = rows[~self._have[rows]]
        return found

    def take(self, rows: NDArray[np.int64]) -> Shard | None:
        """Return the shard to read `rows` of, and no others; None unless all of them are here."""
        return self._shard if self.has(rows) else None

    def _put(self, start: int, data: bytes) -> None:
        stop = start + len(data)
        self._memory[start:stop] = data
        self.nbytes += (-(-stop // _PAGE) - start // _PAGE) * _PAGE
        self.read_bytes += len(data)
        self.receipts.append(Receipt(start, stop, xxhash.xxh3_64_intdigest(data)))

    def _mark(self, start: int, stop: int) -> None:
        first = int(np.searchsorted(self.offsets, start, side="left"))
        last = int(np.searchsorted(self.offsets, stop, side="right")) - 1
        if first < last:
            self._have[first:last] = True


def check_receipts(receipts: Sequence[Receipt], whole: memoryview, where: str) -> None:
    """Raise `ChecksumError` if bytes that were read by range differ from the whole file's."""
    for start, stop, digest in receipts:
        if xxhash.xxh3_64_intdigest(whole[start:stop]) != digest:
            msg = (
                f"{where}, bytes {start} to {stop}: samples were read from a range of the object "
                "that differs from the whole file that came later; the object was replaced "
                "meanwhile, or the way to it damages bytes. Read again from the last checkpoint, "
                "and do not change data that is being read"
            )
            raise ChecksumError(msg)


def _anonymous(size: int) -> mmap.mmap:
    """Return memory that takes no room before it is written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if sys.platform == "linux":
        flags |= _NO_RESERVE
    memory = mmap.mmap(-1, max(1, size), flags=flags)
    if sys.platform == "linux":
        with suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_NOHUGEPAGE)  # one row would take two mebibytes
    return memory
