"""One schema for all files, few types, and a rule for what is missing."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming_core._virtual._normal import check_nulls, normal_schema, normal_table
from streaming_core._virtual._types import unified
from streaming_core.errors import SchemaError, SourceFormatError


def _normal(table: pa.Table, nulls: Any = "none", schema: Any = None, **constants: Any) -> Any:
    wanted = normal_schema(schema or table.schema, nulls)
    return normal_table(table, wanted, nulls, constants, "a file")


def test_types_of_a_family_become_one() -> None:
    """Long offsets, nothing encoded, extensions as what they store."""
    values = ["a", "bb", "a"]
    table = pa.table(
        {
            "s": pa.array(values),
            "view": pa.array(values, pa.string_view()),
            "dict": pa.array(values).dictionary_encode(),
            "bin": pa.array([b"1", b"2", b"3"], pa.binary(1)),
            "list": pa.array([[1], [], [2, 3]], pa.list_(pa.int16())),
            "deep": pa.array([{"x": ["a"]}] * 3),
            "uuid": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([bytes(16)] * 3, pa.binary(16))
            ),
        }
    )
    found = _normal(table)
    assert [str(field.type) for field in found.schema] == [
        "large_string",
        "large_string",
        "large_string",
        "large_binary",
        "large_list<item: int16>",
        "struct<x: large_list<item: large_string>>",
        "large_binary",
    ]
    assert found.column(2).to_pylist() == values
    assert found.column(5).to_pylist() == [{"x": ["a"]}] * 3


def test_files_whose_columns_differ_are_brought_together() -> None:
    """Wider numbers, columns that one lacks, and constants of the place."""
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "x": [1.5, 2.5]})
    second = pa.table({"id": pa.array([3], pa.int64()), "y": ["new"]})
    schema = unified([first.schema, second.schema], ["a", "b"])
    schema = schema.append(pa.field("year", pa.int64()))
    one = _normal(first, schema=schema, year="2023")
    two = _normal(second, schema=schema, year=None)
    assert one.to_pylist() == [
        {"id": 1, "x": 1.5, "y": None, "year": 2023},
        {"id": 2, "x": 2.5, "y": None, "year": 2023},
    ]
    assert two.to_pylist() == [{"id": 3, "x": None, "y": "new", "year": None}]
    with pytest.raises(SchemaError, match=r"b: column 'x' is list<item: int8>, in a it is int64"):
        unified([pa.schema({"x": pa.int64()}), pa.schema({"x": pa.list_(pa.int8())})], ["a", "b"])


def test_every_rule_for_what_is_missing() -> None:
    """As they are, refused, marked or filled."""
    table = pa.table(
        {
            "n": pa.array([1, None], pa.int16()),
            "s": ["a", None],
            "v": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            "l": pa.array([[1], None]),
            "t": pa.array([dt.datetime(2024, 1, 2, tzinfo=dt.UTC), None]),
            "d": pa.array([decimal.Decimal("1.50"), None]),
            "b": [True, None],
            "m": pa.array([{"x": 1, "y": ["q"]}, None]),
        }
    )
    assert _normal(table).to_pylist()[1] == dict.fromkeys(table.column_names)
    with pytest.raises(SchemaError, match=r"column 'n' lacks 1 of 2 values"):
        _normal(table, "error")
    marked = _normal(table, "mask")
    assert marked.schema.names[:4] == ["n", "n.valid", "s", "s.valid"]
    rows = marked.to_pylist()
    assert [rows[0][f"{name}.valid"] for name in table.column_names] == [True] * 8
    assert [rows[1][f"{name}.valid"] for name in table.column_names] == [False] * 8
    assert (rows[1]["n"], rows[1]["s"], rows[1]["v"], rows[1]["l"], rows[1]["b"]) == (
        0,
        "",
        [0.0, 0.0],
        [],
        False,
    )
    assert rows[1]["m"] == {"x": 0, "y": []}
    filled = _normal(table, {"n": -1, "s": "?"}).to_pylist()
    assert (filled[1]["n"], filled[1]["s"], filled[1]["b"]) == (-1, "?", None)
    for wrong in ("some", None, 3):
        with pytest.raises(SchemaError, match="nulls must be"):
            check_nulls(wrong)


def test_a_value_that_does_not_fit_says_of_which_column() -> None:
    """And of which file."""
    table = pa.table({"x": ["1", "two"]})
    with pytest.raises(SourceFormatError, match=r"a file: column 'x' is no int64"):
        _normal(table, schema=pa.schema({"x": pa.int64()}))


def test_no_rows_have_the_columns_too() -> None:
    """With their types."""
    table = pa.table({"x": pa.array([], pa.int8()), "v": pa.array([], pa.list_(pa.int8(), 3))})
    found = _normal(table)
    assert found.num_rows == 0
    assert np.array_equal(found.schema.names, ["x", "v"])
