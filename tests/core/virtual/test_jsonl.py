"""JSON lines: equal to what Arrow and Python read, for any cuts, with types from all rows."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.json as paj
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import CUTS, TextFile, same

from streaming_core.errors import SchemaError, SourceFormatError

WORDS = st.text(st.sampled_from('ab"\\\n é漢🎈{}[],:'), max_size=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "x": st.integers(-(2**50), 2**50) | st.floats(allow_nan=False, allow_infinity=False),
            "s": st.none() | WORDS,
            "b": st.booleans(),
            "list": st.lists(st.none() | WORDS, max_size=3),
            "in": st.none()
            | st.fixed_dictionaries({}, optional={"k": WORDS, "l": st.lists(st.integers(0, 9))}),
        },
    ),
    max_size=12,
)


def written(rows: list[Any], ends: list[str], *, ascii_only: bool = False) -> bytes:
    """Return the rows as lines, with each end in turn."""
    texts = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    return "".join(text + ends[n % len(ends)] for n, text in enumerate(texts)).encode()


@given(
    ROWS,
    CUTS,
    CUTS,
    st.lists(st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\r\n"]), min_size=1),
    st.booleans(),
)
def test_all_rows_come_once_and_in_order(
    rows: list[Any], unit: int, piece: int, ends: list[str], escaped: bool
) -> None:
    """Neither the sizes of units nor those of pieces change what is read."""
    data = written(rows, ends, ascii_only=escaped)
    file = TextFile("a.jsonl", data or b"\n", piece=piece, unit_bytes=unit)
    came = file.rows()
    assert len(came) == len(rows)
    assert all(map(same, came, rows))
    # Cutting makes no other schema than reading it whole.
    whole = TextFile("a.jsonl", data or b"\n")
    assert whole.scan.schema.equals(file.scan.schema)
    assert whole.rows() == came


@given(ROWS, CUTS)
def test_each_projection_is_that_of_all(rows: list[Any], unit: int) -> None:
    """Columns come in the file's order, and only those that were wanted."""
    file = TextFile("a.jsonl", written(rows, ["\n"]) or b"\n", unit_bytes=unit)
    names = file.scan.schema.names
    for wanted in ([name] for name in names):
        came = file.rows(wanted)
        assert came == [{name: row[name] for name in wanted} for row in file.rows()]
    if len(names) > 1:
        assert file.unit(file.units[0], names[::-1]).schema.names == names


def test_thousands_of_rows_are_as_arrow_reads_them() -> None:
    """The schema, too, in many units."""
    rows = [
        {
            "id": n,
            "text": f"some words {n} é" * (n % 9),
            "score": n / 7 if n % 5 else n,
            "tags": ["a", None][: n % 3],
            "meta": {"lang": "en", "deep": {"list": [{"k": n}] * (n % 2)}},
            **({"late": True} if n > 9000 else {}),
        }
        for n in range(12_000)
    ]
    data = written(rows, ["\n", "\r\n"])
    file = TextFile("a.jsonl", data, unit_bytes=200_000, piece=99_991)
    assert len(file.units) > 5
    wanted = paj.read_json(io.BytesIO(data), paj.ReadOptions(block_size=len(data)))
    came = pa.concat_tables([file.unit(unit) for unit in file.units])
    assert came.combine_chunks().equals(wanted.combine_chunks())
    assert came.to_pylist()[9001]["late"] is True


@pytest.mark.parametrize(
    ("lines", "kind", "values"),
    [
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["null", "1"], "int64", [None, 1]),
        (["null", "null"], "null", [None, None]),
        (["[]", "[null]", '["x"]'], "list<item: string>", [[], [None], ["x"]]),
        (["[1]", "[2.5]"], "list<item: double>", [[1.0], [2.5]]),
        (['{"a": 1}', '{"b": 2}'], "struct<a: int64, b: int64>", [{"a": 1}, {"b": 2}]),
        (["{}", "{}"], "struct<>", [{}, {}]),
        # Texts stay texts, even those that Arrow would take for times.
        (['"2020-01-01"', '"2020-01-01T10:00:00Z"'], "string", ["2020-01-01", None]),
        (["9223372036854775808", "1"], "uint64", [2**63, 1]),
        (["9223372036854775807", "-9223372036854775808"], "int64", [2**63 - 1, -(2**63)]),
        (['"\\ud83d\\ude00\\u0000\\/"', '"é"'], "string", ["\U0001f600\0/", "é"]),
        (["NaN", "-Infinity"], "double", [None, float("-inf")]),
    ],
)
@pytest.mark.parametrize("unit", [1, 1000])
def test_types_are_those_that_all_values_fit(
    lines: list[str], kind: str, values: list[Any], unit: int
) -> None:
    """Whether they meet in one unit or not."""
    data = "".join(f'{{"v": {line}}}\n' for line in lines).encode()
    file = TextFile("a.jsonl", data, unit_bytes=unit)
    assert str(file.scan.schema.field("v").type) == kind
    for row, value in zip(file.rows(), values, strict=True):
        assert value is None or same(row["v"], value)


