"""Puts with a look at what came of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streaming_core._store import LocalStore
from streaming_core._store._lock import is_locked_here
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._store import Buffer, Store

__all__ = ["put_checked"]


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
