"""Filters of tables: what partitions and statistics of files tell is not read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import DoubleType, LongType
from tests.core.virtual.tables import sqlite_catalog

from streaming_core._store import open_store
from streaming_core._virtual import SourceFile, VirtualIndex, build_index
from streaming_core._virtual._expression import evaluated
from streaming_core._virtual._filter import Filter
from streaming_core._virtual._select import selected_rows
from streaming_core._virtual._tables import TablePlan, dump, plan_delta, plan_iceberg
from streaming_core._virtual._view import Decoder, View

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_core._store import Store

_ROWS = 300


def _indexed(plan: TablePlan) -> tuple[VirtualIndex, Store]:
    store = open_store(plan.root)
    files = [SourceFile(file.key, file.size, "") for file in plan.files]
    return build_index(store, files, "table", {"plan": dump(plan)}), store


def _kept(index: VirtualIndex, store: Store, condition: Any) -> tuple[list[Any], int]:
    """Return the ids that a filter keeps, and how many units had to be read for that."""
    asked: list[int] = []
    keep = selected_rows(
        index, store, Filter.of(condition), progress=lambda _, total: asked.append(total)
    )
    decoder = Decoder(index, store, View(("id",)), keep)
    units = [at for at in range(len(index.files)) if any(keep.get(at, b"all"))]
    ids = [number for at in units for number in decoder.batch(at).column("id").to_pylist()]
    return sorted(ids), max(asked, default=0)


def _brute(index: VirtualIndex, store: Store, condition: Any) -> list[Any]:
    decoder = Decoder(index, store, View())
    found = []
    for at in range(len(index.files)):
        table = pa.Table.from_batches([decoder.batch(at)])
        mask = evaluated(condition, table).fill_null(False)
        found += table.filter(mask).column("id").to_pylist()
    return sorted(found)


def _rows(first: int, part: float | None, rows: int = _ROWS) -> pa.Table:
    ids = np.arange(first, first + rows)
    parts = pa.array([part] * rows, pa.float64())
    some = pa.array([None if n % 3 == 0 else float(n) for n in ids])
    return pa.table({"id": ids, "part": parts, "some": some, "text": [f"{n:06}" for n in ids]})


@pytest.fixture
def delta(tmp_path: Path) -> TablePlan:
    """Return a table in five parts, one of NaN and one of nothing, with deleted rows."""
    where = str(tmp_path / "delta")
    for at, part in enumerate((0.0, 1.5, -2.0, math.nan, None)):
        write_deltalake(where, _rows(at * _ROWS, part), partition_by=["part"], mode="append")
    DeltaTable(where).delete("id % 7 = 0")
    return plan_delta(where)


@pytest.fixture
def iceberg(tmp_path: Path) -> TablePlan:
    """Return a table of which files have a column by another name, of another type, or not."""
    with sqlite_catalog(tmp_path) as catalog:
        schema = pa.schema([("id", pa.int32()), ("old", pa.float32()), ("text", pa.string())])
        table = catalog.create_table("db.t", schema)
        for at in range(2):
            rows = _rows(at * _ROWS, None)
            rows = rows.rename_columns(["id", "part", "old", "text"]).select(schema.names)
            table.append(rows.cast(schema))
        with table.update_schema() as update:
            update.rename_column("old", "some")
        with table.update_schema() as update:
            update.add_column("part", DoubleType())
            update.update_column("some", DoubleType())
            update.update_column("id", LongType())
        for at, part in ((2, 1.5), (3, None)):
            table.append(_rows(at * _ROWS, part))
        return plan_iceberg(table)


_FIELD = pc.field
_CONDITIONS = [
    _FIELD("part") > 0,
    _FIELD("part") >= 0,
    _FIELD("part") == 1.5,
    _FIELD("part") != 1.5,
    ~(_FIELD("part") < 100),
    _FIELD("part").is_null(),
    _FIELD("part").is_valid(),
    _FIELD("part").isin([1.5, -2.0]),
    ~_FIELD("part").isin([1.5, -2.0]),
    _FIELD("id") < 250,
    (_FIELD("id") >= 299) & (_FIELD("id") <= 601),
    _FIELD("some") > 550.5,
    _FIELD("some").is_null(),
    _FIELD("text") == "000301",
    (_FIELD("text") < "000010") | (_FIELD("part") < -1),
    (_FIELD("id") > 10**6),
]


@pytest.mark.parametrize("number", range(len(_CONDITIONS)))
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_filter_keeps_what_brute_force_does(
    kind: str, number: int, request: pytest.FixtureRequest
) -> None:
    """Whatever is known beforehand of partitions, of columns that files lack, and of NaN."""
    index, store = _indexed(request.getfixturevalue(kind))
    wanted = _brute(index, store, _CONDITIONS[number])
    assert _kept(index, store, _CONDITIONS[number])[0] == wanted


def test_parts_of_a_table_that_cannot_match_are_not_read(delta: TablePlan) -> None:
    """Of a partition none is, and of other columns only what statistics leave open."""
    index, store = _indexed(delta)
    # Of floats only what has none of them is left out: bounds say nothing of NaN.
    assert _kept(index, store, _FIELD("part") == 1.5)[1] == 2
    assert _kept(index, store, _FIELD("part").is_null())[1] == 0
    assert _kept(index, store, _FIELD("id") < _ROWS // 2)[1] == 1
    assert _kept(index, store, _FIELD("id") >= 2 * _ROWS)[1] == 0


def test_columns_are_told_by_their_ids(iceberg: TablePlan) -> None:
    """Statistics of a renamed column count, and a file without a column need not be read."""
    index, store = _indexed(iceberg)
    assert _kept(index, store, _FIELD("some") > 2 * _ROWS)[1] == 2  # 2 of 4 files
    assert _kept(index, store, _FIELD("part") > 1)[1] == 1
    assert _kept(index, store, _FIELD("id") < 10)[1] == 1
