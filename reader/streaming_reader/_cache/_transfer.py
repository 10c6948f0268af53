"""The bytes of one file on their way from a store or a compressed copy into a part."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import xxhash

from streaming_core._codec import parse_compression
from streaming_core._store import too_slow, version_of
from streaming_core.errors import (
    ObjectTooLargeError,
    RangeError,
    ShardSizeError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from streaming_core._codec import Buffer
    from streaming_core._index import FileInfo, ShardSchema
    from streaming_core._read import FileCheck
    from streaming_core._store import Attempts, Store

__all__ = [
    "expanded",
    "file_pieces",
    "received",
    "teed",
    "write_pieces",
    "written_digest",
]

_PIECE_BYTES: Final = 1 << 20


def received(
    attempts: Attempts, store: Store, file: FileInfo, check: FileCheck
) -> Generator[memoryview]:
    """Yield the bytes of a stored file, never more than its size; `check` has judged them all.

    A stream that breaks is continued from the byte it reached, if the store says that it is
    still of the same version, or a hash will tell a mixture of two; otherwise it is an error, and
    the caller starts over.

    Raises:
        ShardCorruptError: The store has another file than the index says.
        StoreError: The store failed more often than allowed, or said no.
    """
    version = ""
    while True:
        attempts.wait_turn()
        start, is_mixed = check.size, False
        try:
            pieces = store.stream(file.basename, start=start, max_bytes=file.bytes)
            waiting = time.monotonic()
            with closing(pieces):
                for piece in pieces:
                    seconds = time.monotonic() - waiting
                    if check.size == start:
                        attempts.answered()
                        is_mixed = _is_mixed(version, version_of(pieces), start, check)
                        if is_mixed:
                            raise _replaced(store, file)
                        version = version_of(pieces)
                    check.update(piece)
                    is_enough = attempts.came(len(piece), seconds)
                    if check.size > file.bytes:
                        raise check.wrong_size(None, store.url)
                    yield piece
                    if not is_enough and check.size < file.bytes:
                        raise _error(store, file, too_slow(attempts.policy.timeout))
                    waiting = time.monotonic()
            break
        except ObjectTooLargeError as error:
            raise check.wrong_size(None, store.url) from error
        except RangeError as error:
            raise _replaced(store, file) from error  # it has not even as many bytes
        except StoreError as error:
            can_go_on = check.has_hash or version or not check.size
            if is_mixed or not can_go_on:
                raise
            attempts.failed(error, brought=check.size - start)
    check.finish(store.url)


def _is_mixed(before: str, now: str, start: int, check: FileCheck) -> bool:
    """Tell whether a stream from `start` on is, or may be, of another version than that before."""
    if not start or before == now != "":
        return False
    return bool(before and now) or not check.has_hash


def _replaced(store: Store, file: FileInfo) -> StoreError:
    return _error(store, file, "the object was replaced while it was read; it is read anew")


def _error(store: Store, file: FileInfo, what: str) -> StoreError:
    return StoreError(f"stream {file.basename!r} in {store.url}: {what}")


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


def written_digest(handle: int) -> int:
    """Return the hash of what an open file has."""
    state, at = xxhash.xxh3_64(), 0
    while piece := os.pread(handle, _PIECE_BYTES, at):
        state.update(piece)
        at += len(piece)
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
