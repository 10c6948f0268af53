"""Filters on tables: what the files' own statistics and the table decide is not fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import DoubleType, LongType, StringType
from tests.core.virtual.filtering import flags_of, kept
from tests.core.virtual.tables import commit, position_deletes, sqlite_catalog
from tests.profiles import examples

from streaming_core._store import open_store
from streaming_core._virtual import VirtualIndex, build_index
from streaming_core._virtual._expression import evaluated
from streaming_core._virtual._filter import Filter
from streaming_core._virtual._kinds import _packing
from streaming_core._virtual._select import selected_rows
from streaming_core._virtual._statistics import FALSE, TRUE, UNKNOWN
from streaming_core._virtual._tables import TablePlan, dump, plan_delta, plan_iceberg
from streaming_core._virtual._view import Decoder, View

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_core._store import Store

_GROUP = 1000


@pytest.fixture(autouse=True, scope="module")
def _small_units() -> Iterator[None]:
    """Take no row groups together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_packing, "_FEW_BYTES", 0)
        yield


def _rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "real": pa.array([None if n % 5 == 0 else n / 4 for n in numbers], pa.float32()),
            "text": pa.array([f"t{n:06d}" for n in numbers], pa.string()),
        }
    )


def _opened(plan: TablePlan) -> tuple[VirtualIndex, Store]:
    store = open_store(plan.root)
    files = [file.source() for file in plan.files]
    return build_index(store, files, "table", {"plan": dump(plan)}), store


def _all(index: VirtualIndex, store: Store) -> pa.Table:
    decoder = Decoder(index, store, View())
    batches = [decoder.batch(at) for at in range(len(index.files))]
    return pa.Table.from_batches(batches, decoder.schema)


def _asked(index: VirtualIndex, store: Store, expression: Any) -> int:
    """Return how many units were fetched to say which rows are kept; check these."""
    asked = [0]
    told = Filter.of(expression)
    selected_rows(index, store, told, progress=lambda _, count: asked.__setitem__(0, count))
    truth = evaluated(expression, _all(index, store)).to_pylist()
    assert kept(index, store, told) == [value is True for value in truth]
    return asked[0]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TablePlan]:
    """Return an Iceberg table whose columns were renamed, widened, swapped and added."""
    with sqlite_catalog(tmp_path_factory.mktemp("changed")) as catalog:
        properties = {"write.parquet.row-group-limit": str(_GROUP), "format-version": "2"}
        table = catalog.create_table("db.t", _rows(0, 0).schema, properties=properties)
        table.append(_rows(0, 5 * _GROUP))
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.update_column("id", LongType())
            update.update_column("real", DoubleType())
            update.rename_column("id", "number")
            update.delete_column("text")
        with table.update_schema() as update:
            # Other columns than those that had these names.
            update.add_column("id", LongType())
            update.add_column("text", StringType())
        more = pa.table(
            {
                "number": pa.array(range(5000, 8000), pa.int64()),
                "real": pa.array(np.arange(3000) / 8, pa.float64()),
                "id": pa.array(range(0, -3000, -1), pa.int64()),
                "text": pa.array([f"u{n}" for n in range(3000)], pa.string()),
            }
        )
        table.append(more)
        (first,) = [
            task.file.file_path
            for task in table.scan().plan_files()
            if task.file.record_count == 5000
        ]
        gone = [(first, row) for row in (*range(1000, 2000), 2500, 4999)]
        commit(table, position_deletes(table, gone))
        yield plan_iceberg(table)


@pytest.mark.parametrize(
    ("expression", "units"),
    [
        (pc.field("number") >= 7000, 0),
        (pc.field("number") > 7500, 1),
        (pc.field("number") < 1500, 0),  # the rest of that unit was deleted
        (pc.field("number") == 2500, 1),  # was deleted, which statistics do not know
        (pc.field("number").isin([3, 7777]), 2),
        (pc.field("real") > 1000.0, 1),
        (pc.field("id") == 17, 0),  # of what was called so once this is another column
        (pc.field("id") == -17, 1),
        (pc.field("id").is_null(), 0),
        (pc.field("text").is_valid(), 0),
        ((pc.field("text") > "t000100") & (pc.field("text") < "t000200"), 0),
    ],
)
def test_columns_are_those_of_the_table(changed: TablePlan, expression: Any, units: int) -> None:
    """By their ids, whatever a file calls them; deleted rows are not among those that are kept."""
    index, store = _opened(changed)
    assert len(index.files) == 7
    assert _asked(index, store, expression) == units


_SIGNS = ["==", "!=", "<", "<=", ">", ">="]
_CONDITIONS = st.one_of(
    st.tuples(st.just("number"), st.sampled_from(_SIGNS), st.integers(-5, 8005)),
    st.tuples(st.just("id"), st.sampled_from(_SIGNS), st.integers(-3005, 5)),
    st.tuples(
        st.just("real"), st.sampled_from(_SIGNS), st.integers(-8, 10008).map(lambda n: n / 8)
    ),
    st.tuples(
        st.just("text"), st.sampled_from(_SIGNS), st.sampled_from(["", "t000005", "u2", "v"])
    ),
    st.tuples(
        st.just("id"), st.just("in"), st.lists(st.none() | st.integers(-3005, 5), min_size=1)
    ),
)


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(_CONDITIONS, min_size=1, max_size=2), min_size=1, max_size=2))
def test_no_row_is_lost_or_added(changed: TablePlan, conditions: list[Any]) -> None:
    """And nothing is said of a unit that one of its rows is not."""
    index, store = _opened(changed)
    wanted = Filter.of(conditions)
    truth = evaluated(wanted.expression, _all(index, store)).to_pylist()
    assert kept(index, store, wanted) == [value is True for value in truth]
    starts = [0, *np.cumsum(index.samples).tolist()]
    bits = {True: TRUE, False: FALSE, None: UNKNOWN}
    for unit, flags in enumerate(flags_of(index, store, wanted).tolist()):
        assert all(flags & bits[value] for value in truth[starts[unit] : starts[unit + 1]])


@pytest.mark.parametrize(
    ("expression", "units"),
    [
        (pc.field("part") == 1, 0),
        ((pc.field("part") == 1) & (pc.field("id") < 10), 1),
        (pc.field("part").is_null(), 0),
        (pc.field("part").isin([0, None]), 0),
        ((pc.field("part") != 0) | (pc.field("id") < 0), 0),
        (pc.field("id") > 3999, 0),
    ],
)
def test_values_of_partitions_decide_for_all_rows(
    tmp_path: Path, expression: Any, units: int
) -> None:
    """Null among them; of Delta, with deleted rows."""
    parts = [None, 0, 1, 2]
    ids = range(4000)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array([parts[n % 4] for n in ids], pa.int32()),
        }
    )
    write_deltalake(tmp_path, table, partition_by=["part"])
    DeltaTable(tmp_path).delete("id % 3 = 0")
    index, store = _opened(plan_delta(str(tmp_path)))
    assert len(index.files) == 4
    assert _asked(index, store, expression) == units
