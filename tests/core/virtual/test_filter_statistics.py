"""What is left out unread, and what is kept unread: never a row more or less than brute force."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.filtering import SIGNS, check, expressions, flags_of, kept, tables

from streaming_core._store import LocalStore, MemoryStore, Store
from streaming_core._virtual import SourceFile, build_index
from streaming_core._virtual._expression import evaluated
from streaming_core._virtual._filter import Filter
from streaming_core._virtual._kinds import _packing
from streaming_core._virtual._select import selected_rows
from streaming_core._virtual._statistics import TRUE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def _groups_stay_apart() -> Iterator[None]:
    """Let a unit be one row group, however small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_packing, "_FEW_BYTES", 0)
        yield


def _stored(table: pa.Table, **options: Any) -> tuple[Store, SourceFile]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    store = MemoryStore()
    info = store.put("a.parquet", [sink.getvalue()])
    return store, SourceFile("a.parquet", info.size, info.etag)


@pytest.mark.slow
@given(
    table=tables(),
    expression=expressions(),
    group=st.integers(1, 9),
    statistics=st.sampled_from([True, True, False, ["i", "f", "s", "d"]]),
    version=st.sampled_from(["1.0", "2.6"]),
)
def test_no_row_is_lost_or_added(
    table: pa.Table, expression: Any, group: int, statistics: Any, version: str
) -> None:
    """And what is said of units is true of each of their rows."""
    store, file = _stored(table, row_group_size=group, write_statistics=statistics, version=version)
    plain = pq.read_table(io.BytesIO(store.get("a.parquet")))
    check(store, file, plain, expression)


def test_what_statistics_decide_is_not_fetched() -> None:
    """Neither where no row can meet the condition, nor where all must."""
    table = pa.table({"x": np.arange(1000), "v": np.random.default_rng(0).random(1000)})
    store, file = _stored(table, row_group_size=100)
    index = build_index(store, [file], "parquet")
    cases: list[tuple[Any, int]] = [
        (pc.field("x") >= 500, 0),
        (pc.field("x") > 550, 1),
        ((pc.field("x") > 550) & (pc.field("x") < 560), 1),
        (pc.field("x").isin([3, 903, 5000]), 2),
        (~(pc.field("x") < 950), 1),
        (pc.field("x") == -1, 0),
        (pc.field("x").is_null(), 0),
        (pc.field("x").is_valid(), 0),
        ((pc.field("x") < 100) | (pc.field("x") >= 900), 0),
        ((pc.field("x") < 250) & (pc.field("v") > 0.5), 3),
    ]
    for expression, wanted in cases:
        asked = [0]

        def told(_: int, count: int, asked: list[int] = asked) -> None:
            asked[0] = count

        selected_rows(index, store, Filter.of(expression), progress=told)
        assert asked == [wanted], str(expression)


def test_long_lists_are_looked_at_by_their_ends() -> None:
    """And keep what they hold."""
    table = pa.table({"x": np.arange(5000)})
    store, file = _stored(table, row_group_size=500)
    index = build_index(store, [file], "parquet")
    values = list(range(700, 2700, 2))
    found = kept(index, store, Filter.of([("x", "in", values)]))
    assert np.flatnonzero(found).tolist() == values
    assert (flags_of(index, store, Filter.of([("x", "in", values)])) & TRUE).tolist() == [
        0, 1, 1, 1, 1, 1, 0, 0, 0, 0,
    ]  # fmt: skip


def test_columns_of_files_that_differ() -> None:
    """A column that is wider in one file, and missing in another, is judged as it is read."""
    store = MemoryStore()
    tables = [
        pa.table({"x": pa.array([1, 2, None], pa.int16())}),
        pa.table({"x": pa.array([1.5, math.nan, 7.0], pa.float64())}),
        pa.table({"other": [1, 2, 3]}),
    ]
    files = []
    for at, table in enumerate(tables):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        info = store.put(f"{at}.parquet", [sink.getvalue()])
        files.append(SourceFile(info.key, info.size, info.etag))
    index = build_index(store, files, "parquet")
    yes, no = True, False
    for given_, wanted in (
        ([("x", ">", 1)], [no, yes, no, yes, no, yes, no, no, no]),
        (pc.field("x").is_null(), [no, no, yes, no, no, no, yes, yes, yes]),
        ([("x", "!=", 2)], [yes, no, no, yes, yes, yes, no, no, no]),
        ([("x", "in", [None, 7.0])], [no, no, yes, no, no, yes, yes, yes, yes]),
    ):
        assert kept(index, store, Filter.of(given_)) == wanted


def test_texts_whose_bounds_were_cut(tmp_path: Path) -> None:
    """As other writers do it, which keep the first bytes of a long one only."""
    deltalake = pytest.importorskip("deltalake")
    texts = [f"{'ü' * 60}{letter}" for letter in "abcdefgh"] + ["é" * 90, None, "z" * 300]
    deltalake.write_deltalake(str(tmp_path), pa.table({"s": texts, "n": range(len(texts))}))
    store = LocalStore(tmp_path)
    files = [
        SourceFile(info.key, info.size, info.etag)
        for info in store.list()
        if info.key.endswith(".parquet")
    ]
    index = build_index(store, files, "parquet")
    have: list[str | None] = []
    for file in files:
        have += pq.ParquetFile(tmp_path / file.key).read()["s"].to_pylist()
    for text in (*texts, "ü" * 60, "ü" * 61, "z" * 299, "z" * 301):
        for sign in SIGNS:
            if text is None:
                continue
            found = kept(index, store, Filter.of(sign(pc.field("s"), text)))
            assert found == [value is not None and bool(sign(value, text)) for value in have]


def test_a_float_list_is_equal_as_the_column_is() -> None:
    """0.1 as a float of 32 bits is another number than 0.1."""
    table = pa.table({"g": pa.array([0.1, 0.2, 0.3], pa.float32())})
    store, file = _stored(table)
    index = build_index(store, [file], "parquet")
    for expression in (
        pc.field("g").isin([0.1]),
        pc.field("g") == 0.1,
        pc.field("g") == pa.scalar(0.1, pa.float32()),
        pc.field("g").isin(pa.array([0.1], pa.float32())),
    ):
        truth = evaluated(expression, table).to_pylist()
        assert kept(index, store, Filter.of(expression)) == truth
