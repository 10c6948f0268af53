"""Iceberg tables written by pyiceberg are planned once, and read as pyiceberg itself reads them."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.core.virtual.tables import (
    catalog_properties,
    commit,
    described,
    local,
    read,
    same_rows,
    sqlite_catalog,
)

from streaming_core._virtual._tables import (
    open_iceberg,
    parse,
    plan_iceberg,
    storage_options_of,
)
from streaming_core.errors import SchemaError, SourceChangedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    """Return the properties of the catalog."""
    return catalog_properties(tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """Yield a catalog in SQLite, with one namespace below another."""
    with sqlite_catalog(tmp_path) as catalog:
        catalog.create_namespace(("db", "deep"))
        yield catalog


def _numbers(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "text": pa.array(
                [None if i % 7 == 0 else f"ü{i}" for i in range(start, stop)], pa.string()
            ),
        }
    )


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Return a table of 3,000 rows that was written in three snapshots."""
    table = catalog.create_table("db.t", _numbers(0, 0).schema)
    for at in range(3):
        table.append(_numbers(1000 * at, 1000 * at + 1000))
    return table


def test_a_table_reads_as_pyiceberg_reads_it(table: Table) -> None:
    """All rows, exactly once, with nulls and other letters."""
    plan = plan_iceberg(table)
    assert len(plan.files) == 3
    assert [file.rows for file in plan.files] == [1000] * 3
    assert plan.snapshot == str(table.metadata.current_snapshot_id)
    same_rows(plan, table.scan().to_arrow())


def test_the_plan_does_not_depend_on_the_order_of_the_metadata(table: Table) -> None:
    """Files stand in the order of their names, and a second plan is equal, byte for byte."""
    plan, again = plan_iceberg(table), plan_iceberg(table)
    keys = [file.key for file in plan.files]
    assert keys == sorted(keys)
    assert plan.fingerprint() == again.fingerprint()
    assert plan.url(0).startswith(str(local(table.location())))


def test_a_plan_pickles_and_saves(table: Table) -> None:
    """A copy reads the same rows, and says the same fingerprint."""
    plan = plan_iceberg(table)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.fingerprint() == plan.fingerprint()
    assert parse(plan.__getstate__(), "x").fingerprint() == plan.fingerprint()
    assert read(copy).equals(read(plan))


def test_projection_reads_the_columns_in_the_order_asked_for(table: Table) -> None:
    """Of the file only these are looked at."""
    plan = plan_iceberg(table)
    assert read(plan, ["text", "id"]).column_names == ["text", "id"]
    assert read(plan, ["text"]).equals(read(plan).select(["text"]))


# --- names and places -----------------------------------------------------------------------------


def test_a_table_is_found_by_name_with_namespaces_of_any_depth(
    catalog: Catalog, properties: dict[str, str]
) -> None:
    """`db.deep.t` is the table `t` of the namespace `db.deep`, not `deep.t` of a catalog `db`."""
    deep = catalog.create_table("db.deep.t", _numbers(0, 0).schema)
    deep.append(_numbers(5, 9))
    for name in ("db.deep.t", ("db", "deep", "t")):
        plan = plan_iceberg(name, catalog=properties)
        assert read(plan).column("id").to_pylist() == [5, 6, 7, 8]


def test_a_table_is_found_without_a_catalog(table: Table) -> None:
    """By its metadata file, or by its folder where a hint says which that is."""
    wanted = plan_iceberg(table).fingerprint()
    assert plan_iceberg(table.metadata_location).fingerprint() == wanted
    metadata = local(table.metadata_location)
    (metadata.parent / "version-hint.text").write_text(metadata.name)
    assert plan_iceberg(table.location()).fingerprint() == wanted


def test_what_is_no_table_is_named(
    properties: dict[str, str], catalog: Catalog, tmp_path: Path
) -> None:
    """The errors say what was looked for, and how names are written."""
    del catalog
    with pytest.raises(SchemaError, match=r"no Iceberg table 'db.none'.*without the catalog's own"):
        open_iceberg("db.none", properties)
    with pytest.raises(SchemaError, match=r"no Iceberg table 'x\.y\.none'"):
        open_iceberg("x.y.none", properties)
    with pytest.raises(SchemaError, match="give its metadata file"):
        open_iceberg(f"file://{tmp_path}/nothing")
    with pytest.raises(SchemaError, match="cannot be opened"):
        open_iceberg("db.t", {"type": "no-such-kind"})
    with pytest.raises(StoreError, match=r"'?db\.t'? cannot be opened"):
        open_iceberg("db.t", {"type": "rest", "uri": "http://127.0.0.1:9"})


