"""What a batch is, for data that nobody converted: every format, size and share of ranks."""

from __future__ import annotations

import itertools
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.reader.pipeline.making import write_parquet

from streaming_core import create_dataloader
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ["torch", "numpy", "jax", "arrow", "dict", "rows"]

_process = pytest.mark.process


def _values(batch: Any, name: str) -> list[Any]:
    """Return a column's values whatever the format is."""
    if isinstance(batch, list):
        values: Any = [row[name] for row in batch]
    elif isinstance(batch, pa.Table):
        values = batch.column(name).to_pylist()
    else:
        values = batch[name]
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


@pytest.mark.parametrize(
    ("batch_format", "workers"),
    [
        *((name, 0) for name in FORMATS),
        *(pytest.param(name, 2, marks=_process) for name in ("torch", "jax", "arrow", "rows")),
    ],
)
def test_every_format_holds_the_values_of_the_files(
    parquet_folder: Path, batch_format: Any, workers: int
) -> None:
    """In order, in batches of the size asked for, whatever row groups and files they come from."""
    columns = ["id", "x", "even", "text", "vector"]
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet",
        batch_size=32,
        columns=columns,
        batch_format=batch_format,
        num_workers=workers,
    )
    batches = list(loader)
    sizes = [len(_values(batch, "id")) for batch in batches]
    assert sizes == [32] * 7 + [26]
    table = pq.read_table(parquet_folder, columns=columns)
    for name in columns:
        found = list(itertools.chain(*(_values(batch, name) for batch in batches)))
        assert found == table.column(name).to_pylist(), name
    assert loader.state_dict() is not None


def test_jax_takes_every_array_as_it_is(parquet_folder: Path) -> None:
    """Contiguous numbers of the machine's order, none of them objects; times count their unit."""
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet",
        batch_size=40,
        shuffle=True,
        batch_format="jax",
    )
    for batch in loader:
        for name in ("id", "x", "even", "vector", "time"):
            array = batch[name]
            assert type(array) is np.ndarray
            assert array.flags.c_contiguous
            assert array.dtype.isnative
            assert array.dtype.kind in "biuf"
        assert batch["vector"].shape == (len(batch["id"]), 4)
        assert batch["time"].tolist() == batch["id"].tolist()
        assert all(isinstance(value, np.ndarray) for value in batch["list"])
        assert isinstance(batch["text"], list)


@pytest.mark.parametrize("ragged", ["padded", "offsets"])
def test_jax_gets_lists_of_different_length_as_arrays(ids_folder: Path, ragged: Any) -> None:
    """Where it is asked to, with lengths or offsets beside them."""
    loader, _ = create_dataloader(ids_folder, batch_size=10, batch_format="jax", ragged=ragged)
    texts = next(iter(loader))["text"]
    assert all(type(part) is np.ndarray and part.flags.c_contiguous for part in texts)
    assert texts._fields[1] in {"lengths", "offsets"}


def test_jax_refuses_numbers_that_are_missing(tmp_path: Path) -> None:
    """And says which column, and what to do; a fill value does."""
    pq.write_table(pa.table({"a": [1, None, 3]}), tmp_path / "a.parquet")
    loader, _ = create_dataloader(tmp_path / "a.parquet", batch_size=3, batch_format="jax")
    with pytest.raises(SchemaError, match=r"'a' has 1 values that are missing.*nulls="):
        next(iter(loader))
    loader, _ = create_dataloader(
        tmp_path / "a.parquet", batch_size=3, batch_format="jax", nulls={"a": -1}
    )
    assert next(iter(loader))["a"].tolist() == [1, -1, 3]


def test_an_arrow_batch_takes_along_no_more_than_itself(tmp_path: Path) -> None:
    """Though batches are decoded many at a time, and lists are slices of what is decoded."""
    table = pa.table({"l": [list(range(50))] * 4000, "n": [None, 1] * 2000})
    pq.write_table(table, tmp_path / "a.parquet")
    _, dataset = create_dataloader(tmp_path / "a.parquet", batch_size=10)
    batches = list(dataset.batches(batch_format="arrow"))
    assert pa.concat_tables(batches).to_pylist() == table.to_pylist()
    assert max(len(pickle.dumps(batch)) for batch in batches) < 3 * batches[0].nbytes


