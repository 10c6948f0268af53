"""Files that lie among the shards and belong to none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streaming_core._index import ROLES
from streaming_core._store._temp import is_temp
from streaming_core.cli._check import Finding
from streaming_core.cli._place import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming_core._index import ShardTable
    from streaming_core._store import LocalStore

__all__ = ["file_names", "stray_files", "temp_files"]

_SHARD_FILE: Final = re.compile(r"shard\.\d{5,}\..+")


def file_names(table: ShardTable) -> set[str]:
    """Return the names of all files of the data set, compressed and not."""
    return {name for role in ROLES for name in table.basenames(role) if name}


def stray_files(keys: Iterable[str], table: ShardTable) -> Iterator[Finding]:
    """Yield a warning for each key that looks like a shard's file and is not in the index.

    Only folders are looked at in which the data set has files, or that have no index of their own.
    """
    keys = sorted(keys)
    known = file_names(table)
    other = {key.removesuffix(INDEX) for key in keys if key.endswith(f"/{INDEX}")}
    other -= {name[: name.rfind("/") + 1] for name in known}
    for key in keys:
        folder = key[: key.rfind("/") + 1]
        if folder not in other and key not in known and _SHARD_FILE.fullmatch(key[len(folder) :]):
            yield Finding("stray", "the index does not name this file", file=key)


def temp_files(store: LocalStore) -> Iterator[Finding]:
    """Yield a warning for each temporary file that writers left in the folder or are writing."""
    for path in sorted(store.path.rglob(".*.tmp")):
        if is_temp(path.name):
            text = "a file that a writer has begun; the next writer removes it if that one is gone"
            yield Finding("temporary", text, file=path.relative_to(store.path).as_posix())
