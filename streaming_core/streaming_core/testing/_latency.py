"""A store that answers as late as a distant one."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from streaming_core._store import Buffer, ByteRange, ObjectInfo, Parts, Store

__all__ = ["LatencyStore"]


class LatencyStore:
    """Another store with a fixed wait for each request and a fixed speed for the bytes.

    Each call is one request and takes `seconds_per_request`, plus its bytes divided by
    `bytes_per_second`. Calls do not slow each other, as with separate connections. The wait blocks
    only the calling thread. `wake` ends all waits, now and later. A pickled copy, and a forked
    child, waits anew and has its own `wake`; children made by `child` share it.

    Example:
        >>> from streaming_core.testing import MemoryStore
        >>> store = LatencyStore(MemoryStore(), 0.001, bytes_per_second=1_000_000)
        >>> store.delay_seconds(500_000)
        0.501
        >>> store.put("a", [b"body"]).size
        4
    """

    def __init__(
        self, inner: Store, seconds_per_request: float, bytes_per_second: float | None = None
    ) -> None:
        if seconds_per_request < 0 or (bytes_per_second is not None and bytes_per_second <= 0):
            msg = (
                "a store cannot be faster than at once: wanted seconds_per_request >= 0 and "
                f"bytes_per_second > 0, got {seconds_per_request!r} and {bytes_per_second!r}"
            )
            raise ValueError(msg)
        self._inner = inner
        self._seconds_per_request = seconds_per_request
        self._bytes_per_second = bytes_per_second
        self._awake = threading.Event()

    @property
    def inner(self) -> Store:
        """The store that does the work."""
        return self._inner

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self._inner.url

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self._inner!r}, {self._seconds_per_request}, {self._bytes_per_second})"

    def __eq__(self, other: object) -> bool:
        return (
            self._state() == other._state() if isinstance(other, LatencyStore) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash((LatencyStore, self._inner))

    def __reduce__(self) -> tuple[type[LatencyStore], tuple[Store, float, float | None]]:
        return LatencyStore, self._state()

    def delay_seconds(self, num_bytes: int) -> float:
        """Return how long a request that moves `num_bytes` takes."""
        moving = num_bytes / self._bytes_per_second if self._bytes_per_second is not None else 0.0
        return self._seconds_per_request + moving

    def wake(self) -> None:
        """End every wait, those to come too: from here on the store is as fast as the inner one."""
        self._awake.set()

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return what the inner store returns, later."""
        data = self._inner.get(key, max_bytes=max_bytes)
        self._wait(len(data))
        return data

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return what the inner store returns, later; all ranges together are one request."""
        parts = self._inner.get_ranges(key, ranges)
        self._wait(sum(map(len, parts)))
        return parts

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield what the inner store yields, each piece as late as its bytes need."""
        self._wait(0)
        with closing(self._inner.stream(key, start=start, max_bytes=max_bytes)) as pieces:
            for piece in pieces:
                self._awake.wait(self.delay_seconds(len(piece)) - self._seconds_per_request)
                yield piece

    def head(self, key: str) -> ObjectInfo:
        """Return what the inner store returns, later."""
        self._wait(0)
        return self._inner.head(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Return what the inner store lists, later; the whole listing is one request."""
        self._wait(0)
        return self._inner.list(prefix)

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Wait, then put into the inner store."""
        self._wait(sum(memoryview(buffer).nbytes for buffer in buffers))
        return self._inner.put(key, buffers, if_absent=if_absent)

    def delete(self, key: str) -> None:
        """Wait, then delete from the inner store."""
        self._wait(0)
        self._inner.delete(key)

    def child(self, prefix: str) -> LatencyStore:
        """Return the inner store's child, as slow as this; nothing is requested."""
        store = LatencyStore(self._inner.child(prefix), *self._state()[1:])
        store._awake = self._awake
        return store

    def _state(self) -> tuple[Store, float, float | None]:
        return self._inner, self._seconds_per_request, self._bytes_per_second

    def _wait(self, num_bytes: int) -> None:
        self._awake.wait(self.delay_seconds(num_bytes))
