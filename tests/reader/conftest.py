"""Data sets for tests of reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from pathlib import Path


def write_ids(folder: Path, first: int, count: int, *, shard: int, **options: object) -> Path:
    """Write samples with the ids `first` and on, some in each shard."""
    columns = {"id": "int", "text": "str", "vector": "ndarray:float32:4"}
    record = 8 + 4 + 8 + 16
    with MDSWriter(
        out=folder,
        columns=columns,
        size_limit=shard * (record + 4) + 400,
        **options,  # type: ignore[arg-type]
    ) as writer:
        for number in range(first, first + count):
            vector = np.full(4, number, np.float32)
            writer.write({"id": number, "text": f"{number:08d}", "vector": vector})
    return folder


@pytest.fixture(scope="session")
def ids_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of 101 samples in several shards, ids from 0."""
    return write_ids(tmp_path_factory.mktemp("ids") / "a", 0, 101, shard=7)


@pytest.fixture(scope="session")
def more_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another data set of 60 samples with other ids, compressed."""
    folder = tmp_path_factory.mktemp("more") / "b"
    return write_ids(folder, 1000, 60, shard=11, compression="zstd")
