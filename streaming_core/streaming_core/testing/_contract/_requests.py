"""One call of each verb that takes a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._store import Store

__all__ = ["REQUESTS"]

REQUESTS: dict[str, Callable[[Store, str], object]] = {
    "get": lambda store, key: store.get(key),
    "get_ranges": lambda store, key: store.get_ranges(key, [(0, 1)]),
    "stream": lambda store, key: list(store.stream(key)),
    "head": lambda store, key: store.head(key),
    "put": lambda store, key: store.put(key, [b"hostile"]),
    "delete": lambda store, key: store.delete(key),
    "child": lambda store, key: store.child(key),
}
"""Verb -> a call with the store and a key."""
