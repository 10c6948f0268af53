"""Files that no store has: each is made of bytes that come from one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from streaming_core._index import FileInfo
    from streaming_core._store import Attempts
    from streaming_core._virtual import Ask, Piece
    from streaming_reader._cache._counts import Counts

__all__ = ["Maker", "made", "made_together"]


class Maker(Protocol):
    """Makes the data files of virtual shards. Pickles, survives a fork; threads may share it."""

    @property
    def url(self) -> str:
        """Where the bytes come from, without secrets."""
        ...

    def made(self, basename: str, came: Callable[[int], None]) -> memoryview:
        """Return a whole file; `came` is told of bytes that came.

        Raises:
            StoreError: The store failed; may be tried again.
            StreamingError: It cannot be made, however often it is tried.
        """
        ...

    def kin(self, basename: str) -> list[str]:
        """Return the names of files that are made of the same bytes, in order, its own included."""
        ...

    def made_together(
        self, basenames: Sequence[str], ask: Ask | None = None
    ) -> Iterator[tuple[str, memoryview]]:
        """Yield the name and the bytes of some files that are kin; raises as `made`.

        `ask` makes the requests, and makes those again that fail.
        """
        ...


def made(attempts: Attempts, maker: Maker, file: FileInfo, counts: Counts) -> Generator[memoryview]:
    """Yield the bytes of a file that is made, tried again where that may help.

    Raises:
        StoreError: The store failed more often than allowed, or said no.
        StreamingError: As `Maker.made`.
    """
    while True:
        attempts.wait_turn()
        arrived = time.perf_counter_ns()

        def came(count: int) -> None:
            nonlocal arrived
            arrived = time.perf_counter_ns()
            attempts.answered()
            attempts.came(count)

        try:
            data = maker.made(file.basename, came)
        except StoreError as error:
            attempts.failed(error)
        else:
            counts.make_ns += time.perf_counter_ns() - arrived
            yield data
            return


def made_together(
    attempts: Attempts,
    maker: Maker,
    basenames: Sequence[str],
    touch: Callable[[], None],
    counts: Counts,
) -> Generator[tuple[str, memoryview]]:
    """Yield the names and the bytes of files that are kin; each request is tried again if need be.

    `touch` is called when bytes came. Raises as `made`.
    """
    arrived = time.perf_counter_ns()

    def ask(request: Callable[[], list[Piece]]) -> list[Piece]:
        nonlocal arrived
        pieces = attempts.call(request)
        attempts.came(sum(len(piece.data) for piece in pieces))
        touch()
        arrived = time.perf_counter_ns()
        return pieces

    resumed = arrived
    for name, data in maker.made_together(basenames, ask):
        now = time.perf_counter_ns()
        counts.make_ns += now - arrived
        counts.fill_ns += now - resumed
        yield name, data
        resumed = arrived = time.perf_counter_ns()
