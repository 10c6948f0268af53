"""Batches: sizes, order, missing values and workers, where torch-dataloader-utils and EasyData err.

What both do here was seen by running them: see `docs/comparison-any-format.md`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.reader.virtual.defects import ids_of, made, none_lost, write_files

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = 10_000
_BIG = 2**53
"""From here on not every integer is a float."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return ten files of a thousand rows, ten row groups each."""
    return write_files(tmp_path_factory.mktemp("rows") / "rows", [1000] * 10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"num_workers": 2}, marks=pytest.mark.process),
        pytest.param({"num_workers": 2, "persistent_workers": True}, marks=pytest.mark.process),
    ],
    ids=str,
)
def test_each_epoch_is_shuffled_anew(folder: Path, options: dict[str, Any]) -> None:
    """Over all files, in another order each time, with no order left within a batch.

    EasyData gives every epoch the same order, from less than half of the files at a time.
    torch-dataloader-utils does so with workers that live on, shuffles whole ranges of rows only, so
    that a batch is of one file, and with its buffer sorts the rows of each batch.
    """
    loader = made(folder, shuffle=True, **options)
    orders = []
    for _ in range(3):
        batches = [[int(i) for i in batch["id"]] for batch in loader]
        files = [len({number // 1000 for number in batch}) for batch in batches]
        assert np.mean(files) > 8
        rising = np.mean([np.mean(np.diff(batch) > 0) for batch in batches])
        assert 0.4 < rising < 0.6
        orders.append([number for batch in batches for number in batch])
        none_lost(orders[-1], range(_ROWS))
    same = [np.mean(np.equal(a, b)) for a, b in itertools.combinations(orders, 2)]
    assert max(same) < 0.01


@pytest.mark.parametrize(
    ("batch_size", "shuffle"),
    [(1, True), (64, False), (100, True), (400, False), (1500, True), (4000, False)],
)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_batches_have_the_size_asked_for(
    tmp_path: Path, batch_size: int, workers: int, shuffle: bool
) -> None:
    """Over files of 150 rows in groups of 70; the loader knows how many there are.

    torch-dataloader-utils gives 100, 50, 100, 50, … and has no length. EasyData drops a smaller
    last batch unless told otherwise: 300 of 1,500 rows with batches of 400.
    """
    source = write_files(tmp_path / "odd", [150] * 10, group=70)
    options = {"batch_size": batch_size, "num_workers": workers, "shuffle": shuffle}
    loader = made(source, **options)
    batches = [[int(i) for i in batch["id"]] for batch in loader]
    full, rest = divmod(1500, batch_size)
    whole = [batch_size] * full
    if workers < 2:  # with several workers the smaller batch is that of one of them
        assert [len(batch) for batch in batches] == whole + [rest] * (rest > 0)
    assert sorted(map(len, batches), reverse=True) == whole + [rest] * (rest > 0)
    assert len(loader) == len(batches)
    none_lost([number for batch in batches for number in batch], range(1500))
    dropped = made(source, **options, drop_last=True)
    assert [len(batch["id"]) for batch in dropped] == whole
    assert len(dropped) == full


@pytest.fixture(scope="module")
def missing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of large integers and booleans, of which each tenth is missing."""
    path = tmp_path_factory.mktemp("missing") / "a.parquet"
    numbers = [None if at % 10 == 0 else _BIG + at for at in range(100)]
    flags = [None if at % 10 == 0 else at % 2 == 0 for at in range(100)]
    table = pa.table(
        {
            "id": np.arange(100),
            "n": pa.array(numbers, pa.int64()),
            "flag": pa.array(flags, pa.bool_()),
        }
    )
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize(
    ("batch_format", "workers"),
    [("torch", 0), ("numpy", 0), pytest.param("numpy", 1, marks=pytest.mark.process)],
)
def test_missing_values_are_declared_never_guessed(
    missing: Path, batch_format: Any, workers: int
) -> None:
    """Filled or marked, numbers keep their type; where nothing is said, tensors are refused.

    torch-dataloader-utils makes floats of such integers, which changes large ones, and raises a
    `TypeError` for such booleans.
    """
    options = {"batch_format": batch_format, "num_workers": workers}
    (filled,) = made(missing, nulls={"n": -1, "flag": False}, **options)
    values = [-1 if at % 10 == 0 else _BIG + at for at in range(100)]
    assert filled["n"].tolist() == values
    assert str(filled["n"].dtype).endswith("int64")
    assert filled["flag"].dtype in {torch.bool, np.dtype(bool)}
    (marked,) = made(missing, nulls="mask", **options)
    for name in ("n", "flag"):
        assert marked[f"{name}.valid"].tolist() == [at % 10 != 0 for at in range(100)]
        assert marked[name].dtype == filled[name].dtype
    there = [at for at in range(100) if at % 10]
    assert [marked["n"].tolist()[at] for at in there] == [values[at] for at in there]
    if batch_format == "torch":
        with pytest.raises(SchemaError, match=r"column '(n|flag)' has values that are missing"):
            next(iter(made(missing, **options)))
    else:
        (plain,) = made(missing, **options)
        assert list(plain["n"])[:2] == [None, _BIG + 1]
    with pytest.raises(SchemaError, match="nulls='error'"):
        next(iter(made(missing, nulls="error", **options)))


@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "batch_format"), [("fork", "arrow"), ("forkserver", "numpy"), ("spawn", "arrow")]
)
def test_workers_may_be_started_in_any_way(folder: Path, method: str, batch_format: Any) -> None:
    """With every row, in the same order; nothing that cannot be pickled is in between.

    torch-dataloader-utils cannot send its own collate function to a spawned worker, and demands one
    for Arrow.
    """
    path = folder / "part-00.parquet"
    options: dict[str, Any] = {"batch_format": batch_format, "shuffle": True}
    wanted = list(made(path, **options))
    loader = made(path, num_workers=1, multiprocessing_context=method, **options)
    found = list(loader)
    for one, other in zip(found, wanted, strict=True):
        if batch_format == "arrow":
            assert one.equals(other)
        else:
            assert one["id"].tolist() == other["id"].tolist()
            assert list(one["text"]) == list(other["text"])
    none_lost(ids_of(made(path, shuffle=True)), range(1000))