def _check_ranks(
    folder: Path, rows: int, ranks: int, workers: int, *, drop_last: bool, shuffle: bool
) -> None:
    """Assert that all ranks are given batches of the same sizes, and all rows."""
    seen: list[list[list[int]]] = []
    for rank in range(ranks):
        loader, dataset = create_dataloader(
            f"{folder}/*.parquet",
            batch_size=16,
            columns=["id"],
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=workers if rank == 0 else 0,
            rank=rank,
            num_ranks=ranks,
            ranks_per_node=ranks,
        )
        seen.append([batch["id"].tolist() for batch in loader])
        assert len(dataset) == -(-rows // ranks)
    sizes = [[len(batch) for batch in batches] for batches in seen]
    assert sizes == [sizes[0]] * ranks
    assert set(sizes[0][:-1]) <= {16}
    found = [i for batches in seen for batch in batches for i in batch]
    if drop_last:
        assert set(sizes[0]) == {16}
        assert len(found) == ranks * (-(-rows // ranks) // 16) * 16
    else:
        assert set(found) == set(range(rows))
        assert len(found) == ranks * -(-rows // ranks)


@pytest.mark.parametrize("rows", [250, 251, 96])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_all_ranks_are_given_as_many_batches(tmp_path: Path, rows: int, ranks: int) -> None:
    """Of the same sizes, shuffled or not; no row is left out but those of a dropped last batch."""
    folder = write_parquet(tmp_path / "table", rows)
    for drop_last, shuffle in ((False, True), (True, True), (False, False)):
        _check_ranks(folder, rows, ranks, 0, drop_last=drop_last, shuffle=shuffle)


@_process
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_with_and_without_workers_are_given_as_many_batches(
    tmp_path: Path, drop_last: bool
) -> None:
    """However many rows are left over."""
    for rows, ranks in ((250, 4), (251, 3), (96, 2)):
        folder = write_parquet(tmp_path / str(rows), rows)
        _check_ranks(folder, rows, ranks, 2, drop_last=drop_last, shuffle=True)


def test_torch_batches_are_tensors(parquet_folder: Path) -> None:
    """Lists of one size in two dimensions, times as the numbers they count."""
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet", batch_size=8, columns=["vector", "time", "even"]
    )
    batch = next(iter(loader))
    assert batch["vector"].shape == (8, 4)
    assert batch["time"].tolist() == list(range(8))
    assert batch["even"].dtype == torch.bool


@pytest.mark.parametrize(
    ("batch_format", "workers"),
    [("torch", 0), ("numpy", 0), ("jax", 0), pytest.param("torch", 2, marks=_process)],
)
def test_what_is_no_number_stays_in_arrow_if_asked_to(
    tmp_path: Path, batch_format: Any, workers: int
) -> None:
    """Texts, decimals, lists and nested values, missing ones too; numbers are arrays as ever."""
    table = pa.table(
        {
            "id": list(range(100)),
            "text": [None if i % 7 == 0 else f"wört {i}" for i in range(100)],
            "price": pa.array([Decimal(i) / 4 for i in range(100)], pa.decimal128(9, 2)),
            "list": [list(range(i % 5)) for i in range(100)],
            "nested": [{"a": [{"b": str(i)}]} for i in range(100)],
            "raw": [b"\0" * (i % 3000) for i in range(100)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    loader, dataset = create_dataloader(
        tmp_path / "a.parquet",
        batch_size=16,
        batch_format=batch_format,
        ragged="arrow",
        shuffle=True,
        num_workers=workers,
    )
    for batch in loader:
        ids = batch["id"].tolist()
        for name in table.column_names[1:]:
            assert isinstance(batch[name], pa.Array), name
            assert batch[name].to_pylist() == [table.column(name)[i].as_py() for i in ids]
            assert len(pickle.dumps(batch[name])) < 2 * batch[name].nbytes + 4096
    assert dataset.take([5, 0], ragged="arrow")["text"].to_pylist() == ["wört 5", None]


def test_numbers_that_are_missing_are_refused_in_arrow_too(tmp_path: Path) -> None:
    """A column must not be a tensor in one batch and something else in the next."""
    pq.write_table(pa.table({"a": [1, None, 3]}), tmp_path / "a.parquet")
    for batch_format in ("torch", "jax"):
        loader, _ = create_dataloader(
            tmp_path / "a.parquet", batch_size=3, batch_format=batch_format, ragged="arrow"
        )
        with pytest.raises(SchemaError, match=r"'a' has .*missing"):
            next(iter(loader))


def test_a_transforms_texts_stay_in_arrow_too(parquet_folder: Path) -> None:
    """As its rows become what such columns would have become."""
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet",
        batch_size=4,
        columns=["text"],
        transform=dict,
        ragged="arrow",
    )
    assert next(iter(loader))["text"].to_pylist() == [f"wört {i}" for i in range(4)]
