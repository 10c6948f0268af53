"""Requests to stores: puts with a look at what came of them, and many requests at a time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from streaming_core._store import LocalStore
from streaming_core._store._lock import is_locked_here
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming_core._store import Buffer, Store

__all__ = ["put_checked", "side_by_side"]

_AT_A_TIME = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


def side_by_side(act: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return what `act` gives for each item, in order, asking for several at a time."""
    items = list(items)
    if len(items) < 2:  # noqa: PLR2004 - nothing to do beside it
        return [act(item) for item in items]
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="streaming-requests") as pool:
        return list(pool.map(act, items))


def put_checked(
    store: Store, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False
) -> None:
    """Put an object; `StoreError` if the store keeps another number of bytes.

    A folder must be locked by this process. It is not if it was removed or replaced meanwhile: then
    what was put before is gone, and a new folder of that name may be somebody else's.
    """
    if isinstance(store, LocalStore) and not is_locked_here(os.fspath(store.path)):
        msg = (
            f"put {key!r} in {store.url}: the folder was removed or replaced while it was written; "
            "no index is published. Keep others away, and write again"
        )
        raise StoreError(msg)
    size = store.put(key, buffers, if_absent=if_absent).size
    wanted = sum(memoryview(buffer).nbytes for buffer in buffers)
    if size != wanted:
        msg = f"put {key!r} in {store.url}: sent {wanted} bytes, but the store keeps {size} of them"
        raise StoreError(msg)
