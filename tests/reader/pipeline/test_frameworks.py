"""Files that nobody converted under Accelerate and Lightning: every row, on the right rank."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.frameworks.launching import launch
from tests.reader.pipeline.jobs import BATCH
from tests.reader.pipeline.making import write_parquet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]

_JOBS = "tests.reader.pipeline.jobs"
_ROWS = 1000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a thousand rows."""
    return write_parquet(tmp_path_factory.mktemp("jobs") / "table", _ROWS, files=5)


def _counted(parts: list[list[list[int]]]) -> Counter[int]:
    return Counter(i for part in parts for batch in part for i in batch)


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate_leaves_a_prepared_loader_correct(
    table: Path, tmp_path: Path, ranks: int
) -> None:
    """All of a thousand rows once each epoch, as many batches on each rank, resumed exactly.

    With a filter too, where ranks have different numbers of rows and go on in step all the same.
    """
    by_rank: list[Any] = launch(ranks, _JOBS, "accelerate", tmp_path / "out", table)
    once = Counter(range(_ROWS))
    for workers in ("0", "2"):
        found = [rank[workers] for rank in by_rank]
        for epoch in range(2):
            assert _counted([rank["epochs"][epoch] for rank in found]) == once
        assert found[0]["epochs"][0] != found[0]["epochs"][1]
        for rank in found:
            assert [len(epoch) for epoch in rank["epochs"]] == [_ROWS // ranks // BATCH] * 2
            assert rank["length"] == _ROWS // ranks // BATCH
            assert {len(b) for epoch in rank["epochs"] for b in epoch} == {BATCH}
        filtered = [rank[f"filtered {workers}"] for rank in by_rank]
        assert _counted(filtered) == Counter(range(0, _ROWS, 3))
        assert {rank[f"steps {workers}"] for rank in by_rank} == {_ROWS // ranks // BATCH}
    assert by_rank[0]["0"]["epochs"] == by_rank[0]["2"]["epochs"]
    assert _counted([rank["resumed"] for rank in by_rank]) == once
    assert [rank["world"] for rank in by_rank] == [ranks] * ranks


def test_lightning_gives_every_row_once(table: Path, tmp_path: Path) -> None:
    """In each epoch, in an order of its own."""
    by_rank: list[Any] = launch(2, _JOBS, "lightning", tmp_path / "out", table)
    for epoch in range(2):
        assert _counted([rank[epoch] for rank in by_rank]) == Counter(range(_ROWS))
    for rank in by_rank:
        assert list(itertools.chain(*rank[0])) != list(itertools.chain(*rank[1]))
