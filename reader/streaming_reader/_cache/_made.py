"""Files that no store has: each is made of bytes that come from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from streaming_core._index import FileInfo
    from streaming_reader._cache._transfer import Line

__all__ = ["Maker", "made"]


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


def made(line: Line, maker: Maker, file: FileInfo) -> Generator[memoryview]:
    """Yield the bytes of a file that is made, tried again where that may help.

    Raises:
        StoreError: The store failed more often than allowed, or said no.
        StreamingError: As `Maker.made`.
    """
    while True:
        began = line.begin()

        def came(count: int, began: float | None = began) -> None:
            line.answered(began)
            line.came(count)

        try:
            data = maker.made(file.basename, came)
        except StoreError as error:
            line.failed(error, began=began)
        else:
            yield data
            return
