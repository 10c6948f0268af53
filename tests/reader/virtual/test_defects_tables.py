"""Iceberg tables: what torch-dataloader-utils loses, multiplies or cannot read, and we do not.

What it does here was seen by running it: see `docs/comparison-any-format.md`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from tests.core.virtual.tables import (
    catalog_properties,
    commit,
    described,
    equality_deletes,
    local,
    position_deletes,
    sqlite_catalog,
)
from tests.reader.virtual.defects import ids_of, none_lost

from streaming_core import StreamingDataLoader, create_dataloader
from streaming_core.errors import SchemaError, SourceChangedError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_ROWS = 9000
_SMALL_GROUPS = {"write.parquet.row-group-limit": "1000", "format-version": "2"}


@pytest.fixture
def catalog(tmp_path: Path) -> Generator[Catalog]:
    """Yield a catalog in SQLite."""
    with sqlite_catalog(tmp_path) as found:
        yield found


def _rows(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "text": [f"row {i}" for i in range(first, first + count)]})


def _opened(tmp_path: Path, name: str, **given: Any) -> StreamingDataLoader:
    options = {"catalog": catalog_properties(tmp_path), **given.pop("table", {})}
    place = {"remote": name, "local": tmp_path / "cache", "format": "iceberg"}
    return create_dataloader(**{**place, "format_options": options, "batch_size": 100, **given})[0]


@pytest.fixture(autouse=True)
def _groups_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a unit be one row group, however small, as the peer is told to do as well."""
    monkeypatch.setattr("streaming_core._virtual._kinds._packing._FEW_BYTES", 0)


def _with_deletes(catalog: Catalog) -> list[int]:
    """Make the table `db.t` of nine row groups, one of them without a row left; return the ids."""
    table = catalog.create_table("db.t", _rows(0, 1).schema, properties=_SMALL_GROUPS)
    table.append(_rows(0, _ROWS))
    (task,) = table.scan().plan_files()
    gone = sorted({*range(0, _ROWS, 7), *range(2000, 3000), _ROWS - 1})
    commit(table, position_deletes(table, [(task.file.file_path, row) for row in gone]))
    assert pq.ParquetFile(local(task.file.file_path)).num_row_groups == 9
    kept = sorted(table.scan().to_arrow()["id"].to_pylist())
    assert kept == sorted(set(range(_ROWS)) - set(gone))
    return kept


@pytest.mark.parametrize(
    ("workers", "shuffle"),
    [(0, False), (0, True), pytest.param(2, True, marks=pytest.mark.process)],
)
def test_deletes_leave_every_other_row_once(
    catalog: Catalog, tmp_path: Path, workers: int, shuffle: bool
) -> None:
    """As pyiceberg reads them, divided among ranks, and resumed in between.

    torch-dataloader-utils cuts the file into its row groups and answers each with the whole file:
    90,000 rows of 9,000.
    """
    kept = _with_deletes(catalog)
    options: dict[str, Any] = {"num_workers": workers, "shuffle": shuffle}
    loader = _opened(tmp_path, "db.t", **options)
    none_lost(ids_of(loader), kept)
    texts = [text for batch in loader for text in batch["text"]]
    assert sorted(texts) == sorted(f"row {number}" for number in kept)
    first = _opened(tmp_path, "db.t", **options)
    before = ids_of(first, 31)
    second = _opened(tmp_path, "db.t", **options)
    second.load_state_dict(first.state_dict())
    none_lost(before + ids_of(second), kept)
    parts = [
        ids_of(_opened(tmp_path, "db.t", rank=rank, num_ranks=2, ranks_per_node=2, **options))
        for rank in range(2)
    ]
    assert len(parts[0]) == len(parts[1])
    assert set(parts[0]) | set(parts[1]) == set(kept)


def _rewrite(tmp_path: Path, name: str) -> list[str]:
    """Write all rows of a table anew, as compaction does; return the files it had."""
    with closing(load_catalog("default", **catalog_properties(tmp_path))) as catalog:
        table = catalog.load_table(name)
        files = [task.file.file_path for task in table.scan().plan_files()]
        table.overwrite(table.scan().to_arrow())
        now = {task.file.file_path for task in catalog.load_table(name).scan().plan_files()}
    assert not now & set(files)
    return files