def test_a_table_that_nothing_was_written_to_has_no_rows(catalog: Catalog) -> None:
    """Without a snapshot there are columns, but no files."""
    empty = catalog.create_table("db.empty", _numbers(0, 0).schema)
    plan = plan_iceberg(empty)
    assert plan.files == ()
    assert plan.schema.names == ["id", "text"]
    assert plan_iceberg(empty, file_filter="id == 1").files == ()


def test_what_the_catalog_gives_for_storage_becomes_our_options() -> None:
    """Vended credentials are used for the files, and only those of their scheme."""

    class _Table:
        class io:  # noqa: N801 - the attribute's name
            properties = {  # noqa: RUF012 - never changed
                "s3.access-key-id": "a",
                "client.region": "r",
                "client.access-key-id": "b",
                "adls.account-name": "n",
                "s3.anonymous": "true",
                "token": "secret of the catalog",
            }

        where = "s3a://bucket/t"

        def location(self) -> str:
            return self.where

    table = _Table()
    assert storage_options_of(table) == {"access_key_id": "a", "region": "r", "anonymous": "true"}
    table.where = "abfss://c@n.dfs.core.windows.net/t"
    assert storage_options_of(table) == {"account_name": "n"}
    table.where = "file:///t"
    assert storage_options_of(table) == {}


# --- time -----------------------------------------------------------------------------------------


def test_an_older_snapshot_is_read_by_id_tag_branch_and_time(table: Table) -> None:
    """Each gives the rows of its time, as pyiceberg does."""
    ids = [entry.snapshot_id for entry in table.history()]
    table.manage_snapshots().create_tag(ids[0], "first").create_branch(ids[1], "side").commit()
    for at, chosen in (
        (0, {"snapshot_id": ids[0]}),
        (0, {"ref": "first"}),
        (1, {"ref": "side"}),
        (2, {"ref": "main"}),
    ):
        plan = plan_iceberg(table, **chosen)
        assert plan.snapshot == str(ids[at])
        same_rows(plan, table.scan(snapshot_id=ids[at]).to_arrow())
    second = table.history()[1].timestamp_ms
    when = dt.datetime.fromtimestamp(second / 1000, dt.UTC)
    assert plan_iceberg(table, as_of=when).snapshot == str(ids[1])


def test_snapshots_that_are_not_there_are_refused(table: Table) -> None:
    """The errors list what there is."""
    with pytest.raises(SchemaError, match=f"no snapshot 17.*{table.metadata.current_snapshot_id}"):
        plan_iceberg(table, snapshot_id=17)
    with pytest.raises(SchemaError, match="no branch or tag 'x'; there are 'main'"):
        plan_iceberg(table, ref="x")
    with pytest.raises(SchemaError, match="the first that is known is of 20"):
        plan_iceberg(table, as_of=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(SchemaError, match="no time zone"):
        plan_iceberg(table, as_of=dt.datetime(2001, 1, 1))  # noqa: DTZ001 - what is refused
    with pytest.raises(SchemaError, match="not several"):
        plan_iceberg(table, ref="main", snapshot_id=1)


# --- what others do to the table meanwhile --------------------------------------------------------


def test_a_rewrite_after_planning_changes_nothing(table: Table) -> None:
    """The plan's own snapshot is read, all of it, though the table has other files by now."""
    plan = plan_iceberg(table)
    before = table.scan().to_arrow()
    table.overwrite(_numbers(50_000, 50_010))
    assert plan_iceberg(table).snapshot != plan.snapshot
    same_rows(plan, before)


def test_files_that_are_gone_are_an_error_and_never_no_rows(table: Table) -> None:
    """After the old snapshot's files were cleaned away, reading says which file is gone."""
    plan = plan_iceberg(table)
    table.overwrite(_numbers(50_000, 50_010))
    for file in plan.files:
        local(f"{plan.root}/{file.key}").unlink()
    with pytest.raises(SourceChangedError, match=r"\.parquet.*gone"):
        read(plan)


def test_metadata_that_are_gone_are_an_error(table: Table) -> None:
    """A snapshot whose list of files was cleaned away cannot be planned."""
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    local(snapshot.manifest_list).unlink()
    with pytest.raises(SourceChangedError, match=f"snapshot {snapshot.snapshot_id} are gone"):
        plan_iceberg(table)


# --- filters --------------------------------------------------------------------------------------


def test_a_filter_leaves_out_files_without_matching_rows(table: Table) -> None:
    """As a text or an expression; the files that stay have all their rows."""
    for chosen in ("id >= 1500 and id < 1600", EqualTo(term=Reference("id"), value=literal(1500))):
        plan = plan_iceberg(table, file_filter=chosen)
        assert pc.min_max(read(plan).column("id")).as_py() == {"min": 1000, "max": 1999}


def test_a_filter_of_files_that_leaves_none_is_an_error(table: Table) -> None:
    """It would be a data set without samples, of which nobody is told."""
    with pytest.raises(SchemaError, match=r"id > 100000.* leaves no file.*filters="):
        plan_iceberg(table, file_filter="id > 100000")


@pytest.mark.parametrize("chosen", ["id >=", "none = 1", "id = 'x y'", 3])
def test_a_filter_that_is_none_is_refused(table: Table, chosen: Any) -> None:
    """Whatever is wrong with it, the error shows it."""
    with pytest.raises(SchemaError, match=r"filter|planned"):
        plan_iceberg(table, file_filter=chosen)


# --- partitions -----------------------------------------------------------------------------------

_WIDE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "day", DateType()),
    NestedField(3, "lang", StringType()),
    NestedField(4, "moment", TimestamptzType()),
    NestedField(5, "price", DecimalType(9, 2)),
    NestedField(6, "raw", BinaryType()),
    NestedField(7, "key", UUIDType()),
    NestedField(8, "flag", BooleanType()),
    NestedField(9, "clock", TimeType()),
    NestedField(10, "plain", TimestampType()),
    NestedField(11, "number", DoubleType()),
    NestedField(12, "a b", LongType()),
    NestedField(
        13,
        "inner",
        StructType(
            NestedField(14, "x", LongType()),
            NestedField(15, "y", ListType(16, StringType(), element_required=False)),
        ),
    ),
)
_PARTS = ("day", "lang", "moment", "price", "raw", "flag", "clock", "plain")


