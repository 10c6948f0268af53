"""What tests of filters share: tables, conditions, and what brute force says of both."""

from __future__ import annotations

import math
import operator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from streaming_core._store import RequestPolicy
from streaming_core._virtual import SourceFile, VirtualIndex, build_index
from streaming_core._virtual._expression import evaluated
from streaming_core._virtual._filter import Filter
from streaming_core._virtual._select import _Selection, selected_rows
from streaming_core._virtual._statistics import FALSE, TRUE, UNKNOWN, outcomes

if TYPE_CHECKING:
    from streaming_core._store import Store

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
    "n": st.one_of(
        st.integers(-3, 3).map(lambda hours: _DAY + timedelta(hours=hours)),
        st.sampled_from([timedelta(0), timedelta(microseconds=-1), timedelta(microseconds=1)]).map(
            lambda after: datetime(1970, 1, 1) + after  # noqa: DTZ001 - as the columns are
        ),
    ),
    "k": st.integers(0, 5).map(lambda hour: time(hour, 30)),
    "p": st.integers(-3000, 3000).map(lambda number: Decimal(number * 500).scaleb(-3)),
    "q": st.sampled_from([Decimal("-9999.9"), Decimal("-0.1"), Decimal(0), Decimal("9999.9")]),
    "b": st.booleans(),
    "c": st.sampled_from(["x", "y", "zeta"]),
}
SIGNS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
_LITERALS = {**_FIELDS, "c": pa.string()}


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@st.composite
def _conditions(draw: st.DrawFn, name: str) -> Any:
    field = pc.field(name)
    form = draw(st.sampled_from(["compare", "flipped", "in", "null", "valid", "other"]))
    value = draw(_VALUES[name])
    literal = pa.scalar(value, _LITERALS[name])
    sign = draw(st.sampled_from(SIGNS))
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
def expressions(draw: st.DrawFn, among: str = "".join(_FIELDS)) -> Any:
    """Draw a condition on some of the columns."""
    names = st.sampled_from(sorted(among))
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
def tables(draw: st.DrawFn, among: str = "".join(_FIELDS)) -> pa.Table:
    """Draw a table of some of the columns."""
    rows = draw(st.integers(1, 24))
    columns = {}
    for name in among:
        kind = _FIELDS[name]
        # Few different values in a table, so that groups differ and some hold one value only.
        some = draw(st.lists(st.one_of(st.none(), _VALUES[name]), min_size=1, max_size=3))
        picks = draw(st.lists(st.sampled_from(some), min_size=rows, max_size=rows))
        columns[name] = pa.array(picks, _LITERALS[name]).cast(kind)
    return pa.table(columns)


def flags_of(index: VirtualIndex, store: Store, wanted: Filter) -> np.ndarray[Any, Any]:
    """Return what is said of each unit before it is read."""
    selection = _Selection(index, store, wanted, RequestPolicy(1))
    return outcomes(wanted.tree, selection._facts(), len(index.files))


def kept(index: VirtualIndex, store: Store, wanted: Filter) -> list[bool]:
    """Return for each row whether a filter keeps it."""
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


def check(store: Store, file: SourceFile, plain: pa.Table, expression: Any) -> None:
    """Compare with what brute force keeps, and says of each row of each unit."""
    index = build_index(store, [file], file.key.rpartition(".")[2])
    wanted = Filter.of(expression)
    truth = evaluated(expression, plain).to_pylist()
    assert kept(index, store, wanted) == [value is True for value in truth]
    assert wanted.tree is not None
    starts = [0, *np.cumsum(index.samples).tolist()]
    bits = {True: TRUE, False: FALSE, None: UNKNOWN}
    for unit, flags in enumerate(flags_of(index, store, wanted).tolist()):
        for value in truth[starts[unit] : starts[unit + 1]]:
            assert flags & bits[value], (str(expression), unit, value)
