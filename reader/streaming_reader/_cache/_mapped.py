"""Files mapped for reading, held against eviction for as long as anybody looks at them."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import xxhash

from streaming_reader._cache._locks import try_lock

if TYPE_CHECKING:
    from streaming_reader._cache._locks import FileHandle

__all__ = ["READ_FLAGS", "content_digest", "hold", "map_file"]

READ_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # a named pipe in the file's place must not hang the open
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


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


def content_digest(digests: list[int]) -> int:
    """Return one hash for those of a shard's decompressed files, in order.

    Example:
        >>> content_digest([7]), content_digest([7, 8]) == content_digest([8, 7])
        (7, False)
    """
    if len(digests) == 1:
        return digests[0]
    return xxhash.xxh3_64_intdigest(b"".join(one.to_bytes(8, "little") for one in digests))
