"""Rows of decoded files: alone, by columns, from several files at once, each time the same."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core._columns import Fixed, Ragged
from streaming_core._foreign import Foreign
from streaming_core._format import gather, gather_none
from streaming_core._format._arrow import ArrowShard, open_arrow_shard
from streaming_core._index import FileInfo, ShardInfo, ShardSchema
from streaming_core._virtual._normal import normal_schema, normal_table
from streaming_core.errors import MissingColumnError, SchemaError, ShardCorruptError


def _batch(rows: int, *, nulls: bool) -> pa.RecordBatch:
    rng = np.random.default_rng(rows)
    lost = rng.random(rows) < 0.2 if nulls else np.zeros(rows, bool)
    numbers = np.arange(rows)
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(hours=int(n)) for n in numbers]  # noqa: DTZ001 - as Arrow has it
    table = pa.table(
        {
            "int": pa.array(numbers, mask=lost),
            "small": pa.array(numbers.astype(np.int8), mask=lost),
            "float": pa.array(rng.random(rows), mask=lost),
            "half": pa.array(rng.random(rows).astype(np.float16), mask=lost),
            "bool": pa.array(numbers % 3 == 0, mask=lost),
            "text": pa.array([f"{n} {'é' * (n % 4)}" for n in numbers], mask=lost),
            "bytes": pa.array([bytes(n % 5) for n in numbers], mask=lost),
            "vector": pa.array(rng.random((rows, 3)).tolist(), pa.list_(pa.float32(), 3)),
            "list": pa.array([list(range(n % 4)) for n in range(rows)], mask=lost),
            "words": pa.array([["a"] * (n % 3) for n in range(rows)], mask=lost),
            "pair": pa.array([{"a": n} for n in range(rows)], mask=lost),
            "money": pa.array(
                [decimal.Decimal(n) / 4 for n in range(rows)], pa.decimal128(10, 2), mask=lost
            ),
            "moment": pa.array(moments, pa.timestamp("us"), mask=lost),
            "day": pa.array([m.date() for m in moments], pa.date32(), mask=lost),
            "clock": pa.array([m.time() for m in moments], pa.time32("s"), mask=lost),
        }
    )
    schema = normal_schema(table.schema, "none")
    return normal_table(table, schema, "none", {}, "here")


def _shard(batch: pa.RecordBatch, number: int = 0) -> ArrowShard:
    return _opened(batch, _file(batch), number)


def _file(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _opened(batch: pa.RecordBatch, data: bytes, number: int) -> ArrowShard:
    names = tuple(batch.schema.names)
    schema = ShardSchema("arrow", names, tuple(str(field.type) for field in batch.schema))
    info = ShardInfo(number, batch.num_rows, schema, FileInfo(f"{number}.arrow", 1, {}))
    return open_arrow_shard(info, data)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and np.array_equal(one, other) and one.dtype == other.dtype
    return type(one) is type(other) and (one == other or one is other)


def _assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert _same(value, wanted[name]), (name, value, wanted[name])


_SHARDS = {
    nulls: [_shard(_batch(40 + n, nulls=bool(nulls)), n) for n in range(3)] for nulls in (0, 1)
}


@settings(max_examples=examples(60))
@given(
    nulls=st.sampled_from([0, 1]),
    places=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 39)), max_size=30),
    copy=st.booleans(),
)
def test_gathering_gives_what_single_rows_are(
    nulls: int, places: list[tuple[int, int]], copy: bool
) -> None:
    """From any shards in any order, value for value and type for type."""
    shards = _SHARDS[nulls]
    which = np.array([shard for shard, _ in places], np.int64)
    rows = np.array([row for _, row in places], np.int64)
    columns = gather(shards, which, rows, copy=copy)
    assert len(columns) == len(places)
    for found, (shard, row) in zip(columns.rows(), places, strict=True):
        _assert_same(found, shards[shard].row(row))


@pytest.mark.parametrize("nulls", [0, 1])
@pytest.mark.parametrize("copy", [False, True])
def test_rows_side_by_side_are_the_same(nulls: int, copy: bool) -> None:
    """They come as views, if these are wanted, and as own values otherwise."""
    shard = _SHARDS[nulls][1]
    rows = np.arange(7, 30)
    columns = gather([shard], np.zeros(len(rows), np.int64), rows, copy=copy)
    for found, row in zip(columns.rows(), rows.tolist(), strict=True):
        _assert_same(found, shard.row(row))
    numbers = columns["vector"]
    assert isinstance(numbers, Fixed)
    assert numbers.values.flags.writeable is copy
    part = columns.slice(3, 9).rows()
    assert all(_same(p["text"], shard.row(10 + i)["text"]) for i, p in enumerate(part))


def test_what_columns_are() -> None:
    """Blocks and texts where nothing is missing; Arrow's own form for all else."""
    full, lacking = (gather([_SHARDS[n][0]], np.zeros(9, np.int64), np.arange(9)) for n in (0, 1))
    assert isinstance(full["text"], Ragged)
    assert isinstance(full["list"], Ragged)
    assert isinstance(full["pair"], Foreign)
    assert isinstance(lacking["int"], Foreign)
    moment = full["moment"]
    assert isinstance(moment, Fixed)
    assert moment.values.dtype == "M8[us]"
    assert [
        str(v)
        for v in gather([_SHARDS[0][0]], np.zeros(1, np.int64), np.array([2]))["day"].to_list()
    ] == ["2024-01-01"]


