"""Of many types few, and of several files' one; encodings are undone at any depth."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streaming_core._virtual._normal import check_nulls, normal_schema, normal_table
from streaming_core._virtual._types import normal_type, plain, unified
from streaming_core.errors import MissingColumnError, SchemaError

_TEXTS = ["a", None, "bb", "a"]
_VIEWS = pa.array(_TEXTS, pa.string_view())
_CATEGORIES = pa.DictionaryArray.from_arrays(
    pa.array([0, None, 1, 0], pa.uint32()), pa.array(["a", "bb"], pa.string_view())
)
_UUIDS = pa.ExtensionArray.from_storage(
    pa.uuid(), pa.array([uuid.UUID(int=at).bytes for at in range(4)], pa.binary(16))
)


def _normal(table: pa.Table, nulls: Any = "none", schema: Any = None) -> Any:
    return normal_table(table, normal_schema(schema or table.schema, nulls), nulls, {}, "a file")


def _nested(items: Any) -> dict[str, Any]:
    """Return arrays of four rows that hold four items in every way there is."""
    lists = pa.ListArray.from_arrays([0, 2, 2, 3, 4], items)
    mask = pa.array([False, True, False, False])
    return {
        "list": lists,
        "large": pa.LargeListArray.from_arrays([0, 2, 2, 3, 4], items, mask=mask),
        "fixed": pa.FixedSizeListArray.from_arrays(items, 1, mask=mask),
        "struct": pa.StructArray.from_arrays([items], ["x"], mask=mask),
        "deep": pa.ListArray.from_arrays(
            [0, 1, 1, 4, 4], pa.StructArray.from_arrays([items, lists], ["x", "y"])
        ),
        "map": pa.MapArray.from_arrays([0, 2, 2, 3, 4], pa.array(["a", "b", "c", "d"]), items),
        "view": pa.ListViewArray.from_arrays([2, 0, 0, 3], [2, 0, 1, 1], items),
    }


@pytest.mark.parametrize("name", list(_nested(_VIEWS)))
@pytest.mark.parametrize("how", ["categories", "views", "dictionary", "runs", "uuids"])
@pytest.mark.parametrize(("begin", "stop"), [(0, 4), (1, 4), (2, 3), (4, 4)])
def test_encoded_values_are_the_same_when_they_are_plain(
    name: str, how: str, begin: int, stop: int
) -> None:
    """Categories as polars writes them, within whatever holds them, cut anywhere."""
    items = {
        "categories": _CATEGORIES,
        "views": _VIEWS,
        "dictionary": pa.array(_TEXTS).dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), ["a", None]),
        "uuids": _UUIDS,
    }[how]
    told = pa.array([b.as_py() for b in _UUIDS.storage] if how == "uuids" else items.to_pylist())
    column = _nested(items)[name].slice(begin, stop - begin)
    wanted = _nested(told)[name].slice(begin, stop - begin).to_pylist()
    assert plain(column).to_pylist() == wanted
    found = _normal(pa.table({"x": column})).column(0)
    found.validate(full=True)
    assert found.to_pylist() == wanted
    assert found.type.equals(normal_type(column.type))


@pytest.mark.parametrize("column", [_CATEGORIES, _VIEWS, _UUIDS])
def test_chunks_with_dictionaries_of_their_own_are_joined(column: Any) -> None:
    """Whatever their types are; no chunk at all is no row."""
    chunked = pa.chunked_array([column, column.slice(2), column.slice(0, 0)])
    found = _normal(pa.table({"x": chunked})).column(0)
    plain_ones = [plain(chunk).to_pylist() for chunk in chunked.chunks]
    assert found.to_pylist() == list(itertools.chain(*plain_ones))
    assert len(_normal(pa.table({"x": pa.chunked_array([], column.type)}))) == 0


@pytest.mark.parametrize(
    "group",
    [
        [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.dictionary(pa.int8(), pa.string()),
            pa.dictionary(pa.uint32(), pa.string_view()),
            pa.run_end_encoded(pa.int32(), pa.string()),
        ],
        [pa.binary(), pa.binary(16), pa.large_binary(), pa.binary_view(), pa.uuid()],
        [pa.list_(pa.string()), pa.large_list(pa.string_view()), pa.list_view(pa.string())],
        [pa.map_(pa.string(), pa.binary()), pa.map_(pa.string_view(), pa.large_binary())],
    ],
)
def test_types_that_are_decoded_to_one_go_together(group: list[Any]) -> None:
    """In every order, and within lists and structs."""
    for inside in (lambda kind: kind, pa.list_, lambda kind: pa.struct([("y", kind)])):
        for pair in itertools.permutations(group, 2):
            schemas = [pa.schema({"x": inside(kind)}) for kind in pair]
            found = unified(schemas, ["a", "b"]).field("x").type
            assert found.equals(normal_type(inside(group[0])))


def test_times_of_several_zones_are_the_same_moments_in_utc() -> None:
    """Nested ones, too; one zone stays, and times without a zone are none of these."""
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    berlin, york = pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ms", "America/New_York")
    tables = [
        pa.table({"t": pa.array([moment], kind), "l": pa.array([[moment]], pa.list_(kind))})
        for kind in (berlin, york)
    ]
    schema = unified([table.schema for table in tables], ["a", "b"])
    assert schema.field("t").type == pa.timestamp("us", "UTC")
    assert schema.field("l").type == pa.large_list(pa.timestamp("us", "UTC"))
    for table in tables:
        assert _normal(table, schema=schema).to_pylist() == [{"t": moment, "l": [moment]}]
    same = unified([tables[0].schema, tables[0].schema], ["a", "b"])
    assert same.field("t").type == berlin
    with pytest.raises(SchemaError, match="column 't'"):
        unified([pa.schema({"t": berlin}), pa.schema({"t": pa.timestamp("us")})], ["a", "b"])


def test_decimals_and_whole_numbers_have_room_for_both() -> None:
    """The largest whole number, and all digits behind the point."""
    tables = [
        pa.table({"x": pa.array([Decimal("1.25")], pa.decimal128(5, 2))}),
        pa.table({"x": [2**63 - 1]}),
    ]
    schema = unified([table.schema for table in tables], ["a", "b"])
    assert [_normal(table, schema=schema)["x"][0].as_py() for table in tables] == [
        Decimal("1.25"),
        2**63 - 1,
    ]


def test_only_columns_that_are_wanted_have_to_fit() -> None:
    """Names that are there twice, too; the error says which, where, and what helps."""
    one = pa.schema([("x", pa.int64()), ("y", pa.string()), ("z", pa.int8()), ("z", pa.int8())])
    two = pa.schema([("y", pa.int64()), ("x", pa.int32())])
    assert unified([one, two], ["a", "b"], ["x"]) == pa.schema([("x", pa.int64())])
    with pytest.raises(SchemaError, match=r"b: column 'y' is int64, in a it is string.*without it"):
        unified([one, two], ["a", "b"], ["x", "y"])
    with pytest.raises(SchemaError, match=r"a: several columns are called 'z'"):
        unified([one, two], ["a", "b"], ["x", "z"])
    with pytest.raises(SchemaError, match=r"a: several columns are called 'z'"):
        unified([one], ["a"])


def test_a_column_that_a_file_lacks_may_lack_values() -> None:
    """So that nulls='mask' marks them, though where it is none is missing."""
    has = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int8())])
    schema = unified([has, pa.schema({"y": pa.int8()})], ["a", "b"])
    found = _normal(pa.table({"y": pa.array([1], pa.int8())}), "mask", schema)
    assert found.to_pylist() == [{"x": 0, "x.valid": False, "y": 1, "y.valid": True}]
    assert not unified([has, has], ["a", "b"]).field("x").nullable


_EVERY_TYPE: dict[str, Any] = {
    str(kind): kind
    for kind in (
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.binary(3),
        pa.string_view(),
        pa.date32(),
        pa.date64(),
        pa.time32("s"),
        pa.time32("ms"),
        pa.time64("us"),
        pa.time64("ns"),
        pa.timestamp("s"),
        pa.timestamp("ns", "Europe/Berlin"),
        pa.duration("ms"),
        pa.month_day_nano_interval(),
        pa.decimal32(5, 2),
        pa.decimal128(30, 2),
        pa.decimal256(60, 4),
        pa.null(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int16()),
        pa.list_(pa.float32(), 3),
        pa.list_(pa.string(), 0),
        pa.list_view(pa.date32()),
        pa.map_(pa.string(), pa.int8()),
        pa.struct([]),
        pa.struct(
            [("a", pa.null()), ("b", pa.struct([("c", pa.date32()), ("d", pa.time64("ns"))]))]
        ),
        pa.uuid(),
    )
}


@pytest.mark.parametrize("name", _EVERY_TYPE)
def test_every_type_is_filled_where_it_lacks_values(name: str) -> None:
    """With what stands for nothing; what is there stays; and nothing is ever missing."""
    kind = _EVERY_TYPE[name]
    storage = getattr(kind, "storage_type", kind)
    values: Any = pa.nulls(3, storage)
    if isinstance(kind, pa.BaseExtensionType):
        values = pa.ExtensionArray.from_storage(kind, values)
    found = _normal(pa.table({"x": values}), "mask")
    found.validate(full=True)
    assert found.column(1).to_pylist() == [False] * 3
    assert found.column(0).null_count == (3 if kind == pa.null() else 0)
    if kind == pa.null():
        return
    # What was filled in is a value like others, so it can be given as one.
    again = pa.concat_arrays([found.column(0).slice(0, 1), pa.nulls(2, found.column(0).type)])
    marked = _normal(pa.table({"x": again}), "mask")
    assert marked.column(1).to_pylist() == [True, False, False]
    assert marked.column(0).equals(found.column(0))


def test_a_column_that_cannot_lack_values_is_not_marked() -> None:
    """Nor is one taken for a mark that only has the name of one."""
    schema = pa.schema(
        [pa.field("x", pa.int64(), nullable=False), pa.field("x.valid", pa.int64(), nullable=False)]
    )
    found = _normal(pa.table({"x": [1], "x.valid": [7]}, schema=schema), "mask")
    assert found.to_pylist() == [{"x": 1, "x.valid": 7}]
    with pytest.raises(SchemaError, match=r"'x\.valid'.*there is a column of that name"):
        normal_schema(pa.schema({"x": pa.int64(), "x.valid": pa.int64()}), "mask")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 5),
        (pa.float32(), 0.1),
        (pa.float32(), float("nan")),
        (pa.string(), ""),
        (pa.binary(2), b"ab"),
        (pa.date32(), dt.date(2020, 1, 1)),
        (pa.timestamp("ns"), 5),
        (pa.list_(pa.int64()), [1, 2]),
        (pa.list_(pa.int64(), 2), [1, 2]),
        (pa.struct([("a", pa.int64())]), {"a": 1}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.decimal128(5, 2), Decimal("1.5")),
        (pa.dictionary(pa.int8(), pa.string()), "x"),
    ],
)
def test_a_value_that_fits_is_filled_in(kind: Any, value: Any) -> None:
    """Of every type, lists and mappings too."""
    wanted = pa.array([value], normal_type(kind))
    given = pa.array([None, value, None], normal_type(kind)).cast(kind)
    found = _normal(pa.table({"x": given}), check_nulls({"x": value})).column(0)
    assert found.null_count == 0
    assert str(found) == str(pa.concat_arrays([wanted] * 3))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), "x"),
        (pa.int8(), 300),
        (pa.int8(), 1.5),
        (pa.int8(), None),
        (pa.string(), 3),
        (pa.date32(), "2020-01-01"),
        (pa.null(), 5),
        (pa.list_(pa.int64(), 2), [1]),
        (pa.int64(), object()),
        (pa.int64(), [1]),
    ],
)
def test_a_value_that_does_not_fit_is_refused_before_anything_is_read(
    kind: Any, value: Any
) -> None:
    """And the column is named."""
    with pytest.raises(SchemaError, match="'x'"):
        normal_schema(pa.schema({"x": kind}), check_nulls({"x": value}), "a place")


def test_a_value_for_a_column_that_is_not_there_is_refused() -> None:
    """Those there are are listed."""
    with pytest.raises(MissingColumnError, match=r"'xx'.*a place; there are 'x', 'y'"):
        normal_schema(pa.schema({"x": pa.int8(), "y": pa.int8()}), {"xx": 0}, "a place")
    wrong: Any
    for wrong in (["x"], {"x"}, b"mask", 5):
        with pytest.raises(SchemaError, match="nulls must be"):
            check_nulls(wrong)
