"""Columns are found by field id, whatever they were called when a file was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from tests.core.virtual.tables import commit, described, read, same_rows, sqlite_catalog

from streaming_core._virtual import kind_names
from streaming_core._virtual._tables import Layout, plan_iceberg
from streaming_core.errors import IndexInvalidError, SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "real", FloatType()),
    NestedField(4, "gone", StringType()),
    NestedField(
        5,
        "inner",
        StructType(
            NestedField(6, "x", IntegerType()),
            NestedField(7, "y", StringType()),
            NestedField(8, "z", StringType()),
        ),
    ),
    NestedField(
        9,
        "list",
        ListType(10, StructType(NestedField(11, "p", IntegerType())), element_required=False),
    ),
    NestedField(
        12,
        "map",
        MapType(13, StringType(), 14, StructType(NestedField(15, "q", IntegerType())), False),
    ),
    NestedField(16, "odd näme 1", LongType()),
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """Yield a catalog in SQLite."""
    with sqlite_catalog(tmp_path) as catalog:
        yield catalog


def _rows(schema: pa.Schema, start: int) -> pa.Table:
    names = {field.name for field in schema}
    rows = [
        {
            "id": i,
            "small": i,
            "real": i / 4,
            "gone": f"old {i}",
            "inner": None if i % 3 == 0 else {"x": i, "y": f"y{i}", "z": None},
            # Of null lists pyiceberg makes empty ones; see the test of those.
            "list": [{"p": i}, None][: i % 3],
            "map": [("k", {"q": i}), ("ü", None)][: i % 3],
            "odd näme 1": -i,
        }
        for i in range(start, start + 50)
    ]
    known = [{name: row.get(name) for name in names} for row in rows]
    return pa.Table.from_pylist(known, schema)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Return a table with columns of all forms, one file in it."""
    table = catalog.create_table("db.t", _SCHEMA)
    table.append(_rows(table.schema().as_arrow(), 0))
    return table


def _change(table: Table, *, reused: bool = True) -> None:
    with table.update_schema() as update:
        update.rename_column("id", "key")
        update.update_column("small", LongType())
        update.update_column("real", DoubleType())
        update.delete_column("gone")
        update.rename_column(("inner", "x"), "w")
        update.update_column(("inner", "x"), LongType())
        update.delete_column(("inner", "y"))
        update.add_column(("inner", "new"), StringType())
        update.rename_column(("list", "element", "p"), "pp")
        update.add_column(("list", "element", "more"), LongType())
        update.rename_column(("map", "value", "q"), "qq")
        update.rename_column("odd näme 1", "even")
        update.move_first("map")
    if not reused:
        return
    # Names that were used before, for other columns now.
    with table.update_schema() as update:
        update.add_column("gone", LongType())
        update.add_column(("inner", "y"), LongType())
        update.add_column("id", StringType())


def test_files_without_a_change_read_as_pyiceberg_reads_them(table: Table) -> None:
    """Nested columns, and a name that files cannot have."""
    same_rows(plan_iceberg(table), table.scan().to_arrow())


def test_renamed_added_dropped_promoted_and_moved_columns(table: Table) -> None:
    """Also inside of structs, lists and maps; a name that comes back is another column."""
    _change(table)
    plan = plan_iceberg(table)
    assert plan.schema.names[0] == "map"
    found = read(plan)
    assert found.column("gone").null_count == found.column("id").null_count == 50
    assert all(one is None or one["y"] is None for one in found.column("inner").to_pylist())
    same_rows(plan, table.scan().to_arrow(), by="key")
    table.append(_new_rows(table))
    plan = plan_iceberg(table)
    assert len(plan.files) == 2
    same_rows(plan, table.scan().to_arrow(), by="key")


def _new_rows(table: Table) -> pa.Table:
    rows = [
        {"key": i, "gone": i, "id": f"new {i}", "inner": {"w": i, "y": i, "new": "n"}, "even": i}
        for i in range(100, 140)
    ]
    return pa.Table.from_pylist(rows, table.schema().as_arrow())


def test_an_old_snapshot_has_the_columns_of_its_time(table: Table) -> None:
    """As pyiceberg reads it; a filter takes the names of now."""
    first = table.metadata.current_snapshot_id
    _change(table)
    table.append(_new_rows(table))
    plan = plan_iceberg(table, snapshot_id=first, file_filter="key < 10")
    assert plan.schema.names == [field.name for field in _SCHEMA.fields]
    same_rows(plan, table.scan(snapshot_id=first).to_arrow())


