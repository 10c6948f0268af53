"""Deleted rows of Iceberg tables: position deletes, deletion vectors, and equality deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from tests.core.virtual.tables import (
    commit,
    deletion_vectors,
    described,
    equality_deletes,
    local,
    position_deletes,
    read,
    same_rows,
    sqlite_catalog,
)

from streaming_core._virtual import kind_names
from streaming_core._virtual._tables import keep_bits, plan_iceberg
from streaming_core.errors import SchemaError, SourceChangedError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_ROWS = 10_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """Yield a catalog in SQLite."""
    with sqlite_catalog(tmp_path) as catalog:
        yield catalog


def _ids(start: int, stop: int) -> pa.Table:
    ids = pa.array(range(start, stop), pa.int64())
    return pa.table(
        {"id": ids, "text": pa.array([f"t{i}" for i in range(start, stop)], pa.string())}
    )


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Return a table of one file with ten row groups."""
    properties = {"write.parquet.row-group-limit": "1000", "format-version": "2"}
    table = catalog.create_table("db.t", _ids(0, 0).schema, properties=properties)
    table.append(_ids(0, _ROWS))
    return table


def _data_file(table: Table) -> str:
    (task,) = table.scan().plan_files()
    return str(task.file.file_path)


def _some(count: int, rows: int = _ROWS) -> list[int]:
    return sorted(np.random.default_rng(count).choice(rows, count, replace=False).tolist())


# --- position deletes -----------------------------------------------------------------------------


def test_deletes_apply_to_each_row_group_on_its_own(table: Table) -> None:
    """1,001 positions over ten row groups, cut per group, leave what pyiceberg leaves."""
    path, gone = _data_file(table), _some(1001)
    commit(table, position_deletes(table, [(path, row) for row in gone]))
    plan = plan_iceberg(table)
    (file,) = plan.files
    assert file.rows == _ROWS
    assert file.deleted.tolist() == gone
    oracle = table.scan().to_arrow()
    assert oracle.num_rows == _ROWS - 1001
    same_rows(plan, oracle)
    opened = pq.ParquetFile(local(path))
    assert opened.num_row_groups == 10
    first, kept = 0, []
    for group in range(10):
        ids = opened.read_row_group(group).column("id").to_numpy()
        bits = keep_bits(file.deleted, first, len(ids))
        assert bits is not None
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(ids)).astype(bool)
        kept += ids[mask].tolist()
        first += len(ids)
    assert kept == oracle.sort_by("id").column("id").to_pylist()


def test_deletes_come_from_several_files_for_several_files(table: Table) -> None:
    """Doubled and unordered positions count once; newer data are not touched by older deletes."""
    table.append(_ids(_ROWS, _ROWS + 500))
    first, second = sorted(
        (task.file.file_path, task.file.record_count) for task in table.scan().plan_files()
    )
    pairs = [(first[0], row) for row in (5, 3, 3, first[1] - 1)]
    pairs += [(second[0], row) for row in (0, 1, second[1] - 1)]
    commit(table, position_deletes(table, pairs))
    commit(table, position_deletes(table, [(first[0], 3), (first[0], 4)]))
    table.append(_ids(20_000, 20_010))
    plan = plan_iceberg(table)
    assert [len(file.deleted) for file in plan.files if len(file.deleted)] in ([4, 3], [3, 4])
    same_rows(plan, table.scan().to_arrow())
    # A snapshot from before the deletes has all rows.
    old = table.history()[1].snapshot_id
    assert read(plan_iceberg(table, snapshot_id=old)).num_rows == _ROWS + 500


