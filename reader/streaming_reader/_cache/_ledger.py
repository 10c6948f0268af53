"""The ledger of a cache: what the processes of a node know together about its shards.

A hint, never the truth: whether a shard is there is decided by looking at its files. So the ledger
may be lost, cut or overwritten, and is then made anew. It is read and written in place instead of
mapped, because a mapped file that somebody cuts kills its readers, and a mapping costs each of them
a descriptor.
"""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from streaming_core._store._os_errors import mapped_errors
from streaming_reader._cache._locks import FileHandle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Entry", "Ledger", "Page", "State"]

_MAGIC: Final = b"SCLEDGER"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sII32sq")
_LOOKED: Final = struct.Struct("<q")
_START: Final = _HEADER.size + _LOOKED.size
_RECORD: Final = struct.Struct("<qqqQ")
_DTYPE: Final = np.dtype(
    [("state", "<i8"), ("last_use", "<i8"), ("changed", "<i8"), ("digest", "<u8")]
)
_SIZE_SHIFT: Final = 2
_STATE_MASK: Final = 3


class State:
    """What the processes are said to have done with a shard.

    No enumeration: NumPy asks the members of one for attributes, in Python code, and drops what a
    signal handler raises there.
    """

    ABSENT: Final = 0
    """Not there."""
    FETCHING: Final = 1
    """Being made by whoever holds the lock on its part; if nobody does, its maker died."""
    PRESENT: Final = 2
    """In place."""


class Entry(NamedTuple):
    """What the ledger says of one shard."""

    state: int = State.ABSENT
    """What was done with it."""
    size: int = 0
    """The bytes it takes or will take, as far as the limit is concerned."""
    last_use: int = 0
    """When it was last opened, in nanoseconds of `time.time`."""
    changed: int = 0
    """When its files were last written, at the moment they were checked; 0 if they were not."""
    digest: int = 0
    """The hash of its files at that moment."""


class Ledger:
    """The ledger of one folder, for one data set."""

    __slots__ = ("_fingerprint", "_num_shards", "path")

    def __init__(self, path: str, num_shards: int, fingerprint: str) -> None:
        self.path = path
        self._num_shards = num_shards
        self._fingerprint = fingerprint

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return _START + self._num_shards * _RECORD.size

    @property
    def identity(self) -> tuple[str, str]:
        """Equal for two ledgers that can share a file."""
        return self.path, self._fingerprint

    def peek(self, shard: int) -> Entry:
        """Return what is said of a shard, without a lock; nothing if it cannot be read."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return Entry()
        try:
            return self._entry(handle, shard) if self._fits(handle) else Entry()
        except OSError:
            return Entry()
        finally:
            os.close(handle)

    def touch(self, uses: Mapping[int, int]) -> None:
        """Note when shards were last used, without a lock, where that is possible."""
        if not uses:
            return
        with suppress(OSError):
            handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if self._fits(handle):
                    for shard, at in uses.items():
                        os.pwrite(handle, struct.pack("<q", at), self._offset(shard) + 8)
            finally:
                os.close(handle)

    def locked(self, deadline: float) -> Page:
        """Return the ledger, locked to be read and changed in a `with` block.

        It is created, or written again from the start, if it has to be.

        Raises:
            WaitTimeoutError: Another process held it until `deadline`.
            StoreError: It cannot be written.
        """
        folder, name = os.path.split(self.path)
        page: Page | None = None
        try:
            with mapped_errors(f"the cache's control folder {folder}", name, "lock"):
                os.makedirs(folder, exist_ok=True)
                what = f"changing the ledger {self.path}"
                page = Page.locked(self.path, deadline, what)
                page.num_shards = self._num_shards
                if not self._fits(page.number):
                    os.ftruncate(page.number, 0)
                    # Written out, so that a full disk is met here. A process that dies here leaves
                    # a file of another size, which the next one writes again.
                    _write(page.number, self._header() + bytes(self.nbytes - _HEADER.size), 0)
        except BaseException:
            if page is not None:
                page.close()
            raise
        return page

    def _fits(self, handle: int) -> bool:
        """Tell whether the open file is a ledger of this data set."""
        if os.fstat(handle).st_size != self.nbytes:
            return False
        return os.pread(handle, _HEADER.size, 0) == self._header()

    def _header(self) -> bytes:
        fingerprint = self._fingerprint.encode()
        return _HEADER.pack(_MAGIC, _VERSION, _RECORD.size, fingerprint, self._num_shards)

    @staticmethod
    def _offset(shard: int) -> int:
        return _START + shard * _RECORD.size

    def _entry(self, handle: int, shard: int) -> Entry:
        return _unpacked(os.pread(handle, _RECORD.size, self._offset(shard)))


class Page(FileHandle):
    """The ledger while it is locked; leaving a `with` block of it unlocks it."""

    num_shards: int
    """How many entries it has."""

    @property
    def is_new(self) -> bool:
        """Whether nobody has compared it with its folder since it was made.

        Said by the file: whoever made it may have died before comparing, or had no limit to keep.
        """
        return os.pread(self.number, _LOOKED.size, _HEADER.size) == bytes(_LOOKED.size)

    def get(self, shard: int) -> Entry:
        """Return what is said of a shard."""
        at = _START + shard * _RECORD.size
        return _unpacked(os.pread(self.number, _RECORD.size, at))

    def set(self, shard: int, entry: Entry) -> None:
        """Say something of a shard."""
        state = entry.size << _SIZE_SHIFT | entry.state
        data = _RECORD.pack(state, entry.last_use, entry.changed, entry.digest)
        _write(self.number, data, _START + shard * _RECORD.size)

    def columns(self) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
        """Return state, size and last use of every shard; changing them changes nothing."""
        data = os.pread(self.number, self.num_shards * _RECORD.size, _START)
        records = np.frombuffer(data, _DTYPE)
        states = np.minimum(records["state"] & _STATE_MASK, State.PRESENT).astype(np.int8)
        sizes = np.maximum(records["state"] >> _SIZE_SHIFT, 0)
        return states, np.where(states == State.ABSENT, 0, sizes), records["last_use"]

    def replace(self, sizes: NDArray[np.int64]) -> None:
        """Say which shards are there, with their bytes, and that the others are not.

        What is being fetched stays so.
        """
        data = os.pread(self.number, self.num_shards * _RECORD.size, _START)
        records = np.frombuffer(data, _DTYPE).copy()
        states = records["state"] & _STATE_MASK
        found = np.where(sizes > 0, sizes << _SIZE_SHIFT | State.PRESENT, State.ABSENT)
        records["state"] = np.where(states == State.FETCHING, records["state"], found)
        _write(self.number, records.tobytes(), _START)
        _write(self.number, _LOOKED.pack(1), _HEADER.size)


def _unpacked(data: bytes) -> Entry:
    if len(data) != _RECORD.size:
        return Entry()
    state, last_use, changed, digest = _RECORD.unpack(data)
    return Entry(
        min(state & _STATE_MASK, State.PRESENT),
        max(0, state >> _SIZE_SHIFT),
        last_use,
        changed,
        digest,
    )


def _write(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written
