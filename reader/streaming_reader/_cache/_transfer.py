"""The bytes of one file on their way from a store or a compressed copy into a part."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import xxhash

from streaming_core._codec import parse_compression
from streaming_core._store import MinimumRate, too_slow, version_of
from streaming_core.errors import (
    ObjectTooLargeError,
    RangeError,
    ShardCorruptError,
    ShardSizeError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from streaming_core._codec import Buffer
    from streaming_core._index import FileInfo, ShardSchema
    from streaming_core._read import FileCheck
    from streaming_core._store import Retry, Store
    from streaming_reader._cache._counts import Counts
    from streaming_reader._cache._made import Maker
    from streaming_reader._cache._pace import Pace
    from streaming_reader._cache._patience import Patience

__all__ = [
    "Line",
    "expanded",
    "file_pieces",
    "received",
    "teed",
    "write_pieces",
    "written_digest",
]

_PIECE_BYTES: Final = 1 << 20
_WORTH_BYTES: Final = 4 << 20
"""A request that broke after so many bytes was worth making."""


class Line:
    """The way to one store for one fetch: its attempts, its turns, and what may be waited for."""

    __slots__ = (
        "_attempts",
        "_pace",
        "_retry",
        "counts",
        "patience",
        "requests",
        "timeout",
        "url",
    )

    def __init__(
        self,
        store: Store | Maker,
        retry: Retry,
        timeout: float,
        patience: Patience,
        *,
        pace: Pace | None,
        counts: Counts,
    ) -> None:
        """Make requests of `store` as `retry` says; none may bring nothing for `timeout` seconds.

        `patience` is renewed whenever something comes.
        """
        self.url = store.url
        """Where requests go, without secrets."""
        self.timeout = timeout
        self.patience = patience
        self.counts = counts
        self.requests = 0
        """How many requests were made."""
        self._retry = retry
        self._attempts = retry.begin()
        self._pace = pace

    def begin(self) -> float | None:
        """Wait until a request may be made, and count it; return what `answered` wants."""
        began = None if self._pace is None else self._pace.wait(self.patience, self.counts)
        self.requests += 1
        return began

    def answered(self, began: float | None) -> None:
        """Note that the store answers the request of `began`."""
        if self._pace is not None:
            self._pace.answered(began)

    def came(self, count: int) -> None:
        """Note that bytes came."""
        self.counts.bytes_fetched += count
        self.patience.renew()

    def failed(
        self,
        error: StoreError | ShardCorruptError,
        *,
        brought: int = 0,
        began: float | None = None,
    ) -> None:
        """Wait until the next request may be made; raise `error` if none is.

        One that was refused because the store is busy counts for none. After one that `brought`
        much of a file that is gone on with, all attempts are there again.
        """
        if isinstance(error, StoreBusyError) and self._pace is not None:
            self.counts.refusals += 1
            self._pace.refused(began, error, self.patience)
            return
        failures = 0 if brought >= _WORTH_BYTES else self._attempts.failures
        self._attempts = self._retry.begin(deadline=self.patience.deadline)
        self._attempts.failures = failures
        self._attempts.failed(error)
        self.counts.retries += 1


def received(line: Line, store: Store, file: FileInfo, check: FileCheck) -> Generator[memoryview]:
    """Yield the bytes of a stored file, never more than its size; `check` has judged them all.

    A stream that breaks is gone on with from the byte it reached, if the store says that it is
    still of the same version, or a hash will tell a mixture of two; otherwise it is an error, and
    the caller begins anew.

    Raises:
        ShardCorruptError: The store has another file than the index says.
        StoreError: The store failed more often than allowed, or said no.
    """
    version = ""
    while True:
        began, start, is_mixed = line.begin(), check.size, False
        try:
            pieces = store.stream(file.basename, start=start, max_bytes=file.bytes)
            rate, waiting = MinimumRate(line.timeout), time.monotonic()
            with closing(pieces):
                for piece in pieces:
                    seconds = time.monotonic() - waiting
                    if check.size == start:
                        line.answered(began)
                        is_mixed = _is_mixed(version, version_of(pieces), start, check)
                        if is_mixed:
                            raise _replaced(line, file)
                        version = version_of(pieces)
                    check.update(piece)
                    line.came(len(piece))
                    if check.size > file.bytes:
                        raise check.wrong_size(None, line.url)
                    yield piece
                    if not rate.is_enough(len(piece), seconds) and check.size < file.bytes:
                        raise _too_slow(line, file)
                    waiting = time.monotonic()
            break
        except ObjectTooLargeError as error:
            raise check.wrong_size(None, line.url) from error
        except RangeError as error:
            raise _replaced(line, file) from error  # it has not even as many bytes
        except StoreError as error:
            can_go_on = check.has_hash or version or not check.size
            if is_mixed or not can_go_on:
                raise
            line.failed(error, brought=check.size - start, began=began)
    check.finish(line.url)


def _is_mixed(before: str, now: str, start: int, check: FileCheck) -> bool:
    """Tell whether a stream from `start` on is, or may be, of another version than that before."""
    if not start or before == now != "":
        return False
    return bool(before and now) or not check.has_hash


def _replaced(line: Line, file: FileInfo) -> StoreError:
    return StoreError(
        f"stream {file.basename!r} in {line.url}: the object was replaced while it was read; "
        "it is read anew"
    )


def _too_slow(line: Line, file: FileInfo) -> StoreError:
    return StoreError(f"stream {file.basename!r} in {line.url}: {too_slow(line.timeout)}")


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
