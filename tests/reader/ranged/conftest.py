"""Datasets for tests of ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.reader.ranged.making import write_blobs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 1,000 samples of some 5 to 20 kB in ten shards of a mebibyte."""
    folder = tmp_path_factory.mktemp("blobs") / "remote"
    return write_blobs(folder, 1000, size=10_000, shard=100, varied=True)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 300 samples in three shards whose records differ in size."""
    folder = tmp_path_factory.mktemp("plain") / "remote"
    return write_blobs(folder, 300, size=10_000, shard=100, varied=True)
