"""What the writer's tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import load_index, open_store
from streaming_core._read import SUMS, iterate_samples, parse_sums

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Files = dict[str, bytes]


@pytest.fixture
def read_all() -> Callable[..., list[dict[str, Any]]]:
    """Return a function that reads every sample of a folder or URL, all hashes checked."""

    def read(target: Path | str, **options: Any) -> list[dict[str, Any]]:
        store = open_store(target)
        table = load_index(target)
        if SUMS in {info.key for info in store.list()}:
            sums = parse_sums(store.get(SUMS))
            stored = [table.shard(i).zip or table.shard(i).raw for i in range(table.num_shards)]
            assert {file.basename for file in stored} <= set(sums)
        return list(iterate_samples(store, table, **options))

    return read


@pytest.fixture
def files() -> Callable[[Path], Files]:
    """Return a function that maps every file below a folder to its bytes, hidden ones included."""

    def tree(folder: Path) -> Files:
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}

    return tree
