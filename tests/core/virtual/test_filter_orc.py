"""What the statistics of ORC's stripes leave out: never a row more or less than brute force."""

from __future__ import annotations

import io
import math
import operator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from tests.core.virtual.filtering import SIGNS, check, expressions, flags_of, kept, tables
from tests.core.virtual.kind_reading import Opened

from streaming_core._store import MemoryStore, Store
from streaming_core._virtual import SourceFile, build_index
from streaming_core._virtual._filter import Filter
from streaming_core._virtual._kinds import _packing
from streaming_core._virtual._kinds._orc_bounds import Said, stripe_bounds
from streaming_core._virtual._kinds._orc_bytes import put
from streaming_core._virtual._kinds._orc_tail import Form
from streaming_core._virtual._select import selected_rows
from streaming_core._virtual._statistics import TRUE

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHIPPED = Path(pytest.importorskip("pyarrow.tests").__path__[0]) / "data" / "orc"
_COLUMNS = "ifgsydtznpqb"
"""Of the columns of the tables those that ORC has."""


@pytest.fixture(scope="module", autouse=True)
def _stripes_stay_apart() -> Iterator[None]:
    """Let a unit be one stripe, however small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_packing, "_FEW_BYTES", 0)
        yield


def _stored(data: bytes) -> tuple[Store, SourceFile]:
    store = MemoryStore()
    info = store.put("a.orc", [data])
    return store, SourceFile("a.orc", info.size, info.etag)


def _file(table: pa.Table, group: int, **options: Any) -> bytes:
    sink = io.BytesIO()
    orc.write_table(table, sink, stripe_size=1, batch_size=group, **options)
    return sink.getvalue()


@given(
    table=tables(_COLUMNS),
    expression=expressions(_COLUMNS),
    group=st.integers(1, 9),
    stride=st.sampled_from([1, 2, 10_000]),
    codec=st.sampled_from(["uncompressed", "zlib", "zstd"]),
)
def test_no_row_is_lost_or_added(
    table: pa.Table, expression: Any, group: int, stride: int, codec: str
) -> None:
    """And what is said of units is true of each of their rows."""
    data = _file(table, group, row_index_stride=stride, compression=codec)
    store, file = _stored(data)
    check(store, file, orc.ORCFile(io.BytesIO(data)).read(), expression)


def test_what_statistics_decide_is_not_fetched() -> None:
    """Neither where no row can meet the condition, nor where all must; for every type."""
    count = 1000
    numbers = np.arange(count)
    table = pa.table(
        {
            "x": numbers,
            "f": numbers / 2,
            "g": pa.array(numbers, pa.float32()),
            "s": [f"{number:04d}" for number in numbers],
            "d": pa.array(numbers.astype(np.int32), pa.date32()),
            "t": pa.array(numbers * 10**9, pa.timestamp("ns")),
            "z": pa.array(numbers * 10**9, pa.timestamp("ns", "UTC")),
            "p": pa.array([Decimal(int(number)) / 4 for number in numbers], pa.decimal128(12, 2)),
            "b": numbers < 500,
            "m": pa.array([None if number < 300 else 1 for number in numbers]),
        }
    )
    store, file = _stored(_file(table, 100))
    index = build_index(store, [file], "orc")
    assert len(index.files) == 10
    moment = datetime(1970, 1, 1, 0, 9, 10)  # noqa: DTZ001 - as the column is
    cases: list[tuple[Any, int]] = [
        (pc.field("x") >= 500, 0),
        (pc.field("x") > 550, 1),
        (pc.field("x").isin([3, 903, 5000]), 2),
        (pc.field("f") < 25, 1),
        (pc.field("f") > 275, 5),  # there may be NaN, which is not more
        (pc.field("g") > 550, 5),
        (pc.field("s") > "0550", 1),
        (pc.field("d") < date(1970, 2, 1), 1),
        (pc.field("t") > moment, 1),
        (pc.field("z") > pa.scalar(moment, pa.timestamp("ns", "UTC")), 1),
        (pc.field("p") > Decimal("137.5"), 1),
        (pc.field("b") == True, 0),  # noqa: E712 - an expression
        (pc.field("m").is_null(), 0),
        (pc.field("m") == 1, 0),
    ]
    asked: dict[str, int] = {}
    for expression, _ in cases:

        def told(_: int, number: int, text: str = str(expression)) -> None:
            asked[text] = number

        asked[str(expression)] = 0
        selected_rows(index, store, Filter.of(expression), progress=told)
    assert asked == {str(expression): wanted for expression, wanted in cases}


def test_a_number_behind_no_number_is_found() -> None:
    """Writers that begin a part of a stripe with NaN forget what else is in it."""
    values = [1.0, 2.0, math.nan, 100.0]
    data = _file(pa.table({"f": values}), 4, row_index_stride=2)
    store, file = _stored(data)
    index = build_index(store, [file], "orc")
    for sign in SIGNS:
        for value in (*values, 50.0):
            found = kept(index, store, Filter.of(sign(pc.field("f"), value)))
            assert found == [bool(sign(one, value)) for one in values]


@pytest.mark.parametrize("path", sorted(_SHIPPED.glob("*.orc")), ids=lambda path: path.name)
def test_files_of_other_writers(path: Path) -> None:
    """Java's among them: what is compared with values that they have."""
    data = path.read_bytes()
    store, file = _stored(data)
    index = build_index(store, [file], "orc")
    plain = orc.ORCFile(io.BytesIO(data)).read()
    looked = pruned = 0
    for name in plain.column_names:
        column = plain[name]
        if pa.types.is_nested(column.type):
            continue
        values = column.unique().drop_null()
        for at in np.unique(np.linspace(0, max(0, len(values) - 1), 7).astype(int)):
            for sign in SIGNS if len(values) else ():
                wanted = Filter.of(sign(pc.field(name), values[int(at)]))
                truth = wanted_rows(sign, column, values[int(at)])
                assert kept(index, store, wanted) == truth
                flags = flags_of(index, store, wanted)
                looked += len(flags)
                pruned += int(np.count_nonzero((flags & TRUE) == 0))
    assert looked or not plain.num_rows


