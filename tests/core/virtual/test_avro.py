"""Avro: equal to what fastavro reads of the same files."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.virtual.avro_files import CODECS, NAMES, SCHEMA, SYNC, fastavro, row_of, written
from tests.core.virtual.kind_reading import Opened, decoded
from tests.profiles import examples

from streaming_core._virtual import open_kind
from streaming_core._virtual._kinds import kind_of_name
from streaming_core._virtual._kinds._avro_schema import arrow_field, parse_schema


def _plain(value: Any) -> Any:
    """Return a value of ours as fastavro would: maps as dicts, a UUID as one."""
    if isinstance(value, dict):
        return {
            key: dict(one) if key == "map" else UUID(one) if key == "uuid" else _plain(one)
            for key, one in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


@settings(max_examples=examples(60))
@given(
    rows=st.integers(0, 300),
    per_block=st.integers(1, 100),
    codec=st.sampled_from(sorted(CODECS)),
    columns=st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, unique=True)),
)
def test_units_have_all_rows_once_in_order(
    rows: int, per_block: int, codec: str, columns: list[str] | None
) -> None:
    """Whatever was written how, and with whichever columns."""
    data = [row_of(n) for n in range(rows)]
    opened = Opened("avro", written(SCHEMA, data, codec, per_block))
    assert opened.rows == rows
    wanted = [{k: v for k, v in row.items() if columns is None or k in columns} for row in data]
    assert _plain(opened.read(columns).to_pylist()) == wanted


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_files_that_fastavro_wrote(codec: str) -> None:
    """Many blocks in few units, and equal to its own reading."""
    rows = [row_of(n) for n in range(600)]
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, rows, codec=codec, sync_interval=800)
    opened = Opened("avro", sink.getvalue())
    sink.seek(0)
    assert _plain(opened.read().to_pylist()) == list(fastavro.reader(sink))
    for unit in opened.scan.units:
        assert unit.nbytes < 5 << 20


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "deflate"])
def test_files_that_polars_wrote(compression: Any) -> None:
    """Its rows are one block, and all columns may lack values."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "id": range(3000),
            "text": [f"text {n}" if n % 7 else None for n in range(3000)],
            "x": [n / 7 for n in range(3000)],
            "tags": [[str(n)] * (n % 3) for n in range(3000)],
        }
    )
    sink = io.BytesIO()
    frame.write_avro(sink, compression=compression)
    assert Opened("avro", sink.getvalue()).read().to_pylist() == frame.to_dicts()


def test_columns_have_the_types_of_the_schema() -> None:
    """And are nullable only where the schema says so."""
    columns = parse_schema(json.dumps(SCHEMA).encode())
    schema = pa.schema([arrow_field(name, node) for name, node in columns])
    assert schema.field("id").type == pa.int64()
    assert not schema.field("id").nullable
    assert schema.field("x").type == pa.float64()
    assert schema.field("x").nullable
    assert schema.field("at").type == pa.timestamp("us", "UTC")
    assert schema.field("local").type == pa.timestamp("us")
    assert schema.field("money").type == pa.decimal128(12, 2)
    assert schema.field("wide").type == pa.decimal256(45, 5)
    assert schema.field("ms").type == pa.time32("ms")
    assert schema.field("code").type == pa.binary(3)
    assert schema.field("kind").type == pa.large_string()


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("long", [1, -2, 3]),
        ({"type": "array", "items": "string"}, [["a"], [], ["b", "ü"]]),
        (["null", "string"], ["a", None, "c"]),
    ],
)
def test_rows_that_are_no_records_are_one_column(schema: Any, values: list[Any]) -> None:
    """Its name is `value`."""
    assert Opened("avro", written(schema, values)).read().to_pydict() == {"value": values}


def test_logical_types_that_do_not_fit_count_as_if_they_were_not_there() -> None:
    """As the format wants it."""
    fields = [
        {"name": "a", "type": {"type": "string", "logicalType": "date"}},
        {
            "name": "b",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9},
        },
        {"name": "c", "type": {"type": "long", "logicalType": "something new"}},
    ]
    columns = parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields}).encode())
    assert [node.logical for _, node in columns] == ["", "", ""]


