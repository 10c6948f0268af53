"""What is rare in tables and in files of Arrow is read, or refused with a reason."""

from __future__ import annotations

import json
import os
import uuid
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from tests.core.virtual.tables import commit, described, local, sqlite_catalog

from streaming_core import Stream, StreamingDataset
from streaming_core.errors import (
    SchemaError,
    SourceChangedError,
    SourceFormatError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Rows = list[dict[str, Any]]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """Yield a catalog in SQLite."""
    with sqlite_catalog(tmp_path) as catalog:
        yield catalog


def _rows(tmp_path: Path, remote: str | Path, **given: Any) -> Rows:
    stream = Stream(remote=remote, local=tmp_path / f"cache-{uuid.uuid4()}", **given)
    dataset = StreamingDataset(streams=[stream], batch_size=1)
    return [dataset[at] for at in range(len(dataset))]


def _edited(table: Table, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Return a metadata file of a table with changes that pyiceberg does not make."""
    path = local(table.metadata_location)
    metadata = json.loads(path.read_text())
    edit(metadata)
    edited = path.with_name("00099-edited.metadata.json")
    edited.write_text(json.dumps(metadata))
    return edited


def test_a_table_that_nothing_was_written_to_has_no_rows(catalog: Catalog, tmp_path: Path) -> None:
    """It has columns, and no snapshot yet."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    assert _rows(tmp_path, table.metadata_location, format="iceberg") == []


def test_fields_in_structs_have_their_first_default(catalog: Catalog, tmp_path: Path) -> None:
    """Files from before a field was added lack it, also in structs of lists and maps."""
    pair = StructType(NestedField(3, "a", LongType()))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", pair),
        NestedField(4, "l", ListType(5, StructType(NestedField(6, "a", LongType())), False)),
        NestedField(
            7, "m", MapType(8, StringType(), 9, StructType(NestedField(10, "a", LongType())), False)
        ),
    )
    table = catalog.create_table("db.t", schema)
    rows = [
        {"id": 1, "s": {"a": 1}, "l": [{"a": 1}, None], "m": [("k", {"a": 1}), ("n", None)]},
        {"id": 2, "s": None, "l": [], "m": []},
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    def add(metadata: dict[str, Any]) -> None:
        metadata |= {"format-version": 3, "next-row-id": 0, "last-column-id": 23}
        _, plain, inner, mapped = (field["type"] for field in metadata["schemas"][-1]["fields"][:4])
        for number, struct in enumerate((plain, inner["element"], mapped["value"]), 21):
            new = {"id": number, "name": "b", "type": "string", "initial-default": "x"}
            struct["fields"].append({**new, "required": number == 21})

    table = catalog.load_table("db.t")
    found = _rows(tmp_path, _edited(table, add), format="iceberg")
    assert found[0]["s"] == {"a": 1, "b": "x"}
    assert found[0]["l"] == [{"a": 1, "b": "x"}, None]
    assert found[0]["m"] == [("k", {"a": 1, "b": "x"}), ("n", None)]
    assert found[1] == {"id": 2, "s": None, "l": [], "m": []}


@pytest.mark.parametrize("store_schema", [False, True])
def test_uuids_are_read_with_and_without_a_schema_of_arrow(
    catalog: Catalog, tmp_path: Path, store_schema: bool
) -> None:
    """Only files that Arrow wrote have its schema."""
    values = [uuid.UUID(int=number).bytes for number in range(3)]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "u", UUIDType()))
    table = catalog.create_table("db.t", schema)
    path = tmp_path / "warehouse" / "u.parquet"
    path.parent.mkdir(exist_ok=True)
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    columns = [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("u", pa.uuid(), metadata={"PARQUET:field_id": "2"}),
    ]
    written = pa.Table.from_arrays([pa.array(range(3)), array], schema=pa.schema(columns))
    pq.write_table(written, path, store_schema=store_schema)
    commit(table, described(table, path, 3))
    found = _rows(tmp_path, table.metadata_location, format="iceberg")
    assert [row["u"] for row in found] == values
    assert [row["u"] for row in _rows(tmp_path, path)] == values


