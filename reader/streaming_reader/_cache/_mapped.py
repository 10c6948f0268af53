"""Files mapped for reading, held against eviction for as long as anybody looks at them."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from streaming_reader._cache._locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_reader._cache._locks import FileHandle

__all__ = ["READ_FLAGS", "content_digest", "hold", "map_file", "touch_pages"]

_POPULATE_READ: Final = 22
"""MADV_POPULATE_READ of Linux 5.14, which Python does not name."""
_AT_ONCE_BYTES: Final = 2 << 20
"""For so long nobody else can map or unmap."""

# A named pipe in the file's place must not hang the open.
READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def hold(handle: FileHandle) -> None:
    """Mark an open file as in use, if that can be: it tells others to evict something else first.

    The mark belongs to the open file, of which a mapping keeps a copy; it goes with the last of
    them, in a forked child too.
    """
    with suppress(OSError):  # a file system without locks
        try_lock(handle, shared=True)


def map_file(handle: FileHandle) -> memoryview:
    """Return the bytes of an open file, which may be closed afterwards."""
    size = os.fstat(handle.number).st_size
    if not size:
        return memoryview(b"")
    if sys.version_info >= (3, 13):
        # The system keeps the open file, and with it the mark, as long as the mapping: no need
        # for a descriptor of its own.
        mapped = mmap.mmap(handle.number, size, access=mmap.ACCESS_READ, trackfd=False)
    else:
        mapped = mmap.mmap(handle.number, size, access=mmap.ACCESS_READ)
    return memoryview(mapped)


def touch_pages(view: memoryview) -> None:
    """Map the pages of a file now, some at a time, instead of with a fault at each first use.

    Reads ahead what is not in memory. Without effect where the system cannot do that.
    """
    if sys.platform != "linux" or not isinstance(view.obj, mmap.mmap):
        return
    advise = _madvise()
    address = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    for start in range(0, len(view), _AT_ONCE_BYTES):
        count = min(_AT_ONCE_BYTES, len(view) - start)
        if advise(address + start, count, _POPULATE_READ):
            return  # an older system


@cache
def _madvise() -> Callable[[int, int, int], int]:
    """Return the system's call, during which other threads run, unlike during that of `mmap`."""
    import ctypes  # noqa: PLC0415 - only readers of large files need it

    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found: Callable[[int, int, int], int] = advise
    return found


def content_digest(digests: list[int]) -> int:
    """Return one hash for those of a shard's decompressed files, in order.

    Example:
        >>> content_digest([7]), content_digest([7, 8]) == content_digest([8, 7])
        (7, False)
    """
    if len(digests) == 1:
        return digests[0]
    return xxhash.xxh3_64_intdigest(b"".join(one.to_bytes(8, "little") for one in digests))