def test_projection_of_changed_columns_looks_at_the_files_own(table: Table) -> None:
    """Of a renamed column the old one's bytes are read, of an added one none."""
    schema = table.schema().as_arrow()
    _change(table)
    plan = plan_iceberg(table)
    layout = plan.layout(0, schema)
    assert layout.sources(["gone", "key", "even"]) == ["id", "odd näme 1"]
    assert layout.sources(["gone"]) == []
    assert layout.table(None, ["gone"], 3).to_pylist() == [{"gone": None}] * 3
    assert layout.table(None, [], 3).num_rows == 3
    assert read(plan, ["gone", "key"]).column("key").to_pylist() == list(range(50))


def test_missing_lists_and_maps_stay_missing() -> None:
    """They are not empty ones, also where what is in them was renamed."""
    old = _SCHEMA.as_arrow()
    renamed = pa.list_(
        pa.field("element", pa.struct([old.field("list").type.value_field.type[0].with_name("n")]))
    )
    schema = pa.schema([old.field("list").with_type(renamed), old.field("map")])
    rows = [{"list": None, "map": None}, {"list": [], "map": []}, {"list": [None], "map": None}]
    file_schema = pa.schema([old.field("list"), old.field("map")])
    table = pa.Table.from_pylist(rows, file_schema)
    layout = Layout.of(schema, file_schema, "", (), "here")
    assert layout.table(table, None, 3).to_pylist() == rows
    assert layout.table(table.slice(1), None, 2).to_pylist() == rows[1:]


# --- files without ids ----------------------------------------------------------------------------


def test_added_files_are_read_by_the_mapping_of_names(catalog: Catalog, tmp_path: Path) -> None:
    """Files that some other tool wrote have no ids; the table says which name is which column."""
    table = catalog.create_table("db.added", _SCHEMA)
    inner = pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.string())])
    bare = pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int32()),
            ("real", pa.float32()),
            ("gone", pa.string()),
            ("inner", inner),
            ("list", pa.list_(pa.struct([("p", pa.int32())]))),
            ("map", pa.map_(pa.string(), pa.struct([("q", pa.int32())]))),
            ("odd näme 1", pa.int64()),
        ]
    )
    path = tmp_path / "elsewhere.parquet"
    pq.write_table(_rows(bare, 0), path)
    table.add_files([f"file://{path}"])
    plan = plan_iceberg(table)
    assert plan.names
    same_rows(plan, table.scan().to_arrow())
    _change(table, reused=False)
    same_rows(plan_iceberg(table), table.scan().to_arrow(), by="key")


def test_a_file_without_ids_and_a_table_without_mapping_is_refused(
    table: Table, tmp_path: Path
) -> None:
    """Guessing by name could take one column for another."""
    path = tmp_path / "warehouse" / "bare.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    commit(table, described(table, path, 1))
    plan = plan_iceberg(table)
    with pytest.raises(SchemaError, match=r"bare\.parquet: the file has no field ids.*mapping"):
        read(plan)


def test_a_broken_mapping_is_refused(table: Table) -> None:
    """The error says that it is the mapping."""
    schema = plan_iceberg(table).schema
    for broken in ("{", "[1]", '[{"field-id": "x", "names": []}]'):
        with pytest.raises(IndexInvalidError, match="no mapping of names"):
            Layout.of(schema, pa.schema([("id", pa.int64())]), broken, (), "here")