def _wide_rows(schema: pa.Schema) -> pa.Table:
    moment = dt.datetime(2024, 2, 29, 12, 30, 1, 999, tzinfo=dt.UTC)
    rows = [
        {
            "id": i,
            "day": None if i % 5 == 4 else dt.date(2024, 1, 1 + i % 2),
            "lang": ["a/b c%2 =?", "ü", "", None][i % 4],
            "moment": moment + dt.timedelta(days=i % 2),
            "price": Decimal("-1.25") * (i % 2),
            "raw": b"\xff\x00" * (i % 2),
            "key": uuid.UUID(int=i % 2).bytes,
            "flag": bool(i % 2),
            "clock": dt.time(1, 2, 3, i % 2),
            "plain": moment.replace(tzinfo=None),
            "number": math.pi * i,
            "a b": i,
            "inner": None if i % 3 == 0 else {"x": i, "y": [None, f"{i}"]},
        }
        for i in range(60)
    ]
    return pa.Table.from_pylist(rows, schema)


def test_partitions_of_every_type_read_as_pyiceberg_reads_them(catalog: Catalog) -> None:
    """With nulls, empty texts and odd letters, which also stand in the files' names."""
    fields = [
        PartitionField(_WIDE.find_field(name).field_id, 1000 + at, IdentityTransform(), name)
        for at, name in enumerate(_PARTS)
    ]
    table = catalog.create_table("db.wide", _WIDE, partition_spec=PartitionSpec(*fields))
    table.append(_wide_rows(table.schema().as_arrow()))
    plan = plan_iceberg(table)
    assert len(plan.files) == 8
    same_rows(plan, table.scan().to_arrow())


def test_values_that_migrated_files_lack_come_from_the_partition(
    catalog: Catalog, tmp_path: Path
) -> None:
    """Files of a Hive table have no column for what its folders say."""
    spec = PartitionSpec(
        *(
            PartitionField(_WIDE.find_field(name).field_id, 1000 + at, IdentityTransform(), name)
            for at, name in enumerate((*_PARTS, "key"))
        )
    )
    table = catalog.create_table("db.moved", _WIDE, partition_spec=spec)
    every = _wide_rows(table.schema().as_arrow())
    one = every.slice(1, 1)
    bare = pa.table({"id": pa.array([1, 2, 3], pa.int64())}).cast(
        pa.schema([table.schema().as_arrow().field("id")])
    )
    path = tmp_path / "warehouse" / "old.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(bare, path)
    # Partition values as manifests have them: days, microseconds, unscaled texts and bytes.
    record = [
        (one["day"][0].as_py() - dt.date(1970, 1, 1)).days,
        one["lang"][0].as_py(),
        one["moment"][0].value,
        one["price"][0].as_py(),
        one["raw"][0].as_py(),
        one["flag"][0].as_py(),
        one["clock"][0].value,
        one["plain"][0].value,
        uuid.UUID(int=1),
    ]
    commit(table, described(table, path, 3, partition=record))
    found = read(plan_iceberg(table))
    assert found.column("id").to_pylist() == [1, 2, 3]
    for name in (*_PARTS, "key"):
        wanted = one[name].combine_chunks()
        wanted = wanted.storage if isinstance(wanted, pa.ExtensionArray) else wanted
        assert found.column(name).to_pylist() == wanted.to_pylist() * 3, name
    assert found.column("number").null_count == 3
    assert found.schema.field("key").type == pa.binary(16)
