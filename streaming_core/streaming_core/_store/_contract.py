"""What every store offers, and the checks that all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from streaming_core._names import name_problem
from streaming_core.errors import ObjectTooLargeError, RangeError, UnsafeKeyError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

__all__ = [
    "PIECE_BYTES",
    "Buffer",
    "ByteRange",
    "ObjectInfo",
    "Parts",
    "Store",
    "byte_views",
    "check_key",
    "check_prefix",
    "check_ranges",
    "check_size",
    "check_start",
    "cut_views",
    "resolve_ranges",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to store; a NumPy array comes as `array.data`, and any shape or item type is taken."""

PIECE_BYTES = 1 << 20
"""How much a store hands over at a time when it streams: large enough that the calls cost nothing,
small enough that it stays in the processor's cache until it was hashed and written."""

ByteRange: TypeAlias = tuple[int, int | None]
"""`(start, stop)`, end-exclusive; `(start, None)` runs to the end, `(-n, None)` is the last n."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without reading it.

    Example:
        >>> ObjectInfo("shard.00000.mds", 4096, "1f-9a").size
        4096
    """

    key: str
    """The object's name, relative to the store that was asked."""
    size: int
    """Its length in bytes."""
    etag: str
    """A text that changes whenever the object is written anew; its form is the store's own."""


class Parts(list[bytes]):
    """The bytes of some ranges, and the version of the object that they are of.

    Example:
        >>> Parts([b"head"], "1f-9a").etag
        '1f-9a'
    """

    __slots__ = ("etag",)

    def __init__(self, parts: Iterable[bytes], etag: str) -> None:
        super().__init__(parts)
        self.etag = etag
        """As `ObjectInfo.etag`; empty if the store does not say."""


