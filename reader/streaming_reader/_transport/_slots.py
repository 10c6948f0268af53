"""One anonymous file, cut into slots that several processes map."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import tempfile
import weakref
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.context import assert_spawning
from typing import Any, cast, final

import numpy as np

__all__ = ["HEADER", "Region", "SlotFile", "round_capacity"]

HEADER = 64
"""Bytes at the start of a slot that hold no data; the first one says whether the slot is in use."""

_FREE, _BUSY = 0, 1
# The file is sparse, so the room that a slot may grow into costs nothing. A file on disk, which
# stands in where anonymous memory is not to be had, has to stay below what file systems can hold.
_STRIDES = (1 << 40, 1 << 34)
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
# Without a descriptor of its own, a mapping that outlives the file costs no descriptor.
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

# What a file system says that has no way to allocate beforehand.
_CANNOT_ALLOCATE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}


def round_capacity(size: int) -> int:
    """Return what to map for `size` bytes: at most an eighth more, and few distinct values.

    Example:
        >>> round_capacity(1), round_capacity(1_000_000), round_capacity(1 << 30)
        (65536, 1048576, 1073741824)
    """
    step = max(1 << 16, 1 << max(0, size.bit_length() - 4))
    return -(-max(size, 1) // step) * step


@final
class Region:
    """One slot as this process maps it."""

    __slots__ = ("_holder_type", "_map", "capacity")

    def __init__(self, mapping: mmap.mmap) -> None:
        """Take over the mapping of a slot."""
        self._map = mapping
        self.capacity = len(mapping)
        """Bytes of the mapping, the header included."""
        self._holder_type = ctypes.c_char * self.capacity

    @property
    def is_free(self) -> bool:
        """Tell whether nobody has a view of the slot."""
        return self._map[0] == _FREE

    def occupy(self) -> None:
        """Mark the slot as in use; only its worker does, and only while it is free."""
        self._map[0] = _BUSY

    def free(self) -> None:
        """Mark the slot as free, before anybody else has seen it in use."""
        self._map[0] = _FREE

    def view(self) -> memoryview:
        """Return the bytes of the slot, for the worker that fills it."""
        return memoryview(self._map)

    def lend(self) -> memoryview:
        """Return the bytes of the slot; when the last view of them is gone, the slot is free.

        numpy, torch and memoryview keep the object that a buffer came from, and not each other:
        the one object that lives as long as every view of a view is the ctypes array below.
        """
        holder = self._holder_type.from_buffer(self._map)
        end = weakref.finalize(holder, _give_back, self._map, os.getpid())
        end.atexit = False  # nobody waits for a slot of a process that ends
        return np.ndarray(self.capacity, np.uint8, cast("Any", holder)).data


def _give_back(mapping: mmap.mmap, owner: int) -> None:
    # A child that was forked meanwhile has copies of the views, and drops them when it likes.
    if os.getpid() == owner:
        mapping[0] = _FREE


@final
class SlotFile:
    """An anonymous file with room for `count` slots; no byte of it exists until it is used.

    Forked children inherit it, spawned ones get it as a part of what they are started with.
    Nothing is left of it once no process has it open or mapped, however they ended.
    """

    __slots__ = ("__weakref__", "_fd", "_stride", "count")

    def __init__(self, count: int) -> None:
        """Make the file; raises `OSError` where the system gives no memory or file for it."""
        self.count = count
        """Number of slots."""
        self._fd = _anonymous_file()
        try:
            self._stride = _reserve(self._fd, count)
        except BaseException:
            self.close()
            raise

    def map(self, slot: int, size: int) -> Region:
        """Map `slot` with room for `size` bytes besides the header.

        Raises:
            OSError: No memory for it, or more than a slot can ever hold.
            ValueError: The file was closed.
        """
        if self._fd < 0:  # mapping that would give fresh zeros
            msg = "the slots were closed when their iterator ended; nothing can be read from them"
            raise ValueError(msg)
        capacity = round_capacity(size + HEADER)
        offset = slot * self._stride
        if capacity > self._stride:
            msg = f"a slot of {capacity} bytes, but this system allows {self._stride}"
            raise OSError(errno.EFBIG, msg)
        if hasattr(os, "posix_fallocate"):
            # Memory that is not to be had is an error here, and a deadly signal when written to.
            try:
                os.posix_fallocate(self._fd, offset, capacity)
            except OSError as error:
                if error.errno not in _CANNOT_ALLOCATE:
                    raise
        return Region(mmap.mmap(self._fd, capacity, offset=offset, flags=_FLAGS, **_UNTRACKED))

    def close(self) -> None:
        """Close the file; what is mapped stays mapped."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with suppress(AttributeError):
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        assert_spawning(self)
        return _restore, (reduction.DupFd(self._fd), self._stride, self.count)


def _restore(handle: Any, stride: int, count: int) -> SlotFile:  # noqa: ANN401 - by start method
    file = SlotFile.__new__(SlotFile)
    file._fd = handle.detach()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its own
    file._stride = stride  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its own
    file.count = count
    return file


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # a sandbox may forbid it
            return os.memfd_create("streaming-batches", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # has no name once it is open
        return os.dup(file.fileno())


def _reserve(fd: int, count: int) -> int:
    for stride in _STRIDES:
        try:
            os.ftruncate(fd, count * stride)
        except OSError:
            if stride == _STRIDES[-1]:
                raise
        else:
            return stride
    raise AssertionError