def test_arrow_values_travel_without_what_they_are_cut_from() -> None:
    """A few of many make a small pickle."""
    array = pa.array([{"a": n, "b": str(n)} for n in range(50_000)])
    column = Foreign(array).slice(100, 110)
    told = pickle.dumps(column)
    assert len(told) < 5000
    assert pickle.loads(told).to_list() == column.to_list()


def test_a_choice_of_columns_and_those_of_no_rows() -> None:
    """Names that are none are told."""
    shard = _SHARDS[0][0]
    one = gather([shard], np.zeros(2, np.int64), np.array([1, 0]), ["text", "int"])
    assert list(one.columns) == ["text", "int"]
    assert one["int"].to_list() == [1, 0]
    with pytest.raises(MissingColumnError, match="no column 'x'"):
        gather([shard], np.zeros(1, np.int64), np.array([1]), ["x"])
    schema = ShardSchema("arrow", ("a", "b"), ("int64", "large_string"))
    nothing = gather_none(schema)
    assert nothing["a"].to_list() == nothing["b"].to_list() == []


def test_shards_of_other_columns_form_no_batch() -> None:
    """The error says which."""
    other = _shard(pa.record_batch({"x": [1, 2]}))
    with pytest.raises(SchemaError, match=r"sample 1 of 2 has the columns \['x'\]"):
        gather([_SHARDS[0][0], other], np.array([0, 1]), np.array([0, 0]))


@pytest.mark.parametrize("keep", [0, 5, 8, 100, 1000, -1, -10])
def test_a_damaged_copy_is_an_error(keep: int) -> None:
    """Of which its maker makes another."""
    batch = _batch(50, nulls=True)
    data = _file(batch)
    schema = ShardSchema("arrow", tuple(batch.schema.names), ("x",) * batch.num_columns)
    info = ShardInfo(0, 50, schema, FileInfo("0.arrow", 1, {}))
    with pytest.raises(ShardCorruptError, match=r"0\.arrow"):
        open_arrow_shard(info, data[:keep])
    with pytest.raises(ShardCorruptError, match="the index says 49"):
        ArrowShard(ShardInfo(0, 49, schema, FileInfo("0.arrow", 1, {})), data)


def _varying(rng: np.random.Generator, rows: int, most: int) -> pa.RecordBatch:
    sizes = rng.integers(0, most + 1, rows)
    data = [rng.bytes(size) for size in sizes.tolist()]
    return pa.record_batch(
        {
            "bytes": pa.array(data, pa.large_binary()),
            "text": pa.array([one.hex() for one in data], pa.large_string()),
            "list": pa.array(
                [rng.random(s).astype("f8") for s in sizes], pa.large_list(pa.float64())
            ),
        }
    )


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize(("most", "wanted"), [(0, 50), (3, 5000), (40, 5000), (70_000, 60)])
def test_values_of_any_size_are_those_that_arrow_takes(shards: int, most: int, wanted: int) -> None:
    """Small, large and empty ones, from one file or several, in any order and more than once."""
    rng = np.random.default_rng(most + shards)
    counts = rng.integers(1, 400 if most < 1000 else 40, shards)
    batches = [_varying(rng, int(count), most) for count in counts]
    which = rng.integers(0, shards, wanted)
    rows = rng.integers(0, counts[which])
    rows[: shards * 2] = np.concatenate([np.zeros(shards), counts - 1])[: len(rows)]
    which[: shards * 2] = np.tile(np.arange(shards), 2)[: len(rows)]
    found = gather([_shard(batch, n) for n, batch in enumerate(batches)], which, rows)
    table = pa.Table.from_batches(batches).combine_chunks()
    starts = np.concatenate([[0], np.cumsum(counts)])
    right = table.take(pa.array(starts[which] + rows))
    for name in table.column_names:
        values, wanted_values = found[name].to_list(), right.column(name).to_pylist()
        if name == "list":
            assert {value.dtype for value in values} == {np.dtype("f8")}
            values = [value.tolist() for value in values]
        assert values == wanted_values


@pytest.mark.parametrize("end", [-1, 1 << 40])
def test_offsets_that_lead_out_of_the_file_are_an_error(end: int) -> None:
    """Whatever lies behind it in memory is never given."""
    batch = pa.record_batch({"x": pa.array([b"012", b"345", b"678"], pa.large_binary())})
    sound, broken = (np.array([0, 3, at, 9], np.int64).tobytes() for at in (6, end))
    data = _file(batch)
    assert data.count(sound) == 1
    shard = _opened(batch, data.replace(sound, broken), 4)
    for row in (1, 2):
        with pytest.raises(ShardCorruptError, match=rf"4\.arrow: row {row}"):
            gather([shard], np.zeros(2, np.int64), np.array([row, 0]))
    assert gather([shard], np.zeros(2, np.int64), np.array([0, 0]))["x"].to_list() == [b"012"] * 2