def wanted_rows(sign: Any, column: Any, value: Any) -> list[bool]:
    """Return what a comparison says of each value, by Arrow."""
    names = {
        operator.lt: pc.less,
        operator.le: pc.less_equal,
        operator.gt: pc.greater,
        operator.ge: pc.greater_equal,
        operator.eq: pc.equal,
        operator.ne: pc.not_equal,
    }
    return [one is True for one in names[sign](column, value).to_pylist()]


# --- what writers may note ------------------------------------------------------------------------


def _form(writer: int, kind: int) -> Form:
    footer = put(4, put(1, 12)) + put(4, put(1, kind))
    return Form(0, 1 << 18, b"", writer, footer, 2, ((1, 2),))


def _zig(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


_TEXTS = put(1, 2) + put(4, put(1, b"b") + put(2, b"d"))
_CUT = put(1, 2) + put(4, put(4, b"bb") + put(5, b"dd"))
_DAYS = put(1, 2) + put(7, put(1, _zig(-200_000)) + put(2, _zig(5)))
_LATER = put(1, 2) + put(7, put(1, _zig(-100_000)) + put(2, _zig(5)))
_TIMES = put(1, 2) + put(9, put(1, 0) + put(2, 0) + put(3, _zig(-5)) + put(4, _zig(7)))
_WRONG = put(1, 2) + put(2, put(1, _zig(7)) + put(2, _zig(5)))
_MONEY = put(1, 2) + put(6, put(1, b"1.5") + put(2, b"22"))


@pytest.mark.parametrize(
    ("writer", "orc_kind", "kind", "statistics", "least", "most"),
    [
        (0, 7, pa.string(), _TEXTS, None, None),
        (1, 7, pa.string(), _TEXTS, "b", "d"),
        (6, 7, pa.string(), _CUT, "bb", "dd"),
        (6, 17, pa.string(), _TEXTS, None, None),
        (6, 7, pa.string(), put(1, 2) + put(4, put(1, b"\xff")), None, None),
        (6, 15, pa.date32(), _DAYS, None, None),
        (6, 15, pa.date32(), _LATER, date(1696, 3, 17), date(1970, 1, 6)),
        (6, 3, pa.int32(), _WRONG, None, None),
        (6, 3, pa.int32(), put(1, 2), None, None),
        (6, 14, pa.decimal128(9, 2), _MONEY, None, None),
        (7, 14, pa.decimal128(9, 2), _MONEY, Decimal("1.50"), Decimal("22.00")),
        (7, 14, pa.decimal128(9, 0), _MONEY, None, Decimal(22)),
    ],
)
def test_only_what_is_certain_is_told(
    writer: int, orc_kind: int, kind: Any, statistics: bytes, least: Any, most: Any
) -> None:
    """By the version of the writer, the calendar and the type."""
    said = Said(2, [b"", statistics], put(3, b"UTC"))
    found = stripe_bounds([said], _form(writer, orc_kind), 1, orc_kind, kind)
    assert (found.least and found.least.as_py(), found.most and found.most.as_py()) == (least, most)
    assert not found.has_null
    assert found.has_value


@pytest.mark.parametrize(
    ("zone", "is_known"), [(b"UTC", True), (b"GMT", True), (b"Europe/Berlin", False), (b"", False)]
)
def test_times_are_known_without_a_zone(zone: bytes, is_known: bool) -> None:
    """And no more exactly than to a millisecond."""
    footer = put(3, zone) if zone else b""
    said = Said(3, [b"", _TIMES], footer)
    found = stripe_bounds([said], _form(6, 9), 1, 9, pa.timestamp("ns"))
    assert found.has_null
    ends = [None if one is None else one.value for one in (found.least, found.most)]
    assert ends == ([-6_000_000, 8_000_000] if is_known else [None, None])


@given(st.binary(max_size=60), st.integers(0, 60))
def test_broken_statistics_say_nothing(noise: bytes, at: int) -> None:
    """And are no reason not to read the file."""
    opened = Opened("orc", _file(pa.table({"x": [5, 7], "s": ["a", None]}), 2))
    meta = msgspec.msgpack.decode(opened.scan.meta)
    (unit,) = opened.scan.units
    assert opened.kind.bounds(opened.file, opened.scan.meta, unit, ["x", "s"]).keys() == {"x", "s"}
    meta[-1] = meta[-1][:at] + noise + meta[-1][at + len(noise) :]
    found = opened.kind.bounds(opened.file, msgspec.msgpack.encode(meta), unit, ["x", "s"])
    assert found.keys() <= {"x", "s"}
    assert opened.read().num_rows == 2