@pytest.mark.parametrize("unit", [1, 1000])
@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ("1", '"x"', "'?/?v'?"),
        ("true", "1", "number"),
        ("[1]", '{"a": 1}', "object"),
        ('{"a": {"b": [1]}}', '{"a": {"b": ["x"]}}', "b"),
    ],
)
def test_a_conflict_names_line_and_column(first: str, second: str, what: str, unit: int) -> None:
    """And the way out, which works."""
    good = f'{{"v": {first}, "w": 1}}\n\n'
    data = (good * 50 + f'{{"v": {second}, "w": 2}}\n' + good).encode()
    place = rf"a\.jsonl, line 101, byte {len(good) * 50}: .*{what}.*as_text"
    with pytest.raises(SourceFormatError, match=place):
        TextFile("a.jsonl", data, unit_bytes=unit)
    file = TextFile("a.jsonl", data, unit_bytes=unit, as_text=["v"])
    rows = file.rows()
    assert rows[0] == {"v": first, "w": 1}
    assert rows[50] == {"v": second.strip('"'), "w": 2}
    assert str(file.scan.schema.field("v").type) == "string"
    assert file.rows(["w"])[50] == {"w": 2}


def test_text_keeps_strings_and_missing_values() -> None:
    """Strings are themselves, escapes read; null is null; all else as it is written."""
    data = b'{"v": "a\\n\\u00e9"}\n{"v": null}\n{}\n{"v": {"a":  [1,2]}}\n{"v": 1e5}\n'
    rows = TextFile("a.jsonl", data, as_text=["v", "missing"]).rows()
    assert [row["v"] for row in rows] == ["a\né", None, None, '{"a":  [1,2]}', "1e5"]


def test_a_given_schema_is_the_schema() -> None:
    """Types that inferring would not choose, nested ones too; other columns are not read."""
    data = (
        b'{"big": 18446744073709551615, "x": 1, "p": {"a": [1], "b": 2}, "t": "2020-01-02"}\n{}\n'
    )
    schema = {"p": {"a": ["float"]}, "big": "uint64", "t": "timestamp[s]", "none": "string"}
    file = TextFile("a.jsonl", data, schema=schema)
    assert file.scan.schema.names == ["p", "big", "t", "none"]
    row, empty = file.rows()
    assert row["big"] == 2**64 - 1
    assert row["p"] == {"a": [1.0]}
    assert row["t"].year == 2020
    assert row["none"] is None
    assert set(empty.values()) == {None}


def test_rows_that_break_a_given_schema_are_named() -> None:
    """They are found when they are decoded, with line and byte."""
    good = '{"v": 1}\n\n'
    data = (good * 300 + '{"v": "x"}\n' + good).encode()
    file = TextFile("a.jsonl", data, schema={"v": "int64"}, unit_bytes=1000)
    place = rf"a\.jsonl, line 601, byte {300 * len(good)}: .*number to string"
    with pytest.raises(SourceFormatError, match=place):
        file.rows()


@pytest.mark.parametrize(
    "schema",
    [{}, [], {"v": "what"}, {"v": []}, {"v": {}}, {"v": ["int64", "int64"]}, {"v": "int128"}, 3],
)
def test_schemas_are_checked(schema: Any) -> None:
    """A type that is none is refused, and named."""
    with pytest.raises(SchemaError, match="schema"):
        TextFile("a.jsonl", b"{}\n", schema=schema)


def test_rows_without_columns_are_rows() -> None:
    """So that other files' columns are null in them."""
    file = TextFile("a.jsonl", b"{}\n\n{}\n{}", unit_bytes=1)
    assert len(file.scan.schema) == 0
    assert [file.unit(unit).num_rows for unit in file.units] == [1, 1, 1]
