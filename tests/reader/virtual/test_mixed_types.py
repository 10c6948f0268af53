"""What a column becomes does not depend on which rows a batch happens to have."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from streaming_core import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from pathlib import Path

_ZONE = ZoneInfo("Europe/Berlin")
_DAY = dt.datetime(2024, 5, 1, 12, tzinfo=_ZONE)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))


def _dataset(*remotes: Path, **settings: Any) -> StreamingDataset:
    streams = [
        Stream(local=str(remote)) if remote.is_dir() else Stream(remote=str(remote))
        for remote in remotes
    ]
    return StreamingDataset(streams=streams, batch_size=8, shuffle=True, **settings)


def _write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def _mds(path: Path, columns: dict[str, str], rows: list[dict[str, Any]]) -> Path:
    with MDSWriter(out=str(path), columns=columns) as out:
        for row in rows:
            out.write(row)
    return path


@pytest.mark.parametrize("missing", [False, True])
def test_arrow_batches_have_the_types_of_the_source(tmp_path: Path, missing: bool) -> None:
    """Zones, times of day, dates and lists too, whether a value is missing in the batch or not."""
    count = 40
    fields: dict[str, pa.DataType] = {
        "zone": pa.timestamp("us", "Europe/Berlin"),
        "plain": pa.timestamp("ms"),
        "clock": pa.time64("us"),
        "short": pa.time32("ms"),
        "day": pa.date32(),
        "day64": pa.date64(),
        "span": pa.duration("us"),
        "half": pa.float16(),
        "flag": pa.bool_(),
        "money": pa.decimal128(9, 2),
        "vector": pa.list_(pa.float32(), 3),
    }
    values: dict[str, Any] = {
        "zone": _DAY,
        "plain": _DAY.replace(tzinfo=None),
        "clock": dt.time(1, 2, 3),
        "short": dt.time(1, 2, 3),
        "day": dt.date(2024, 1, 2),
        "day64": dt.date(2024, 1, 2),
        "span": dt.timedelta(seconds=3),
        "half": np.float16(1.5),
        "flag": True,
        "money": 3,
        "vector": [1.0, 2.0, 3.0],
    }
    rows = {
        name: pa.array(
            [None if missing and i % 10 == 3 else values[name] for i in range(count)], kind
        )
        for name, kind in fields.items()
    }
    path = tmp_path / "a.arrow"
    batch = pa.record_batch(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    batches = list(_dataset(path).batches(4, batch_format="arrow"))
    assert {batch.schema for batch in batches} == {batches[0].schema}
    whole = pa.concat_tables(batches)
    for name, kind in fields.items():
        assert whole.schema.field(name).type == kind
        found = sorted(map(str, whole.column(name).to_pylist()))
        assert found == sorted(map(str, batch.column(name).to_pylist()))


def _sources(folder: Path) -> dict[str, Path]:
    rows = [{"x": i, "s": f"m{i}", "f": i / 2} for i in range(100, 150)]
    return {
        "narrow": _write(
            folder / "narrow.parquet",
            x=pa.array(range(50), pa.int32()),
            s=[f"p{i}" for i in range(50)],
            f=pa.array([i / 2 for i in range(50)], pa.float32()),
        ),
        "wide": _write(
            folder / "wide.parquet",
            f=[i / 2 for i in range(50, 100)],
            s=[f"q{i}" for i in range(50, 100)],
            x=range(50, 100),
        ),
        "mds": _mds(folder / "mds", {"f": "float32", "s": "str", "x": "int64"}, rows),
    }


@pytest.mark.parametrize(
    "names", [("narrow", "wide"), ("wide", "narrow"), ("wide", "mds"), ("mds", "narrow", "wide")]
)
def test_sources_of_other_number_types_and_orders_mix(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Columns come in the first one's order, numbers in the type that holds all of them."""
    sources = _sources(tmp_path)
    dataset = _dataset(*(sources[name] for name in names))
    first = {"narrow": ["x", "s", "f"], "wide": ["f", "s", "x"], "mds": ["f", "s", "x"]}[names[0]]
    starts = {"narrow": 0, "wide": 50, "mds": 100}
    wanted = sorted(starts[name] + i for name in names for i in range(50))

    arrays = list(dataset.batches(8, batch_format="numpy"))
    assert {tuple(batch) for batch in arrays} == {tuple(first)}
    assert {batch["x"].dtype for batch in arrays} == {np.dtype("i8")}
    assert {batch["f"].dtype for batch in arrays} == {np.dtype("f8")}
    assert sorted(int(x) for batch in arrays for x in batch["x"]) == wanted
    for batch in arrays:
        assert (batch["f"] == batch["x"] / 2).all()
        assert [int(text[1:]) for text in batch["s"]] == batch["x"].tolist()

    tables = list(dataset.batches(8, batch_format="arrow"))
    whole = pa.concat_tables(tables)
    assert sorted(whole.column("x").to_pylist()) == wanted
    assert whole.schema.field("x").type == pa.int64()

    tensors = list(dataset.batches(8, batch_format="torch"))
    assert {batch["x"].dtype for batch in tensors} == {torch.int64}
    rows = sorted((row["x"], row["s"]) for row in dataset)
    assert [x for x, _ in rows] == wanted
    taken = dataset.take(list(range(0, dataset.num_samples, 7)))
    assert taken["x"].dtype == np.int64


