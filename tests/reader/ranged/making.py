"""Data sets, stores and data set objects that the tests of ranges share."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core import MDSWriter, load_index
from streaming_core._store import LocalStore, Parts
from streaming_reader._cache import CacheSettings, ShardCache
from streaming_reader._catalogue import Catalogue
from streaming_reader._ranged import Line, Origin

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from streaming_core._store import Buffer, ByteRange, ObjectInfo, Store

__all__ = [
    "ONLY_BYTES",
    "SECONDS",
    "CountingStore",
    "HeldStore",
    "WideStore",
    "catalogue",
    "write_blobs",
]

SECONDS = 100.0
"""How long a test waits for what comes soon on a machine that is not busy."""

ONLY_BYTES = Line(latency=0.0, rate=1.0, whole_rate=1.0)
"""A line so slow that nothing but bytes matters, so that small shards are read by ranges too."""


def write_blobs(
    folder: Path, count: int, *, size: int, shard: int, varied: bool = False, **options: Any
) -> Path:
    """Write samples of `size` random bytes, `shard` in each shard; half to twice that if varied."""
    noise = np.random.default_rng(7).bytes(4 * size)
    with MDSWriter(
        out=str(folder),
        columns={"id": "int", "blob": "bytes"}
        if varied
        else {"id": "int", "blob": f"ndarray:uint8:{size}"},
        size_limit=shard * (size + 64) if varied else shard * (size + 12) + 400,
        **options,
    ) as writer:
        for number in range(count):
            at = (number * 131) % size
            length = size // 2 + (number * 7919) % (size + size // 2) if varied else size
            blob: Any = noise[at : at + length]
            if not varied:
                blob = np.frombuffer(blob, np.uint8)
            writer.write({"id": number, "blob": blob})
    return folder


class CountingStore:
    """A folder that is no local one to those who ask, and that counts what is read of it."""

    def __init__(self, inner: Path | Store) -> None:
        self.inner: Any = LocalStore(inner, durable=False) if isinstance(inner, Path) else inner
        self.guard = threading.Lock()
        self.ranges: list[tuple[str, int, int]] = []
        """Key and bounds of each range that was asked for."""
        self.range_calls = 0
        self.range_bytes = 0
        self.streams: list[str] = []
        """Keys of the objects that were streamed."""
        self.stream_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "guard": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.guard = threading.Lock()

    @property
    def url(self) -> str:
        """A URL of its own."""
        return "counting://here"

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the object."""
        found: bytes = self.inner.get(key, max_bytes=max_bytes)
        return found

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return ranges, counted."""
        with self.guard:
            self.range_calls += 1
            self.ranges += [(key, start, stop or 0) for start, stop in ranges]
        found: Parts = self.inner.get_ranges(key, ranges)
        with self.guard:
            self.range_bytes += sum(map(len, found))
        return found

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the object, counted."""
        with self.guard:
            self.streams.append(key)
        with closing(self.inner.stream(key, start=start, max_bytes=max_bytes)) as pieces:
            for piece in pieces:
                with self.guard:
                    self.stream_bytes += len(piece)
                yield piece

    def head(self, key: str) -> ObjectInfo:
        """Return what is known of the object."""
        found: ObjectInfo = self.inner.head(key)
        return found

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects."""
        found: Iterator[ObjectInfo] = self.inner.list(prefix)
        return found

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Put into the folder."""
        found: ObjectInfo = self.inner.put(key, buffers, if_absent=if_absent)
        return found

    def delete(self, key: str) -> None:
        """Delete from the folder."""
        self.inner.delete(key)

    def child(self, prefix: str) -> CountingStore:
        """Return a store that counts by itself."""
        return CountingStore(self.inner.child(prefix))

    @property
    def whole(self) -> int:
        """How many whole shards were asked for."""
        return sum(key.endswith(".mds") for key in self.streams)


class HeldStore(CountingStore):
    """One that gives no byte of a whole shard before the test lets it."""

    def __init__(self, inner: Path | Store) -> None:
        """Hold all shards back."""
        super().__init__(inner)
        self.let_go = threading.Event()

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the object, once that is allowed."""
        if key.endswith(".mds"):
            self.let_go.wait(SECONDS)
        yield from super().stream(key, start=start, max_bytes=max_bytes)


class WideStore(HeldStore):
    """One that answers requests for ranges only when many of a round are under way together.

    Those that begin at the beginning of an object are the first round, the others the second.
    """

    def __init__(self, inner: Path | Store, wide: tuple[int, int]) -> None:
        """Wait for so many requests in each round."""
        super().__init__(inner)
        self._wide = wide
        self._waiting = [0, 0]
        self._enough = (threading.Event(), threading.Event())

    @property
    def is_wide(self) -> bool:
        """Whether so many were under way together in each round."""
        return all(event.is_set() for event in self._enough)

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return ranges after others have been asked for as well."""
        number = int(ranges[0][0] > 0)
        with self.guard:
            self._waiting[number] += 1
            if self._waiting[number] >= self._wide[number]:
                self._enough[number].set()
        self._enough[number].wait(SECONDS)
        return super().get_ranges(key, ranges)


def catalogue(
    remote: Path,
    local: Path,
    store: Any,
    *,
    line: Line | None = ONLY_BYTES,
    ranges: bool = True,
    timeout: float = SECONDS,
    **settings: Any,
) -> Catalogue:
    """Return the shards of the data set in `remote`, read from `store` into `local`."""
    table = load_index(remote)
    chosen = CacheSettings(**settings)
    cache = ShardCache(table, store, local, chosen)
    origins = [Origin(table, store, chosen, line=line)] if ranges else []
    return Catalogue([table], [cache], timeout=timeout, origins=origins)