def test_deletes_of_partitions_apply_to_their_own(catalog: Catalog) -> None:
    """The same row numbers of other partitions stay."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    table = catalog.create_table(
        "db.parts", schema, partition_spec=spec, properties={"format-version": "2"}
    )
    ids = list(range(300))
    rows = pa.table({"id": ids, "part": [i % 3 for i in ids]})
    table.append(rows.cast(table.schema().as_arrow()))
    paths = {task.file.partition[0]: task.file.file_path for task in table.scan().plan_files()}
    pairs = [(paths[1], row) for row in range(0, 100, 2)]
    commit(table, position_deletes(table, pairs, partition=[1]))
    plan = plan_iceberg(table)
    assert sorted(len(file.deleted) for file in plan.files) == [0, 0, 50]
    same_rows(plan, table.scan().to_arrow())


@pytest.mark.skipif("orc" not in kind_names(), reason="no ORC kind is registered")
def test_deletes_in_orc_files(table: Table) -> None:
    """Their format is a matter of their own."""
    path = _data_file(table)
    pairs = [(path, row) for row in _some(321)]
    commit(table, position_deletes(table, pairs, FileFormat.ORC))
    same_rows(plan_iceberg(table), table.scan().to_arrow())


def test_a_file_may_lose_all_its_rows(table: Table) -> None:
    """It stays in the plan with nothing kept."""
    path = _data_file(table)
    commit(table, position_deletes(table, [(path, row) for row in range(_ROWS)]))
    plan = plan_iceberg(table)
    assert len(plan.files[0].deleted) == _ROWS
    assert read(plan).num_rows == 0


@pytest.mark.parametrize("row", [-1, _ROWS])
def test_positions_outside_of_the_file_are_refused(table: Table, row: int) -> None:
    """A table that deletes rows that there are not is broken."""
    commit(table, position_deletes(table, [(_data_file(table), row)]))
    with pytest.raises(SourceFormatError, match=f"row {row} is deleted, but the file has 10000"):
        plan_iceberg(table)


def test_deletes_that_are_gone_or_broken_are_errors(table: Table) -> None:
    """Never all rows where some are deleted."""
    entry = position_deletes(table, [(_data_file(table), 1)])
    commit(table, entry)
    path = local(entry.file_path)
    good = path.read_bytes()
    path.write_bytes(good[:-9] + b"x" * 9)
    with pytest.raises(SourceFormatError, match=path.name):
        plan_iceberg(table)
    path.unlink()
    with pytest.raises(SourceChangedError, match=rf"{path.name}.*gone.*snapshot"):
        plan_iceberg(table)


def test_files_of_deletes_with_other_columns_are_refused(table: Table) -> None:
    """The error names the columns that it has."""
    path = local(table.location()) / "data" / "odd.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    commit(table, described(table, path, 1, DataFileContent.POSITION_DELETES))
    with pytest.raises(SourceFormatError, match=r"odd\.parquet: no position deletes.*'x'"):
        plan_iceberg(table)


# --- deletion vectors -----------------------------------------------------------------------------


def test_deletion_vectors_are_applied_as_pyiceberg_applies_them(table: Table) -> None:
    """One Puffin file has the vectors of two data files, another one of a third."""
    table.append(_ids(_ROWS, _ROWS + 5000))
    table.append(_ids(30_000, 30_100))
    files = sorted(table.scan().plan_files(), key=lambda task: task.file.record_count)
    small, middle, large = ((task.file.file_path, task.file.record_count) for task in files)
    vectors = [
        (large[0], [*range(2000, 8000), *_some(700)]),
        (middle[0], list(range(0, 5000, 3))),
    ]
    commit(table, *deletion_vectors(table, vectors))
    commit(table, *deletion_vectors(table, [(small[0], [0, 99])]))
    plan = plan_iceberg(table)
    gone = {plan.url(at): set(file.deleted.tolist()) for at, file in enumerate(plan.files)}
    assert gone[str(local(large[0]))] == set(vectors[0][1])
    assert gone[str(local(small[0]))] == {0, 99}
    same_rows(plan, table.scan().to_arrow())


def test_a_vector_beyond_its_file_is_refused(table: Table) -> None:
    """As with position deletes."""
    commit(table, *deletion_vectors(table, [(_data_file(table), [1, _ROWS])]))
    with pytest.raises(SourceFormatError, match=r"\.puffin: row 10000 is deleted"):
        plan_iceberg(table)


def test_any_damage_of_a_vector_is_an_error(table: Table) -> None:
    """Never other rows than were deleted: a checksum guards them."""
    (entry,) = deletion_vectors(table, [(_data_file(table), _some(500))])
    commit(table, entry)
    path = local(entry.file_path)
    good = path.read_bytes()
    end = good.index(b"PFA1{")
    for at in np.random.default_rng(3).choice(np.arange(4, end), 60, replace=False).tolist():
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        with pytest.raises(SourceFormatError, match=r"\.puffin"):
            plan_iceberg(table)
    path.write_bytes(good)
    assert len(plan_iceberg(table).files[0].deleted) == 500
    path.write_bytes(good[:-5])
    with pytest.raises(SourceChangedError, match="gone or another"):
        plan_iceberg(table)


# --- equality deletes -----------------------------------------------------------------------------


def test_equality_deletes_are_refused_with_a_way_out(table: Table) -> None:
    """The error says what they are, how many files, and how to be rid of them."""
    commit(table, equality_deletes(table, [1, 2, 3]))
    with pytest.raises(SchemaError, match=r"1 file\(s\) of equality deletes.*rewrite_data_files"):
        plan_iceberg(table)
    before = table.history()[0].snapshot_id
    assert read(plan_iceberg(table, snapshot_id=before)).num_rows == _ROWS


def test_encrypted_files_and_unknown_formats_are_refused(table: Table) -> None:
    """Before anything of them is read."""
    path = local(_data_file(table))
    commit(table, described(table, path, 1, key_metadata=b"k"))
    with pytest.raises(SchemaError, match="encrypted"):
        plan_iceberg(table)


def test_a_file_that_a_table_has_twice_is_refused(table: Table) -> None:
    """Its rows would count twice, without anybody having written them twice."""
    commit(table, described(table, local(_data_file(table)), _ROWS))
    with pytest.raises(SchemaError, match="twice"):
        plan_iceberg(table)
