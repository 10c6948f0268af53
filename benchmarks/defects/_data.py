"""The files and tables that all sides read, written by pyarrow, fastavro and pyiceberg."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from tests.core.virtual.tables import (
    commit,
    described,
    equality_deletes,
    local,
    position_deletes,
    sqlite_catalog,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog

__all__ = ["DELETED", "ROWS", "write_data"]

ROWS = 10_000
"""Rows of `rows/` and of the tables."""
DELETED = range(0, ROWS, 10)
"""Rows that position deletes take from the table `db.deleted`."""


def write_data(folder: Path) -> None:
    """Write everything below `folder`, which is new; the same for whoever asks."""
    _parquet(folder)
    _hive(folder / "hive")
    _types(folder / "types")
    _text(folder)
    _others(folder)
    (folder / "tables").mkdir()
    with sqlite_catalog(folder / "tables") as catalog:
        _tables(catalog, folder / "tables")


def _rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    return pa.table({"id": ids, "x": ids / 4, "text": [f"row {i}" for i in ids]})


def _write(path: Path, table: pa.Table, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def _parquet(folder: Path) -> None:
    for at in range(10):
        name = f"part-{at}.parquet"
        _write(folder / "rows" / name, _rows(at * 1000, 1000), row_group_size=100)
        _write(folder / "small" / name, _rows(at * 100, 100))
        _write(folder / "odd" / name, _rows(at * 150, 150))
    _write(folder / "single" / "a.parquet", _rows(0, 1000))
    sizes = (100, 400, 200, 300)
    for at, count in enumerate(sizes):
        _write(folder / "sizes" / f"part-{at}.parquet", _rows(sum(sizes[:at]), count))
    # Columns of which most bytes are of no use to somebody who wants `id`.
    rng = np.random.default_rng(1)
    wide = {f"c{at}": rng.random(400_000) for at in range(20)} | {"id": np.arange(400_000)}
    _write(
        folder / "wide" / "a.parquet", pa.table(wide), row_group_size=40_000, use_dictionary=False
    )


def _hive(folder: Path) -> None:
    for at, (year, lang) in enumerate(((2022, "de"), (2022, "en"), (2023, "de"), (2023, "en"))):
        place = folder / f"year={year}" / f"lang={lang}" / "a.parquet"
        _write(place, _rows(at * 100, 100).select(["id", "x"]))


def _types(folder: Path) -> None:
    ids = pa.array(range(100), pa.int64())
    vector = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(400, dtype=np.float32)), 4)
    _write(folder / "vector.parquet", pa.table({"id": ids, "vector": vector}))
    time = pa.array(
        np.arange("2024-01-01", "2024-04-10", dtype="datetime64[D]"), pa.timestamp("us")
    )
    _write(folder / "time.parquet", pa.table({"id": ids, "time": time}))
    big = [None if i % 10 == 0 else 2**53 + i for i in range(100)]
    _write(folder / "null_int.parquet", pa.table({"id": ids, "n": pa.array(big, pa.int64())}))
    flags = [None if i % 10 == 0 else i % 2 == 0 for i in range(100)]
    _write(folder / "null_bool.parquet", pa.table({"id": ids, "flag": pa.array(flags)}))


def _text(folder: Path) -> None:
    (folder / "text").mkdir()
    lines = [json.dumps({"id": i}) for i in range(200)]
    # A blank line after each tenth row, and none after the last.
    spaced = [line + ("\n\n" if i % 10 == 9 else "\n") for i, line in enumerate(lines)]
    (folder / "text" / "blank.jsonl").write_text("".join(spaced).rstrip("\n"))
    (folder / "text" / "crlf.jsonl").write_bytes("\r\n".join(lines).encode())
    (folder / "text" / "plain.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "array").mkdir()
    (folder / "array" / "a.json").write_text(json.dumps([{"id": i} for i in range(200)]))


def _others(folder: Path) -> None:
    (folder / "avro").mkdir()
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    with (folder / "avro" / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": i} for i in range(200)])
    # Stripes are cut by bytes, so those of short texts have many more rows.
    rng = np.random.default_rng(0)
    lengths = 1 + 600 * (np.arange(12_000) / 12_000) ** 3
    texts = [bytes(rng.integers(0, 256, int(length), np.uint8)) for length in lengths]
    (folder / "orc").mkdir()
    table = pa.table({"id": np.arange(12_000), "b": texts})
    po.write_table(table, folder / "orc" / "a.orc", stripe_size=256 << 10, batch_size=64)


# --- tables ---------------------------------------------------------------------------------------

_SMALL_GROUPS = {"write.parquet.row-group-limit": "1000", "format-version": "2"}


def _id_text(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "text": [f"row {i}" for i in range(first, first + count)]})


def _tables(catalog: Catalog, folder: Path) -> None:
    schema = _id_text(0, 1).schema
    for name in ("deleted", "rewritten"):
        table = catalog.create_table(f"db.{name}", schema, properties=_SMALL_GROUPS)
        table.append(_id_text(0, ROWS))
        (task,) = table.scan().plan_files()
        commit(table, position_deletes(table, [(task.file.file_path, row) for row in DELETED]))
    table = catalog.create_table("db.renamed", schema)
    table.append(_id_text(0, 100))
    with table.update_schema() as update:
        update.rename_column("text", "words")
    table.append(_id_text(100, 100).rename_columns(["id", "words"]))
    catalog.create_namespace(("db", "deep"))
    catalog.create_table(("db", "deep", "t"), schema).append(_id_text(0, 100))
    table = catalog.create_table("db.tagged", schema)
    table.append(_id_text(0, 100))
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "v1").commit()
    table.append(_id_text(100, 100))
    table = catalog.create_table("db.equality", schema, properties={"format-version": "2"})
    table.append(_id_text(0, 100))
    commit(table, equality_deletes(table, [3, 4]))
    catalog.create_table("db.empty", schema)
    _migrated(catalog, folder)
    _mixed(catalog, folder)
    _pruned(catalog)


def _migrated(catalog: Catalog, folder: Path) -> None:
    """Files of a Hive table: what the folders say stands in no column."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "lang", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "lang"))
    table = catalog.create_table("db.migrated", schema, partition_spec=spec)
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    for at, lang in enumerate(("de", "en")):
        path = folder / "moved" / f"lang={lang}" / "a.parquet"
        ids = list(range(at * 100, at * 100 + 100))
        _write(path, pa.table([ids], schema=pa.schema([field])))
        commit(table, described(table, path, 100, partition=[lang]))


def _mixed(catalog: Catalog, folder: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    table = catalog.create_table("db.mixed", schema)
    table.append(pa.table({"id": pa.array(range(100), pa.int64())}))
    path = folder / "moved" / "b.orc"
    field = pa.field("id", pa.int64(), metadata={"iceberg.id": "1"})
    po.write_table(pa.table([list(range(100, 200))], schema=pa.schema([field])), path)
    table = catalog.load_table("db.mixed")
    commit(table, described(table, path, 100, form=FileFormat.ORC))


def _pruned(catalog: Catalog) -> None:
    """A table of which all files but one are gone; the bounds say which one has rows 100 to 199."""
    table = catalog.create_table("db.pruned", _id_text(0, 1).schema)
    for at in range(4):
        table.append(_id_text(at * 100, 100))
    wanted = next(iter(table.scan("id == 100").plan_files())).file.file_path
    for task in table.scan().plan_files():
        if task.file.file_path != wanted:
            local(task.file.file_path).unlink()