@pytest.fixture
def data_file(catalog: Catalog) -> tuple[str, Path]:
    """Return where a table of one file is, and this file."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": range(100)}))
    (task,) = table.scan().plan_files()
    return table.metadata_location, local(task.file.file_path)


def test_files_that_a_table_lacks_are_told(data_file: tuple[str, Path], tmp_path: Path) -> None:
    """Indexing again would not help."""
    location, path = data_file
    path.unlink()
    with pytest.raises(SourceChangedError, match=r"parquet: .*metadata.*gone.*Restore") as caught:
        _rows(tmp_path, location, format="iceberg")
    assert "index" not in str(caught.value)


@pytest.mark.parametrize("change", ["cut", "longer"])
def test_files_of_another_size_are_told(
    data_file: tuple[str, Path], tmp_path: Path, change: str
) -> None:
    """The error has the size that the table says."""
    location, path = data_file
    size = path.stat().st_size
    if change == "cut":
        os.truncate(path, size - 10)
    else:
        path.write_bytes(b"PAR1" + path.read_bytes())
    with pytest.raises(SourceChangedError, match=rf"parquet: .*metadata.*{size}") as caught:
        _rows(tmp_path, location, format="iceberg")
    assert "index" not in str(caught.value)


def test_files_of_the_right_size_that_are_broken_are_told(
    data_file: tuple[str, Path], tmp_path: Path
) -> None:
    """What is wrong is the format."""
    location, path = data_file
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(SourceFormatError, match="no Parquet file"):
        _rows(tmp_path, location, format="iceberg")


def test_snapshots_without_a_manifest_list_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    """The first writers of version 1 listed the manifests in the metadata."""
    schema = pa.schema([("id", pa.int64())])
    table = catalog.create_table("db.t", schema, properties={"format-version": "1"})
    table.append(pa.table({"id": [1, 2]}))

    def inline(metadata: dict[str, Any]) -> None:
        snapshot = metadata["snapshots"][-1]
        snapshot["manifests"] = [snapshot.pop("manifest-list")]

    edited = _edited(catalog.load_table("db.t"), inline)
    with pytest.raises(SchemaError, match=r"manifest-list.*upgrade the table"):
        _rows(tmp_path, edited, format="iceberg")


def test_metadata_of_an_unknown_version_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    """The error of pyiceberg is not passed on bare."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    edited = _edited(table, lambda metadata: metadata.update({"format-version": 99}))
    with pytest.raises(SchemaError, match=r"invalid.*99"):
        _rows(tmp_path, edited, format="iceberg")


@pytest.mark.parametrize(("unit", "name"), [(0, "month_interval"), (1, "day_time_interval")])
def test_intervals_that_arrow_does_not_read_are_refused_by_name(
    tmp_path: Path, unit: int, name: str
) -> None:
    """The other columns can be read."""
    kind = pa.month_day_nano_interval()
    table = pa.table({"a": [1, 2], "x": pa.array([(1, 2, 3), None], kind)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytearray(sink.getvalue())
    for at in [at for at, byte in enumerate(data) if byte == 2]:  # the unit's, in the footer
        data[at] = unit
        try:
            if (
                pa.ipc.open_file(pa.py_buffer(bytes(data))).schema.to_string()
                == f"a: int64\nx: {name}"
            ):
                break
        except pa.ArrowInvalid:
            pass
        data[at] = 2
    path = tmp_path / "x.arrow"
    path.write_bytes(data)
    with pytest.raises(SchemaError, match=rf"x\.arrow: column 'x' is {name}.*without it"):
        _rows(tmp_path, path)
    assert _rows(tmp_path, path, columns=["a"]) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("dictionary", [False, True])
def test_text_of_parquet_that_is_not_utf_8_is_refused(tmp_path: Path, dictionary: bool) -> None:
    """The error says the file and the column, however the batches are wanted."""
    values = pa.array([b"ok", b"\xff\xfe", None, b"ok"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 4, values.buffers(), values.null_count)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": range(4), "t": text}), path, use_dictionary=dictionary)
    with pytest.raises(StreamingError, match=r"x\.parquet.*column 't'.*UTF8"):
        _rows(tmp_path, path)
    assert _rows(tmp_path, path, columns=["id"]) == [{"id": number} for number in range(4)]


def test_a_json_file_may_be_one_object(tmp_path: Path) -> None:
    """Written on several lines."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"a": 1, "b": {"c": [1, 2]}}, indent=2))
    assert _rows(tmp_path, path) == [{"a": 1, "b": {"c": [1, 2]}}]


def test_the_order_of_options_does_not_matter_where_they_are_known(tmp_path: Path) -> None:
    """A checkpoint and the decoded data are those of the first order, in which they were made."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"a": {number}}}\n' for number in range(50)))
    options: dict[str, Any] = {"unit_bytes": 100, "max_record_bytes": 1000, "as_text": ["a"]}

    def opened(names: list[str]) -> StreamingDataset:
        given = {name: options[name] for name in names}
        stream = Stream(remote=path, local=tmp_path / "cache", format_options=given)
        return StreamingDataset(streams=[stream], batch_size=1)

    first = opened(["unit_bytes", "as_text", "max_record_bytes"])
    state = first.state_dict(5, from_beginning=True)
    rows = [first[at] for at in range(50)]
    for names in permutations(options):
        other = opened(list(names))
        other.load_state_dict(state)
        assert [other[at] for at in range(50)] == rows