def test_times_in_nanoseconds() -> None:
    """Which other libraries do not know yet."""
    fields = [
        {"name": "a", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "b", "type": {"type": "long", "logicalType": "local-timestamp-nanos"}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    found = Opened("avro", written(schema, [{"a": 1, "b": -5}])).read()
    assert found.schema.types == [pa.timestamp("ns", "UTC"), pa.timestamp("ns")]
    assert [found[name].cast(pa.int64()).to_pylist() for name in "ab"] == [[1], [-5]]


def test_a_file_is_hopped_through_where_its_blocks_are_large() -> None:
    """And read in large pieces where they are small."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}
    large = Opened("avro", written(schema, [{"b": bytes(4 << 20)}] * 8, per_block=1))
    assert large.scan_bytes < 1 << 20
    assert len(large.scan.units) == 8
    small = Opened("avro", written(schema, [{"b": bytes(4 << 10)}] * 8000, per_block=4))
    assert small.scan_calls <= 8
    assert 6 <= len(small.scan.units) <= 9
    assert small.read().num_rows == 8000


def test_a_header_longer_than_the_first_read() -> None:
    """Its schema has the name of every column."""
    fields = [{"name": f"a_column_of_some_name_{n}", "type": "int"} for n in range(3000)]
    schema = {"type": "record", "name": "R", "fields": fields}
    rows = [{field["name"]: n for field in fields} for n in range(3)]
    assert Opened("avro", written(schema, rows)).read().to_pylist() == rows


def test_arrays_in_blocks_that_tell_their_bytes() -> None:
    """As some writers do, so that they can be left out at once."""
    fields = [
        {"name": "l", "type": {"type": "array", "items": "long"}},
        {"name": "n", "type": "long"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    data = written(schema, [{"l": [], "n": 9}])
    # Two items in two bytes, 1 and 2; one item, 3; the end; and the other column's 9.
    block = bytes([3, 4, 2, 4, 2, 6, 0, 18])
    head = data[: data.index(SYNC) + 16]
    made = head + bytes([2, 2 * len(block)]) + block + SYNC
    assert Opened("avro", made).read().to_pylist() == [{"l": [1, 2, 3], "n": 9}]
    assert Opened("avro", made).read(["n"])["n"].to_pylist() == [9]


def test_columns_that_a_file_lacks_leave_its_rows() -> None:
    """Another file may have them."""
    opened = Opened("avro", written(SCHEMA, [row_of(n) for n in range(9)]))
    (unit,) = opened.scan.units
    assert opened.kind.ranges(opened.file, opened.scan.meta, unit, ["nope"]) == []
    table = opened.kind.decode(opened.file, opened.scan.meta, unit, [], ["nope"])
    assert (table.num_rows, table.num_columns) == (9, 0)


def test_decoded_in_one_form() -> None:
    """Through an index, as a data set reads it."""
    rows = [row_of(n) for n in range(2000)]
    found = decoded("avro", written(SCHEMA, rows), ("text", "id", "tags"))
    for name in ("text", "id", "tags"):
        assert found[name].to_pylist() == [row[name] for row in rows]


def test_names_tell_the_format_and_it_pickles() -> None:
    """`.avro`, in any letters."""
    assert kind_of_name("a/b.Avro") == "avro"
    assert pickle.loads(pickle.dumps(open_kind("avro"))).name == "avro"


def test_types_are_used_again_by_their_names() -> None:
    """Also those that have others defined within."""
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "a.Out",
        "fields": [{"name": "i", "type": inner}, {"name": "j", "type": ["null", "In"]}],
    }
    fields = [
        {"name": "o", "type": outer},
        {"name": "p", "type": "a.Out"},
        {"name": "q", "type": "a.In"},
    ]
    row = {"o": {"i": {"x": 1}, "j": None}, "p": {"i": {"x": 2}, "j": {"x": 3}}, "q": {"x": 4}}
    schema = {"type": "record", "name": "R", "fields": fields}
    assert Opened("avro", written(schema, [row, row])).read().to_pylist() == [row, row]
