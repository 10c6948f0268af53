"""What is left out unread, and what is kept unread: never a row more or less than brute force."""

from __future__ import annotations

import io
import math
import operator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core._store import LocalStore, MemoryStore, Store
from streaming_core._virtual import SourceFile, VirtualIndex, build_index
from streaming_core._virtual._expression import evaluated
from streaming_core._virtual._filter import Filter
from streaming_core._virtual._kinds import _packing
from streaming_core._virtual._select import selected_rows
from streaming_core._virtual._statistics import FALSE, TRUE, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FIELDS = {
    "i": pa.int32(),
    "u": pa.uint32(),
    "big": pa.uint64(),
    "f": pa.float64(),
    "g": pa.float32(),
    "s": pa.string(),
    "y": pa.binary(),
    "d": pa.date32(),
    "t": pa.timestamp("ms"),
    "z": pa.timestamp("us", tz="UTC"),
    "n": pa.timestamp("ns"),
    "k": pa.time64("us"),
    "p": pa.decimal128(20, 3),
    "q": pa.decimal128(5, 1),
    "b": pa.bool_(),
    "c": pa.dictionary(pa.int32(), pa.string()),
}
_DAY = datetime(2024, 1, 1)  # noqa: DTZ001 - as the columns are
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.sampled_from([-(1 << 31), -3, -1, 0, 1, 2, 5, (1 << 31) - 1]),
    "u": st.sampled_from([0, 1, 7, 1 << 31, (1 << 32) - 1]),
    "big": st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    "f": st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.1, 2.5, 3.0, math.inf, math.nan]),
    "g": st.sampled_from([-1.5, 0.0, 0.1, 0.5, 2.5, 3.0, math.nan]),
    "s": st.sampled_from(["", "a", "ab", "b", "z", "zz", "é", "\U0001f600", "\uffff", "a" * 200]),
    "y": st.sampled_from([b"", b"\x00", b"a", b"\x7f", b"\x80", b"\xff", b"\xff" * 90]),
    "d": st.sampled_from([date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]),
    "t": st.integers(-3, 3).map(lambda hours: _DAY + timedelta(hours=hours)),
    "z": st.integers(-3, 3).map(lambda hours: (_DAY + timedelta(hours=hours)).replace(tzinfo=UTC)),
    "n": st.integers(-3, 3).map(lambda hours: _DAY + timedelta(hours=hours)),
    "k": st.integers(0, 5).map(lambda hour: time(hour, 30)),
    "p": st.integers(-3000, 3000).map(lambda number: Decimal(number * 500).scaleb(-3)),
    "q": st.sampled_from([Decimal("-9999.9"), Decimal("-0.1"), Decimal(0), Decimal("9999.9")]),
    "b": st.booleans(),
    "c": st.sampled_from(["x", "y", "zeta"]),
}
_SIGNS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
_LITERALS = {**_FIELDS, "c": pa.string()}


@pytest.fixture(scope="module", autouse=True)
def _groups_stay_apart() -> Iterator[None]:
    """Let a unit be one row group, however small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_packing, "_FEW_BYTES", 0)
        yield


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@st.composite
def _conditions(draw: st.DrawFn, name: str) -> Any:
    field = pc.field(name)
    form = draw(st.sampled_from(["compare", "flipped", "in", "null", "valid", "other"]))
    value = draw(_VALUES[name])
    literal = pa.scalar(value, _LITERALS[name])
    sign = draw(st.sampled_from(_SIGNS))
    if form == "compare":
        return sign(field, literal)
    if form == "flipped":
        return sign(pc.scalar(literal), field)
    if form == "in":
        values = draw(st.lists(st.one_of(st.none(), _VALUES[name]), max_size=4))
        return field.isin(pa.array(values, _LITERALS[name]))
    if form == "null":
        return field.is_null(nan_is_null=draw(st.booleans()) and name in "fg")
    if form == "valid":
        return field.is_valid()
    return sign(field, literal).is_null()


@st.composite
def _expressions(draw: st.DrawFn) -> Any:
    names = st.sampled_from(sorted(_FIELDS))
    return draw(
        st.recursive(
            names.flatmap(_conditions),
            lambda inner: st.one_of(
                st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
                st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
                inner.map(operator.invert),
                inner.map(lambda one: one == pc.scalar(False)),
            ),
            max_leaves=4,
        )
    )


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 24))
    columns = {}
    for name, kind in _FIELDS.items():
        # Few different values in a table, so that groups differ and some hold one value only.
        some = draw(st.lists(st.one_of(st.none(), _VALUES[name]), min_size=1, max_size=3))
        picks = draw(st.lists(st.sampled_from(some), min_size=rows, max_size=rows))
        columns[name] = pa.array(picks, _LITERALS[name]).cast(kind)
    return pa.table(columns)


def _stored(table: pa.Table, **options: Any) -> tuple[Store, SourceFile]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    store = MemoryStore()
    info = store.put("a.parquet", [sink.getvalue()])
    return store, SourceFile("a.parquet", info.size, info.etag)


def _flags(index: VirtualIndex, store: Store, wanted: Filter) -> np.ndarray[Any, Any]:
    """Return what is said of each unit before it is read."""
    from streaming_core._virtual._select import _Selection
    from streaming_core._virtual._statistics import outcomes

    selection = _Selection(index, store, wanted)
    return outcomes(wanted.tree, selection._facts(), len(index.files))


def _kept(index: VirtualIndex, store: Store, wanted: Filter) -> list[bool]:
    keep = selected_rows(index, store, wanted)
    found: list[bool] = []
    for unit, rows in enumerate(index.samples.tolist()):
        bits = keep.get(unit)
        if bits is None:
            found += [True] * rows
        elif bits == b"":
            found += [False] * rows
        else:
            found += np.unpackbits(np.frombuffer(bits, np.uint8), count=rows).astype(bool).tolist()
    return found


@settings(max_examples=150)
@given(
    table=_tables(),
    expression=_expressions(),
    group=st.integers(1, 9),
    statistics=st.sampled_from([True, True, False, ["i", "f", "s", "d"]]),
    version=st.sampled_from(["1.0", "2.6"]),
)
def test_no_row_is_lost_or_added(
    table: pa.Table, expression: Any, group: int, statistics: Any, version: str
) -> None:
    """And what is said of units is true of each of their rows."""
    store, file = _stored(table, row_group_size=group, write_statistics=statistics, version=version)
    index = build_index(store, [file], "parquet")
    wanted = Filter.of(expression)
    plain = pq.read_table(io.BytesIO(store.get("a.parquet")))
    truth = evaluated(expression, plain).to_pylist()
    assert _kept(index, store, wanted) == [value is True for value in truth]
    assert wanted.tree is not None
    bits = {True: TRUE, False: FALSE, None: UNKNOWN}
    for unit, flags in enumerate(_flags(index, store, wanted).tolist()):
        for value in truth[unit * group : (unit + 1) * group]:
            assert flags & bits[value], (str(expression), unit, value)


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
    found = _kept(index, store, Filter.of([("x", "in", values)]))
    assert np.flatnonzero(found).tolist() == values
    assert (_flags(index, store, Filter.of([("x", "in", values)])) & TRUE).tolist() == [
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
        assert _kept(index, store, Filter.of(given_)) == wanted


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
        for sign in _SIGNS:
            if text is None:
                continue
            found = _kept(index, store, Filter.of(sign(pc.field("s"), text)))
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
        assert _kept(index, store, Filter.of(expression)) == truth
