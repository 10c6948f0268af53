"""From a URL or path to the store that serves it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from streaming_core._extras import require
from streaming_core._store._contract import Store
from streaming_core._store._local import LocalStore
from streaming_core.errors import SchemaError

__all__ = ["open_store", "public_url", "register_store"]

StoreFactory = Callable[[str], Store]

# Two letters at least, because one is a drive; one slash will do, because file:/x and dbfs:/x do.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SCHEME_NAME = re.compile(r"[a-z][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class _Backend:
    """Where the factory of a scheme is found when it is first needed."""

    module: str
    factory: str
    extra: str


_BACKENDS = {
    "file": _Backend("streaming_core._store._local", "local_from_url", "all"),
    "memory": _Backend("streaming_core._store._memory", "memory_from_url", "all"),
}
_registered: dict[str, StoreFactory] = {}


def open_store(url_or_path: str | os.PathLike[str]) -> Store:
    """Return the store that `url_or_path` names; nothing is contacted or made yet.

    A path, or `file:///path` with percent escapes, gives a `LocalStore`; `memory://name` the
    `MemoryStore` of that name; other schemes what was registered for them. In a path a leading
    `~` means the home folder.

    Raises:
        SchemaError: The text is empty or its scheme is unknown.
        MissingExtraError: The scheme needs a package that is not installed.

    Example:
        >>> open_store("/data/my set"), open_store("memory://example")
        (LocalStore('/data/my set'), MemoryStore('example'))
    """
    text = os.fspath(url_or_path)
    if not text:
        msg = "the place of a store is empty; give a folder or a URL such as s3://bucket/folder"
        raise SchemaError(msg)
    match = _SCHEME.match(text) if isinstance(url_or_path, str) else None
    if match is None:
        return LocalStore(Path(text).expanduser() if isinstance(url_or_path, str) else text)
    return _factory(match[1].lower(), text)(text)


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Let `open_store` call `factory` with every URL of `scheme`; replaces an earlier one.

    The registration holds for this process. A worker process that is started anew, not forked,
    needs it again; stores themselves travel by pickle.

    Example:
        >>> from streaming_core._store import MemoryStore
        >>> register_store("example", lambda url: MemoryStore(url.removeprefix("example://")))
        >>> open_store("example://a")
        MemoryStore('a')
    """
    if _SCHEME_NAME.fullmatch(scheme) is None:
        msg = (
            f"{scheme!r} is no scheme: at least two of a-z, 0-9, '+', '.' and '-', a letter first, "
            "and without '://'"
        )
        raise SchemaError(msg)
    _registered[scheme] = factory


def public_url(url: str) -> str:
    """Return `url` without what may be secret: user, password, query and fragment.

    Example:
        >>> public_url("s3://key:secret@bucket/folder?token=1")
        's3://bucket/folder'
    """
    head, slashes, rest = url.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    return head + slashes + host.rpartition("@")[2] + slash + path


def _factory(scheme: str, url: str) -> StoreFactory:
    factory = _registered.get(scheme)
    if factory is not None:
        return factory
    backend = _BACKENDS.get(scheme)
    if backend is None:
        known = ", ".join(f"{name}://" for name in sorted({*_BACKENDS, *_registered}))
        msg = (
            f"no store is known for {public_url(url)!r}: the scheme is {scheme!r}, known are "
            f"{known} and plain paths. Add one with register_store({scheme!r}, factory); for a "
            f"folder of that name write './{scheme}:/…'"
        )
        raise SchemaError(msg)
    module = require(backend.module, extra=backend.extra, purpose=f"the scheme {scheme}://")
    return cast("StoreFactory", getattr(module, backend.factory))