def test_files_that_differ_in_the_order_of_columns_only_mix(tmp_path: Path) -> None:
    """Each batch has that of the first, whatever rows it begins with."""
    one = _write(tmp_path / "one.parquet", x=range(40), s=["a"] * 40)
    two = _write(tmp_path / "two.parquet", s=["b"] * 40, x=range(40, 80))
    batches = list(_dataset(one, two).batches(8, batch_format="arrow"))
    assert sorted(pa.concat_tables(batches).column("x").to_pylist()) == list(range(80))
    assert {tuple(batch.column_names) for batch in batches} == {("x", "s")}


def test_numbers_that_no_type_holds_come_one_by_one(tmp_path: Path) -> None:
    """No number becomes another one because of what it is mixed with."""
    big = 2**53 + 1
    one = _write(tmp_path / "one.parquet", x=[big] * 20)
    two = _write(tmp_path / "two.parquet", x=[0.5] * 20)
    dataset = _dataset(one, two)
    found = [value for batch in dataset.batches(8, batch_format="dict") for value in batch["x"]]
    assert sorted(found) == [0.5] * 20 + [big] * 20


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_nested_values_are_lists_in_each_batch_of_tensors(tmp_path: Path, workers: int) -> None:
    """Never turned about because those of one batch happen to be of one length."""
    talks = [[{"role": "user", "text": str(i)}] * (1 + i // 16 % 2) for i in range(64)]
    path = _write(
        tmp_path / "a.parquet",
        words=[["a", "b"]] * 64,
        talk=talks,
        money=pa.array([1] * 64, pa.decimal128(5, 2)),
        ids=[list(range(2 + i // 32)) for i in range(64)],
        vector=pa.array([[1.0, 2.0]] * 64, pa.list_(pa.float32(), 2)),
    )
    dataset = StreamingDataset(streams=[Stream(remote=str(path))], batch_size=8)
    seen = []
    for batch in StreamingDataLoader(dataset, batch_size=8, num_workers=workers):
        assert batch["words"] == [["a", "b"]] * 8
        assert len(batch["talk"]) == len(batch["money"]) == 8
        assert batch["vector"].shape == (8, 2)
        assert all(isinstance(ids, torch.Tensor) for ids in batch["ids"])
        seen += batch["talk"]
    assert seen == talks


def test_two_files_of_one_kind_mix_as_fast_columns(tmp_path: Path) -> None:
    """Mixed with MDS, texts and bytes are as they were written, empty and large ones too."""
    texts = ["", "é" * 3, "x" * 5000, "plain"]
    parquet = _write(tmp_path / "a.parquet", i=range(40), t=[texts[i % 4] for i in range(40)])
    mds = _mds(
        tmp_path / "mds",
        {"i": "int64", "t": "str"},
        [{"i": i, "t": texts[i % 4]} for i in range(40, 80)],
    )
    for batch in _dataset(parquet, mds).batches(16, batch_format="numpy"):
        for i, text in zip(batch["i"].tolist(), batch["t"], strict=True):
            assert text == texts[i % 4]
