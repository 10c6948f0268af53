"""What some stores can do beyond the contract, and how to ask for it of any."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming_core._store._contract import Store

__all__ = ["PartsStore", "Pieces", "TimedStore", "abort_uploads", "version_of", "with_timeout"]


class Pieces(Generator[memoryview, None, None]):
    """The pieces of a stream, and the version of the object that they are of.

    A store may return this from `Store.stream`: then a stream that broke can be gone on with, by
    another that is known to be of the same version.

    Example:
        >>> def make(note):
        ...     note("1f-9a")
        ...     yield memoryview(b"body")
        >>> pieces = Pieces(make)
        >>> pieces.etag, bytes(next(pieces)), pieces.etag
        ('', b'body', '1f-9a')
    """

    __slots__ = ("_inner", "_noted")

    def __init__(self, make: Callable[[Callable[[str], None]], Generator[memoryview]]) -> None:
        """Have the pieces made by `make`, which calls what it is given with the version."""
        # A list of its own: the generator must not keep alive what keeps it alive, or a stream that
        # somebody dropped would hold its connection.
        self._noted: list[str] = []
        self._inner = make(self._noted.append)

    @property
    def etag(self) -> str:
        """As `ObjectInfo.etag`; empty before the first piece, or if the store does not say."""
        return self._noted[-1] if self._noted else ""

    def send(self, value: None, /) -> memoryview:
        """Return the next piece."""
        return self._inner.send(value)

    def throw(self, *error: Any) -> memoryview:  # noqa: ANN401 - as generators have it
        """Raise an error where the stream stands."""
        return self._inner.throw(*error)

    def close(self) -> None:
        """Let everything go."""
        self._inner.close()


def version_of(pieces: Iterator[memoryview]) -> str:
    """Return the version that a stream is of, once its first piece came; empty if it is not known.

    Weak ones count for nothing: what they stand for need not be equal to the byte.

    Example:
        >>> version_of(iter([memoryview(b"body")]))
        ''
    """
    etag = pieces.etag if isinstance(pieces, Pieces) else ""
    return "" if etag.startswith("W/") else etag


@runtime_checkable
class TimedStore(Protocol):
    """A store whose requests can be told how long to wait."""

    def with_timeout(self, seconds: float) -> Store:
        """Return the same store, whose requests fail when nothing comes for so long."""
        ...


def with_timeout(store: Store, seconds: float) -> Store:
    """Return the same store, whose requests fail when nothing comes for so long, if it can do that.

    How long a request takes in all is limited by neither.

    Example:
        >>> from streaming_core._store import MemoryStore
        >>> with_timeout(MemoryStore("example"), 5.0)
        MemoryStore('example')
    """
    return store.with_timeout(seconds) if isinstance(store, TimedStore) else store


@runtime_checkable
class PartsStore(Protocol):
    """A store in which the parts of a large object may be left by a process that was killed."""

    def abort_uploads(self, prefix: str = "") -> int:
        """Remove the parts of unfinished uploads of such keys; return of how many uploads."""
        ...


def abort_uploads(store: Store, prefix: str) -> int:
    """Remove what killed writers left of objects whose keys start with `prefix`, if that can be.

    Nobody else may be putting such objects. Returns how many there were.

    Example:
        >>> from streaming_core._store import MemoryStore
        >>> abort_uploads(MemoryStore("example"), "shard.")
        0
    """
    return store.abort_uploads(prefix) if isinstance(store, PartsStore) else 0