@runtime_checkable
class Store(Protocol):
    """Named blobs in one place; an object appears whole or not at all.

    Any number of threads may call any verb at once. A store pickles, survives a fork, compares
    and hashes by its kind and root, and shows no secret in `repr`, `url` or errors. Every verb
    blocks, and refuses a key that is no safe relative name before any I/O. Failures are
    `StoreError` and its children.

    Example:
        >>> from streaming_core._store import MemoryStore
        >>> isinstance(MemoryStore(), Store)
        True
    """

    @property
    def url(self) -> str:
        """The store's root, without secrets; `open_store` takes it back."""
        ...

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object.

        Raises:
            ObjectNotFoundError: There is none.
            ObjectTooLargeError: It has more than `max_bytes` bytes; nothing of it was read.
        """
        ...

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return one `bytes` for each range, in the order given; never a short one.

        All are of one version of the object, which the result names.

        Raises:
            ObjectNotFoundError: There is no such object.
            RangeError: A range is malformed or not fully inside the object.
        """
        ...

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the object's bytes from `start` to its end, piece by piece, all of one version.

        A piece is read-only, of about one MiB, and valid until the next is asked for: the store
        may use one buffer for all. Errors come with the first piece at the latest, but for those of
        the connection: an object that ends early or changes on the way is an error, never a
        shorter or mixed result. Closing the generator (`contextlib.closing`) lets everything go.

        Raises:
            ObjectNotFoundError: There is none.
            RangeError: It has less than `start` bytes; exactly as many give no piece.
            ObjectTooLargeError: It has more than `max_bytes` bytes in all; nothing was read.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the object, or raise `ObjectNotFoundError`."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with the text `prefix`, in order of the keys."""
        ...

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the joined buffers under `key`, replacing what was there in one step.

        The buffers are not kept and must not change during the call. A put that raises has
        published nothing, unless only the confirmation was lost.

        Raises:
            AlreadyExistsError: `if_absent` was given and the object exists.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine."""
        ...

    def child(self, prefix: str) -> Store:
        """Return the same store rooted at the folder `prefix`, which need not exist."""
        ...


def check_key(key: str, *, url: str, operation: str) -> None:
    """Raise `UnsafeKeyError` unless `key` is a safe relative name.

    Example:
        >>> check_key("part-0/shard.00000.mds", url="memory://a", operation="get")
    """
    problem = name_problem(key)
    if problem is not None:
        msg = f"{operation} in {url}: the key {key!r} is refused, {problem}; give a relative name"
        raise UnsafeKeyError(msg)


def check_prefix(prefix: str, *, url: str) -> None:
    """Raise `UnsafeKeyError` unless some safe name starts with the text `prefix`.

    Example:
        >>> check_prefix("part-", url="memory://a")
    """
    # Whatever follows cannot mend a bad beginning, so one letter more makes it a whole name.
    problem = name_problem(prefix + "x")
    if problem is not None:
        msg = f"list in {url}: no key can start with {prefix!r}, {problem}; give a relative prefix"
        raise UnsafeKeyError(msg)


def check_size(size: int, max_bytes: int | None, *, url: str, key: str) -> None:
    """Raise `ObjectTooLargeError` if an object of `size` bytes is more than the caller allows.

    Example:
        >>> check_size(10, None, url="memory://a", key="x")
    """
    if max_bytes is not None and size > max_bytes:
        msg = (
            f"get {key!r} in {url}: the object has {size} bytes, more than the {max_bytes} "
            "allowed; nothing was read. Check that it is the file you mean"
        )
        raise ObjectTooLargeError(msg)


def check_start(start: int, size: int, *, url: str, key: str) -> None:
    """Raise `RangeError` unless a stream of an object of `size` bytes can begin at `start`.

    Example:
        >>> check_start(10, 10, url="memory://a", key="x")
    """
    if not 0 <= start <= size:
        msg = (
            f"stream {key!r} in {url}: byte {start} is not inside the object of {size} bytes; the "
            "object is shorter than expected, or is another one"
        )
        raise RangeError(msg)


def check_ranges(ranges: Iterable[ByteRange], *, url: str, key: str) -> None:
    """Raise `RangeError` if a range makes no sense for an object of any size.

    Example:
        >>> check_ranges([(0, 4), (4, None), (-8, None)], url="memory://a", key="x")
    """
    for start, stop in ranges:
        if stop is not None and not 0 <= start <= stop:
            msg = (
                f"get_ranges {key!r} in {url}: the range ({start}, {stop}) is malformed; give "
                "0 <= start <= stop, (start, None) for the rest, or (-n, None) for the last n bytes"
            )
            raise RangeError(msg)


def resolve_ranges(
    ranges: Iterable[ByteRange], size: int, *, url: str, key: str
) -> list[tuple[int, int]]:
    """Return each range as `(start, stop)` in an object of `size` bytes, or raise `RangeError`.

    Example:
        >>> resolve_ranges([(2, None), (-3, None)], 10, url="memory://a", key="x")
        [(2, 10), (7, 10)]
    """
    check_ranges(ranges := list(ranges), url=url, key=key)
    resolved: list[tuple[int, int]] = []
    for start, stop in ranges:
        first = start + size if start < 0 else start
        last = size if stop is None else stop
        if not 0 <= first <= last <= size:
            msg = (
                f"get_ranges {key!r} in {url}: the range ({start}, {stop}) is not inside the "
                f"object of {size} bytes; the object is shorter than expected, or is another one"
            )
            raise RangeError(msg)
        resolved.append((first, last))
    return resolved


def byte_views(buffers: Iterable[Buffer]) -> list[memoryview]:
    """Return flat byte views of the buffers that hold anything; copies only what is not contiguous.

    Example:
        >>> [len(view) for view in byte_views([b"abc", b"", bytearray(2)])]
        [3, 2]
    """
    return [_flat(view) for buffer in buffers if (view := memoryview(buffer)).nbytes]


def cut_views(views: Iterable[memoryview], start: int, stop: int) -> list[memoryview]:
    """Return the bytes from `start` to `stop` of what flat views make up, without a copy.

    Example:
        >>> b"".join(cut_views([memoryview(b"abc"), memoryview(b"def")], 2, 5))
        b'cde'
    """
    found: list[memoryview] = []
    at = 0
    for view in views:
        part = view[max(0, start - at) : max(0, stop - at)]
        if len(part):
            found.append(part)
        at += len(view)
        if at >= stop:
            break
    return found


def _flat(view: memoryview) -> memoryview:
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # strided, or an item type that cast() does not know
        return memoryview(view.tobytes())
