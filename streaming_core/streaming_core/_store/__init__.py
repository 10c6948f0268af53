"""Named blobs in one place: the contract, its local and in-memory backends, and how to find one."""

from __future__ import annotations

from streaming_core._store._abilities import Pieces, version_of, with_timeout
from streaming_core._store._contract import Buffer, ByteRange, ObjectInfo, Parts, Store
from streaming_core._store._local import LocalStore
from streaming_core._store._lock import LOCK_NAME, FolderLock, release_all
from streaming_core._store._memory import MemoryStore
from streaming_core._store._options import StorageOptions
from streaming_core._store._policy import (
    Attempts,
    Caller,
    RateLimiter,
    RequestCounts,
    RequestPolicy,
    is_final,
)
from streaming_core._store._progress import (
    ProgressDeadline,
    last_progress,
    note_progress,
    too_slow,
)
from streaming_core._store._resolve import open_store, public_url, register_store

__all__ = [
    "LOCK_NAME",
    "Attempts",
    "Buffer",
    "ByteRange",
    "Caller",
    "FolderLock",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "Parts",
    "Pieces",
    "ProgressDeadline",
    "RateLimiter",
    "RequestCounts",
    "RequestPolicy",
    "StorageOptions",
    "Store",
    "is_final",
    "last_progress",
    "note_progress",
    "open_store",
    "public_url",
    "register_store",
    "release_all",
    "too_slow",
    "version_of",
    "with_timeout",
]