def test_a_required_column_that_a_file_lacks_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    """No null may stand where none is allowed."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "b", LongType())
    )
    table = catalog.create_table("db.required", schema)
    path = tmp_path / "warehouse" / "lacks.parquet"
    path.parent.mkdir(exist_ok=True)
    field = pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "2"})
    pq.write_table(pa.table([[1]], schema=pa.schema([field])), path)
    commit(table, described(table, path, 1))
    with pytest.raises(SchemaError, match=r"'id' of the table is required.*its columns: 'b'"):
        read(plan_iceberg(table))


def test_values_that_a_type_does_not_take_are_refused(table: Table, tmp_path: Path) -> None:
    """A file with another type under the same id is broken, and the error says where."""
    path = tmp_path / "warehouse" / "wrong.parquet"
    field = pa.field("id", pa.string(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([["x"]], schema=pa.schema([field])), path)
    commit(table, described(table, path, 1))
    with pytest.raises(SourceFormatError, match=r"wrong\.parquet: column 'id' is no int64"):
        read(plan_iceberg(table))


def test_a_table_of_other_columns_than_were_indexed_is_refused(table: Table) -> None:
    """Bytes are never taken for another type."""
    layout = plan_iceberg(table).layout(0, _SCHEMA.as_arrow())
    good = _rows(_SCHEMA.as_arrow(), 0)
    assert layout.table(good, None, 50).num_rows == 50
    for bad in (
        good.drop_columns("inner"),
        good.set_column(0, "id", [pa.array(range(50), pa.int32())]),
        good.set_column(4, "inner", [pa.array([{"x": 1}] * 50)]),
        good.slice(1),
    ):
        with pytest.raises(SourceFormatError, match="not what it was when it was indexed"):
            layout.table(bad, None, 50)


# --- ORC ------------------------------------------------------------------------------------------


def _orc_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ids as ORC files of Iceberg have them."""

    def told(field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([told(child) for child in kind])
        elif pa.types.is_large_list(kind):
            kind = pa.list_(told(kind.value_field))
        elif pa.types.is_map(kind):
            kind = pa.map_(told(kind.key_field), told(kind.item_field))
        elif pa.types.is_large_string(kind):
            kind = pa.string()
        return pa.field(
            field.name,
            kind,
            field.nullable,
            {"iceberg.id": field.metadata[b"PARQUET:field_id"].decode()},
        )

    return pa.schema([told(field) for field in schema])


def test_orc_files_are_matched_by_their_own_ids(table: Table, tmp_path: Path) -> None:
    """What ORC files call a field id is found in what pyarrow reads of them."""
    schema = _orc_schema(table.schema().as_arrow())
    path = tmp_path / "some.orc"
    po.write_table(_rows(schema, 0), path)
    _change(table)
    plan = plan_iceberg(table)
    opened = po.ORCFile(path)
    layout = plan.layout(0, opened.schema)
    found = layout.table(opened.read(), None, 50)
    assert found.sort_by("key").to_pylist() == read(plan).sort_by("key").to_pylist()


@pytest.mark.skipif("orc" not in kind_names(), reason="no ORC kind is registered")
def test_a_table_of_parquet_and_orc_files_reads_as_pyiceberg_reads_it(
    table: Table, tmp_path: Path
) -> None:
    """The format is a matter of each file."""
    schema = _orc_schema(table.schema().as_arrow())
    path = tmp_path / "warehouse" / "some.orc"
    po.write_table(_rows(schema, 50), path)
    commit(table, described(table, path, 50, form=FileFormat.ORC))
    plan = plan_iceberg(table)
    assert {file.kind for file in plan.files} == {"parquet", "orc"}
    same_rows(plan, table.scan().to_arrow())
    # After changes pyiceberg takes names for ids in ORC files; the same rows in Parquet tell.
    other = tmp_path / "warehouse" / "same.parquet"
    pq.write_table(_rows(table.schema().as_arrow(), 100), other)
    more = tmp_path / "warehouse" / "same.orc"
    po.write_table(_rows(schema, 100), more)
    commit(table, described(table, other, 50))
    commit(table, described(table, more, 50, form=FileFormat.ORC))
    _change(table)
    found = read(plan_iceberg(table))
    late = found.filter(pc.greater_equal(found.column("key"), 100)).sort_by("key").to_pylist()
    assert len(late) == 100
    assert late[0]["inner"] == {"w": 100, "z": None, "new": None, "y": None}
    assert late[::2] == late[1::2]


# --- any change -----------------------------------------------------------------------------------


@given(
    st.permutations(range(6)),
    st.sets(st.integers(0, 5)),
    st.lists(st.sampled_from("abcdef"), min_size=6, max_size=6, unique=True),
    st.integers(0, 3),
)
def test_any_renaming_dropping_and_reordering_finds_the_same_values(
    order: list[int], dropped: set[int], names: list[str], depth: int
) -> None:
    """By ids, at any depth of nesting, among columns that took over each other's names."""

    def field(name: str, number: int, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    def nested(
        fields: list[pa.Field], rows: list[dict[str, int]]
    ) -> tuple[pa.Schema, list[object]]:
        kind, values = pa.struct(fields), list[object](rows)
        for _ in range(depth):
            kind, values = pa.list_(pa.field("item", kind)), [[value] for value in values]
        return pa.schema([field("top", 100, kind)]), values

    old = [field("abcdef"[at], at, pa.int32()) for at in range(6)]
    new = [field(names[at], at, pa.int64()) for at in order if at not in dropped]
    new.append(field("added", 50, pa.int64()))
    file_schema, values = nested(old, [dict(zip("abcdef", range(6), strict=True))] * 3)
    wanted = {names[at]: at for at in order if at not in dropped} | {"added": None}
    schema, expected = nested(new, [wanted] * 3)  # type: ignore[list-item]
    table = pa.table([values], schema=file_schema)
    layout = Layout.of(schema, file_schema, "", (), "here")
    assert layout.table(table, None, 3).column("top").to_pylist() == expected


def test_the_mapping_that_pyiceberg_makes_is_understood() -> None:
    """Every column of it is found by its own name, nested ones too."""
    names = create_mapping_from_schema(_SCHEMA).model_dump_json()
    bare = pa.schema([(field.name, _bare(field.type)) for field in _SCHEMA.as_arrow()])
    layout = Layout.of(_SCHEMA.as_arrow(), bare, names, (), "here")
    assert layout.sources() == _SCHEMA.as_arrow().names


def _bare(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _bare(child.type)) for child in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_bare(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _bare(kind.item_type))
    return kind
