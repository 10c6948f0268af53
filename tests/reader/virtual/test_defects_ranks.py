"""Ranks: what torch-dataloader-utils and EasyData give some of them too little or too much of.

What both do here was seen by running them: see `docs/comparison-any-format.md`. The recipe with
Accelerate itself is in `tests/reader/pipeline/test_frameworks.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pytest
from tests.reader.frameworks.launching import launch
from tests.reader.virtual.defect_jobs import SETTINGS
from tests.reader.virtual.defects import none_lost, ranks_of, write_files

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = 1000


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.framework
def test_accelerate_may_be_set_as_one_likes(tmp_path: Path) -> None:
    """Two processes over gloo, each of Accelerate's ways with loaders: every row once an epoch.

    torch-dataloader-utils delivers 500 of 1,000 rows as it comes, and without dispatching ends with
    `unsupported operand type(s) for *: 'NoneType' and 'int'`.
    """
    table = write_files(tmp_path / "rows", [100] * 10)
    ranks: list[Any] = launch(
        2, "tests.reader.virtual.defect_jobs", "prepared", tmp_path / "out", table
    )
    assert set(ranks[0]) == {f"{name} {workers}" for name in SETTINGS for workers in (0, 2)}
    for name in ranks[0]:
        for epoch in range(2):
            parts = [rank[name][epoch] for rank in ranks]
            assert [len(part) for part in parts] == [_ROWS // 2] * 2, name
            none_lost(parts[0] + parts[1], range(_ROWS))


_STRIPED_ROWS = 12_000


def _orc(folder: Path) -> Path:
    """Write an ORC file whose stripes, cut by bytes, have very different numbers of rows."""
    rng = np.random.default_rng(0)
    lengths = 1 + 600 * (np.arange(_STRIPED_ROWS) / _STRIPED_ROWS) ** 3
    texts = [bytes(rng.integers(0, 256, int(length), np.uint8)) for length in lengths]
    folder.mkdir()
    path = folder / "a.orc"
    table = pa.table({"id": np.arange(_STRIPED_ROWS), "b": texts})
    po.write_table(table, path, stripe_size=256 << 10, batch_size=64)
    file = po.ORCFile(path)
    rows = [file.read_stripe(at).num_rows for at in range(file.nstripes)]
    assert max(rows) > 4 * min(rows[:-1])
    return folder


_SOURCES = {
    "ten equal files": lambda folder: write_files(folder, [100] * 10),
    "unequal files": lambda folder: write_files(folder, [90, 410, 200, 300]),
    "one row group": lambda folder: write_files(folder, [_ROWS], group=_ROWS),
    "fewer files than ranks": lambda folder: write_files(folder, [999, 1]),
    "orc stripes": _orc,
}


def _each_rank_is_given_the_same(
    folder: Path, form: str, ranks: int, *, shuffle: bool, workers: int
) -> None:
    rows = _STRIPED_ROWS if form == "orc" else _ROWS
    loaders = ranks_of(
        folder,
        ranks,
        format=form,
        batch_size=64,
        columns=["id"],
        shuffle=shuffle,
        num_workers=workers,
    )
    parts = [[[int(i) for i in batch["id"]] for batch in loader] for loader in loaders]
    sizes = [[len(batch) for batch in part] for part in parts]
    assert sizes == [sizes[0]] * ranks
    assert [len(loader) for loader in loaders] == [len(sizes[0])] * ranks
    came = Counter(i for part in parts for batch in part for i in batch)
    assert set(came) == set(range(rows))
    # Where rows do not divide, so many come twice as fill up the last step, and no more.
    assert came.total() == ranks * -(-rows // ranks)


@pytest.mark.parametrize("source", _SOURCES)
def test_all_ranks_are_given_as_many_batches_of_the_same_sizes(tmp_path: Path, source: str) -> None:
    """Whatever files and row groups there are, and though rows may not divide.

    torch-dataloader-utils gives three ranks 40, 30 and 30 batches of ten equal files, of two ranks
    all of one row group to the first, and with its strategy that balances by size every row to
    both; EasyData's way, by files, gives 30 and 70. A rank that has no more batches than the others
    lets these wait for ever.
    """
    folder = _SOURCES[source](tmp_path / "source")
    form = "orc" if source.startswith("orc") else "parquet"
    for ranks in (2, 3, 4):
        for shuffle in (False, True):
            _each_rank_is_given_the_same(folder, form, ranks, shuffle=shuffle, workers=0)


@pytest.mark.process
@pytest.mark.parametrize(
    ("source", "ranks"), [("unequal files", 2), ("fewer files than ranks", 3), ("orc stripes", 4)]
)
def test_ranks_with_workers_are_given_as_many_batches_as_those_without(
    tmp_path: Path, source: str, ranks: int
) -> None:
    """One rank has a worker, the others none."""
    folder = _SOURCES[source](tmp_path / "source")
    form = "orc" if source.startswith("orc") else "parquet"
    _each_rank_is_given_the_same(folder, form, ranks, shuffle=True, workers=1)
