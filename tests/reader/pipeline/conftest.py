"""Places for tests of whole pipelines: Parquet nobody converted, a cache of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.reader.pipeline.making import write_parquet

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is decoded in the test's folder."""
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def parquet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 250 rows in three files of several row groups."""
    return write_parquet(tmp_path_factory.mktemp("parquet") / "table", 250)
