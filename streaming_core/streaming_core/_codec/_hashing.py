"""Hashes by the names that an index uses."""

from __future__ import annotations

import hashlib
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import xxhash

from streaming_core._codec._buffers import Buffer, byte_view
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Hasher", "check_hashes", "digest", "digests", "hash_names"]


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def _hashes() -> Mapping[str, Callable[[], _Hash]]:
    found: dict[str, Callable[[], _Hash]] = {
        "xxh32": xxhash.xxh32,
        "xxh64": xxhash.xxh64,
        "xxh128": xxhash.xxh3_128,
        "xxh3_64": xxhash.xxh3_64,
        "xxh3_128": xxhash.xxh3_128,
    }
    for name in (
        *("blake2b", "blake2s", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"),
        *("sha3_224", "sha3_256", "sha3_384", "sha3_512"),
    ):
        # They find damage, not malice; said so, they work on hosts that restrict md5 and sha1.
        found[name] = partial(hashlib.new, name, usedforsecurity=False)
    return MappingProxyType(dict(sorted(found.items())))


_HASHES = _hashes()


class Hasher:
    """Several hashes of one stream of bytes.

    Example:
        >>> hasher = Hasher(["md5", "xxh64"])
        >>> hasher.update(b"abc")
        >>> hasher.hexdigests()
        {'md5': '900150983cd24fb0d6963f7d28e17f72', 'xxh64': '44bc2cf5ad770999'}
    """

    __slots__ = ("_hashes",)

    def __init__(self, names: Iterable[str]) -> None:
        """Start the hashes `names`; `SchemaError` where one is unknown."""
        self._hashes = {name: _HASHES[name]() for name in check_hashes(names)}

    def update(self, buffer: Buffer) -> None:
        """Add bytes; the interpreter's lock is released while large ones are hashed."""
        view = byte_view(buffer)
        # Each hash takes all at once: dividing would save little memory traffic and cost a wait for
        # the lock per piece.
        for state in self._hashes.values():
            state.update(view)

    def hexdigests(self) -> dict[str, str]:
        """Return the lower-case hex digests so far, in order of their names."""
        return {name: state.hexdigest() for name, state in self._hashes.items()}


def hash_names() -> tuple[str, ...]:
    """Return the names of all hashes, sorted.

    Example:
        >>> len(hash_names()), hash_names()[-1]
        (17, 'xxh64')
    """
    return tuple(_HASHES)


def check_hashes(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return `names` sorted and without repetition; `SchemaError` where one is unknown.

    Example:
        >>> check_hashes(["xxh64", "md5", "md5"])
        ('md5', 'xxh64')
    """
    if isinstance(names, str):
        msg = f"hashes must be a list of names, came the text {names!r}; give [{names!r}]"
        raise SchemaError(msg)
    given = tuple(names or ())
    unknown = [name for name in given if name not in _HASHES]
    if unknown:
        msg = f"no hash {', '.join(map(repr, unknown))}; valid are {', '.join(_HASHES)}"
        raise SchemaError(msg)
    return tuple(sorted(set(given)))


def digests(names: Iterable[str], buffers: Iterable[Buffer]) -> dict[str, str]:
    """Return the lower-case hex digest of all bytes of `buffers` by each hash, taking them once.

    Example:
        >>> digests(["xxh32"], [b"a", b"bc"])
        {'xxh32': '32d153ff'}
    """
    hasher = Hasher(names)
    for buffer in buffers:
        hasher.update(buffer)
    return hasher.hexdigests()


def digest(name: str, buffers: Iterable[Buffer]) -> str:
    """Return the lower-case hex digest of all bytes of `buffers`.

    Example:
        >>> digest("md5", [b"abc"])
        '900150983cd24fb0d6963f7d28e17f72'
    """
    return digests([name], buffers)[name]