@pytest.mark.parametrize(
    ("workers", "begun"),
    [
        (0, 5),
        pytest.param(2, 0, marks=pytest.mark.process),
        pytest.param(2, 5, marks=pytest.mark.process),
    ],
)
def test_a_table_rewritten_while_it_is_read_loses_nothing(
    catalog: Catalog, tmp_path: Path, workers: int, begun: int
) -> None:
    """Before the first batch or in the middle; and it can be resumed at the snapshot it had.

    torch-dataloader-utils plans each file again in its workers, no longer finds it, and skips it
    with a line in the log: 0 rows of 9,000.
    """
    kept = _with_deletes(catalog)
    snapshot = catalog.load_table("db.t").metadata.current_snapshot_id
    loader = _opened(tmp_path, "db.t", num_workers=workers, shuffle=True)
    running = iter(loader)
    before = ids_of(running, begun)
    state = loader.state_dict()
    _rewrite(tmp_path, "db.t")
    none_lost(before + ids_of(running), kept)
    pinned = {"table": {"snapshot_id": snapshot}}
    again = _opened(tmp_path, "db.t", num_workers=workers, shuffle=True, **pinned)
    again.load_state_dict(state)
    none_lost(before + ids_of(again), kept)
    none_lost(ids_of(_opened(tmp_path, "db.t", num_workers=workers)), kept)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_files_that_were_cleaned_away_are_an_error(
    catalog: Catalog, tmp_path: Path, workers: int
) -> None:
    """Which names the file; rows are never left out without a word."""
    kept = _with_deletes(catalog)
    loader = _opened(tmp_path, "db.t", num_workers=workers)
    for file in _rewrite(tmp_path, "db.t"):
        local(file).unlink()
    seen: list[int] = []
    with pytest.raises(SourceChangedError, match="gone"):
        seen.extend(int(i) for batch in loader for i in batch["id"])
    assert len(seen) < len(kept)


def _renamed(catalog: Catalog, tmp_path: Path) -> dict[str, list[Any]]:
    del tmp_path
    table = catalog.create_table("db.t", _rows(0, 1).schema)
    table.append(_rows(0, 100))
    with table.update_schema() as update:
        update.rename_column("text", "words")
    table.append(_rows(100, 100).rename_columns(["id", "words"]))
    return {"words": [f"row {number}" for number in range(200)]}


def _migrated(catalog: Catalog, tmp_path: Path) -> dict[str, list[Any]]:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "lang", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "lang"))
    table = catalog.create_table("db.t", schema, partition_spec=spec)
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    for at, lang in enumerate(("de", "en")):
        path = tmp_path / "warehouse" / f"lang={lang}" / "a.parquet"
        path.parent.mkdir(parents=True)
        ids = list(range(at * 100, at * 100 + 100))
        pq.write_table(pa.table([ids], schema=pa.schema([field])), path)
        commit(table, described(table, path, 100, partition=[lang]))
    return {"lang": ["de"] * 100 + ["en"] * 100}


def _mixed(catalog: Catalog, tmp_path: Path) -> dict[str, list[Any]]:
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    table.append(_rows(0, 100).select(["id"]))
    field = pa.field("id", pa.int64(), metadata={"iceberg.id": "1"})
    path = tmp_path / "warehouse" / "b.orc"
    po.write_table(pa.table([list(range(100, 200))], schema=pa.schema([field])), path)
    commit(table, described(table, path, 100, form=FileFormat.ORC))
    return {}


@pytest.mark.parametrize(
    ("make", "workers"),
    [
        (_renamed, 0),
        (_migrated, 0),
        (_mixed, 0),
        pytest.param(_migrated, 2, marks=pytest.mark.process),
    ],
)
def test_tables_read_as_their_schema_says(
    catalog: Catalog, tmp_path: Path, make: Any, workers: int
) -> None:
    """Whatever each file calls its columns, lacks, or is.

    torch-dataloader-utils gives batches of `text` and batches of `words` out of one loader, leaves
    out columns that only the partition knows, and refuses Parquet beside ORC.
    """
    wanted: dict[str, list[Any]] = make(catalog, tmp_path)
    batches = list(_opened(tmp_path, "db.t", num_workers=workers, batch_size=30))
    assert {tuple(sorted(batch)) for batch in batches} == {tuple(sorted({"id", *wanted}))}
    ids = ids_of(batches)
    none_lost(ids, range(200))
    for name, values in wanted.items():
        found = [value for batch in batches for value in batch[name]]
        assert found == [values[number] for number in ids]


def test_a_list_of_values_leaves_out_files(catalog: Catalog, tmp_path: Path) -> None:
    """By their bounds, when the table is planned: the others are not even there.

    torch-dataloader-utils hands on comparisons only, and opens every file.
    """
    table = catalog.create_table("db.t", _rows(0, 1).schema)
    for at in range(4):
        table.append(_rows(at * 100, 100))
    (wanted,) = (task.file.file_path for task in table.scan("id == 100").plan_files())
    for task in table.scan().plan_files():
        if task.file.file_path != wanted:
            local(task.file.file_path).unlink()
    loader = _opened(
        tmp_path,
        "db.t",
        table={"file_filter": "id in (100, 150)"},
        filters=[("id", "in", [100, 150])],
    )
    assert ids_of(loader) == [100, 150]


def test_what_cannot_be_read_says_what_to_do(catalog: Catalog, tmp_path: Path) -> None:
    """A table that nothing was written to has no rows, one with equality deletes is refused.

    torch-dataloader-utils ends with `'NoneType' object has no attribute 'snapshot_id'` for the
    first, and for the second with another error than the one it documents.
    """
    catalog.create_table("db.empty", _rows(0, 1).schema)
    assert ids_of(_opened(tmp_path, "db.empty")) == []
    table = catalog.create_table("db.t", _rows(0, 1).schema, properties={"format-version": "2"})
    table.append(_rows(0, 100))
    commit(table, equality_deletes(table, [3, 4]))
    with pytest.raises(SchemaError, match=r"equality.*(compact|rewrite)"):
        _opened(tmp_path, "db.t")
