"""A dictionary as a store: for tests, and for data that fits in memory."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from streaming_core._names import name_problem
from streaming_core._store._contract import (
    PIECE_BYTES,
    Buffer,
    ByteRange,
    ObjectInfo,
    Parts,
    byte_views,
    check_key,
    check_prefix,
    check_ranges,
    check_size,
    check_start,
    resolve_ranges,
)
from streaming_core._store._options import Options
from streaming_core.errors import AlreadyExistsError, ObjectNotFoundError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from streaming_core._store._options import StorageOptions

__all__ = ["MemoryStore", "memory_from_url"]

_SCHEME = "memory://"


class MemoryStore:
    """Objects in this process's memory; the same name gives the same objects.

    A named store lives as long as the process, and pickles as its name: another process finds its
    own objects under it. A store without a name gets one of its own, lives as long as it is used,
    and pickles with its content: loaded in the same process it is the same store, loaded in
    another it is a copy. A forked child sees what was there at the fork.

    Example:
        >>> store = MemoryStore("example")
        >>> store.put("a", [b"head", b"body"]).size
        8
        >>> MemoryStore("example").get("a"), store.url
        (b'headbody', 'memory://example')
    """

    __slots__ = ("_prefix", "_space")

    def __init__(self, name: str | None = None) -> None:
        self._space = _new_space() if name is None else _named_space(name)
        self._prefix = ""

    @property
    def url(self) -> str:
        """`memory://name`, with the path below it for a child."""
        return _SCHEME + f"{self._space.name}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        return f"MemoryStore({self.url.removeprefix(_SCHEME)!r})"

    def __eq__(self, other: object) -> bool:
        return self.url == other.url if isinstance(other, MemoryStore) else NotImplemented

    def __hash__(self) -> int:
        return hash((MemoryStore, self.url))

    def __reduce__(self) -> tuple[object, tuple[str, str, dict[str, _Entry] | None]]:
        space = self._space
        return MemoryStore._restored, (
            space.name,
            self._prefix,
            None if space.is_named else space.objects.copy(),
        )

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object; see `Store.get`."""
        data = self._find(key, "get")[0]
        check_size(len(data), max_bytes, url=self.url, key=key)
        return data

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges; see `Store.get_ranges`."""
        check_key(key, url=self.url, operation="get_ranges")
        check_ranges(ranges, url=self.url, key=key)
        data, etag = self._find(key, "get_ranges")
        resolved = resolve_ranges(ranges, len(data), url=self.url, key=key)
        return Parts([data[start:stop] for start, stop in resolved], etag)

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield views of the object as it is at the first piece; see `Store.stream`."""
        data = memoryview(self._find(key, "stream")[0])
        check_size(len(data), max_bytes, url=self.url, key=key)
        check_start(start, len(data), url=self.url, key=key)
        for at in range(start, len(data), PIECE_BYTES):
            yield data[at : at + PIECE_BYTES]

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the object; see `Store.head`."""
        data, etag = self._find(key, "head")
        return ObjectInfo(key, len(data), etag)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects as they were at the call, in key order; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        start = self._prefix + prefix
        found = [item for item in self._space.objects.copy().items() if item[0].startswith(start)]
        found.sort()
        skip = len(self._prefix)
        return (ObjectInfo(key[skip:], len(data), etag) for key, (data, etag) in found)

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Keep the joined buffers; see `Store.put`."""
        check_key(key, url=self.url, operation="put")
        data = b"".join(byte_views(buffers))
        entry = (data, f"{next(self._space.counter):x}")
        objects = self._space.objects
        # Each is one step of the dictionary, so that no lock is needed and a fork finds none held.
        if not if_absent:
            objects[self._prefix + key] = entry
        elif objects.setdefault(self._prefix + key, entry) is not entry:
            msg = (
                f"put {key!r} in {self.url}: the object exists already and was left as it is; "
                "delete it first or put without if_absent"
            )
            raise AlreadyExistsError(msg)
        return ObjectInfo(key, len(data), entry[1])

    def delete(self, key: str) -> None:
        """Forget the object; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        self._space.objects.pop(self._prefix + key, None)

    def child(self, prefix: str) -> MemoryStore:
        """Return the store of the keys below `prefix`."""
        check_key(prefix, url=self.url, operation="child")
        return self._viewed(self._space, f"{self._prefix}{prefix}/")

    @classmethod
    def _viewed(cls, space: _Space, prefix: str) -> MemoryStore:
        store = object.__new__(cls)
        store._space = space
        store._prefix = prefix
        return store

    @classmethod
    def _restored(cls, name: str, prefix: str, content: dict[str, _Entry] | None) -> MemoryStore:
        space = _named_space(name) if content is None else _known_space(name, content)
        return cls._viewed(space, prefix)

    def _find(self, key: str, operation: str) -> _Entry:
        check_key(key, url=self.url, operation=operation)
        entry = self._space.objects.get(self._prefix + key)
        if entry is None:
            msg = (
                f"{operation} {key!r} in {self.url}: there is no such object; check the key, and "
                "that its writer has finished"
            )
            raise ObjectNotFoundError(msg)
        return entry


def memory_from_url(url: str, options: StorageOptions | None = None) -> MemoryStore:
    """Return the store that `memory://name` or `memory://name/path` names. There are no options.

    Example:
        >>> memory_from_url("memory://example/part-0").url
        'memory://example/part-0'
    """
    Options(options, known=())
    name, _, prefix = url.removeprefix(_SCHEME).partition("/")
    store = MemoryStore(name)
    return store.child(prefix.rstrip("/")) if prefix.rstrip("/") else store


_Entry = tuple[bytes, str]


class _Space:
    """The objects that all stores of one name share."""

    __slots__ = ("__weakref__", "counter", "name", "objects")

    def __init__(self, name: str, objects: dict[str, _Entry]) -> None:
        self.name = name
        self.objects = objects
        self.counter = itertools.count(len(objects) + 1)

    @property
    def is_named(self) -> bool:
        return not self.name.startswith("~")


class _Registry:
    """The spaces of this process by name."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.named: dict[str, _Space] = {}
        self.anonymous: WeakValueDictionary[str, _Space] = WeakValueDictionary()

    def renew_guard(self) -> None:
        self.guard = threading.Lock()  # another thread may have held it at the fork


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.renew_guard)


def _new_space() -> _Space:
    with _registry.guard:
        space = _Space(f"~{secrets.token_hex(8)}", {})
        _registry.anonymous[space.name] = space
        return space


def _named_space(name: str) -> _Space:
    problem = name_problem(name) or ("it has a slash" if "/" in name else None)
    if problem is not None:
        msg = f"{name!r} is no name for a memory store, {problem}; write memory://name"
        raise SchemaError(msg)
    with _registry.guard:
        if not name.startswith("~"):
            return _registry.named.setdefault(name, _Space(name, {}))
        space = _registry.anonymous.get(name)
    if space is None:
        msg = f"memory://{name} is a store without a name of its own, and no longer in use here"
        raise SchemaError(msg)
    return space


def _known_space(name: str, content: dict[str, _Entry]) -> _Space:
    """Return the space without a name of its own; one with `content` if this process has none."""
    with _registry.guard:
        space = _registry.anonymous.get(name)
        if space is None:
            space = _registry.anonymous[name] = _Space(name, content)
        return space
