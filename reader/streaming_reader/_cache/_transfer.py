"""The bytes of one file on their way from a store or a compressed copy into a part."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import xxhash

from streaming_core._codec import parse_compression
from streaming_core.errors import ObjectTooLargeError, ShardSizeError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from streaming_core._codec import Buffer
    from streaming_core._index import FileInfo, ShardSchema
    from streaming_core._read import FileCheck
    from streaming_core._store import Attempts, Store
    from streaming_reader._cache._counts import Counts

__all__ = ["Line", "expanded", "file_pieces", "received", "teed", "write_pieces"]

_PIECE_BYTES: Final = 1 << 20


class Line:
    """The way to one store for one fetch: its attempts, and what each may take."""

    __slots__ = ("attempts", "counts", "deadline", "requests", "store", "timeout")

    def __init__(
        self, store: Store, attempts: Attempts, timeout: float, deadline: float, counts: Counts
    ) -> None:
        self.store = store
        self.attempts = attempts
        self.timeout = timeout
        self.deadline = deadline
        self.counts = counts
        self.requests = 0
        """How many requests were made."""

    def check_time(self, key: str, began: float) -> None:
        """Raise `StoreError` if a request that began then has taken too long."""
        now = time.monotonic()
        if now - began <= self.timeout and now <= self.deadline:
            return
        msg = (
            f"stream {key!r} in {self.store.url}: not done after {now - began:.1f} seconds; raise "
            "the download timeout if the line is slow"
        )
        raise StoreError(msg)


def received(line: Line, file: FileInfo, check: FileCheck) -> Generator[memoryview]:
    """Yield the bytes of a stored file, never more than its size; `check` has judged them all.

    A stream that breaks is gone on with from the byte it reached, if a hash will tell a mixture of
    two versions; otherwise it is an error, and the caller begins anew.

    Raises:
        ShardCorruptError: The store has another file than the index says.
        StoreError: The store failed more often than allowed, or said no.
    """
    while True:
        line.requests += 1
        began = time.monotonic()
        try:
            pieces = line.store.stream(file.basename, start=check.size, max_bytes=file.bytes)
            with closing(pieces):
                for piece in pieces:
                    check.update(piece)
                    line.counts.bytes_fetched += len(piece)
                    if check.size > file.bytes:
                        raise check.wrong_size(None, line.store.url)
                    yield piece
                    if check.size < file.bytes:
                        line.check_time(file.basename, began)
            break
        except ObjectTooLargeError as error:
            raise check.wrong_size(None, line.store.url) from error
        except StoreError as error:
            if check.size and not check.has_hash:
                raise
            line.attempts.failed(error)
            line.counts.retries += 1
    check.finish(line.store.url)


def file_pieces(path: str, file: FileInfo, check: FileCheck) -> Generator[memoryview]:
    """Yield the bytes of a file that is here; `check` has judged them all.

    Raises:
        ShardCorruptError: It is not what the index says.
        OSError: It cannot be read.
    """
    buffer = memoryview(bytearray(min(_PIECE_BYTES, max(1, file.bytes))))
    with open(path, "rb", buffering=0) as opened:  # noqa: PTH123 - see above
        while count := opened.readinto(buffer):
            check.update(buffer[:count])
            if check.size > file.bytes:
                raise check.wrong_size(None, path)
            yield buffer[:count].toreadonly()
    check.finish(path)


def expanded(
    schema: ShardSchema, pieces: Iterable[Buffer], packed: FileInfo, raw: FileInfo
) -> Iterable[Buffer]:
    """Return what the pieces of `packed` expand to, in pieces; no more than `raw` should have."""
    codec = parse_compression(schema.compression)
    if codec is None:
        msg = f"{packed.basename}: a compressed file, but the index names no compression for it"
        raise ShardSizeError(msg)
    return codec.decompress_stream(pieces, raw.bytes, where=packed.basename)


def write_pieces(handle: int, pieces: Iterable[Buffer], then: Callable[[Buffer], None]) -> int:
    """Write pieces to an open file, emptied first; return their hash. `then` sees each piece.

    The time of the last write is set to the nanosecond, so that any write that comes later is seen
    to have come, even within one tick of the system's clock.
    """
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    state = xxhash.xxh3_64()
    for piece in pieces:
        state.update(piece)
        then(piece)
        write_all(handle, piece)
    if os.utime in os.supports_fd:
        now = time.time_ns()
        os.utime(handle, ns=(now, now))
    return state.intdigest()


def write_all(handle: int, piece: Buffer) -> None:
    """Write every byte, however few the system takes at a time."""
    view = memoryview(piece)
    while view:
        view = view[os.write(handle, view) :]


def teed(pieces: Iterable[memoryview], handle: int) -> Generator[memoryview]:
    """Yield the pieces, each written to an open file, emptied first."""
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    for piece in pieces:
        write_all(handle, piece)
        yield piece
