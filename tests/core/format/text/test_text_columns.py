"""What text columns take, what they write, and what comes back."""

from __future__ import annotations

import enum
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming_core._format._text import JSONColumns, XSVColumns, shard_meta
from streaming_core.errors import MissingColumnError, SampleError, SchemaError

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"s": "str", "a": "int", "f": "float"}
KINDS = [
    JSONColumns(COLUMNS),
    XSVColumns(COLUMNS, format="csv"),
    XSVColumns(COLUMNS, format="tsv"),
    XSVColumns(COLUMNS, separator="||", newline="\r\n"),
]
per_kind = pytest.mark.parametrize(
    "columns", KINDS, ids=lambda columns: f"{columns.format}-{columns.newline!r}"
)
SAMPLE: dict[str, Any] = {"s": "é", "a": 7, "f": 0.25}
INTS = st.integers(-(10**30), 10**30)
VALUES = {"int": INTS, "float": st.floats(), "str": st.text(max_size=20)}


class Level(enum.IntEnum):
    """An int that prints as more than a number in some versions."""

    HIGH = 3


class Loud(float):
    """A float that prints otherwise."""

    def __str__(self) -> str:
        """Return no number."""
        return "loud"


def same(one: Any, two: Any) -> bool:
    """Return whether two values are equal, NaN included, and of one type."""
    if type(one) is not type(two):
        return False
    return struct.pack("d", one) == struct.pack("d", two) if isinstance(one, float) else one == two


@st.composite
def json_cases(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """Return columns of any names, and a sample that fits them."""
    encodings = st.sampled_from(("str", "int", "float"))
    columns = draw(st.dictionaries(st.text(max_size=8), encodings, min_size=1, max_size=5))
    return columns, {name: draw(VALUES[encoding]) for name, encoding in columns.items()}


@given(case=json_cases())
def test_json_lines_read_back_equal(case: tuple[dict[str, str], dict[str, Any]]) -> None:
    """Any text, any int and any float but NaN's payload survive; the bytes are Python's JSON."""
    columns, sample = case
    kind = JSONColumns(columns)
    record = kind.encode({**sample, "an undeclared column": object()})
    assert record == (json.dumps(sample, sort_keys=True) + "\n").encode()
    assert record.count(b"\n") == 1
    back = kind.decode(record)
    assert list(back) == sorted(columns)
    for name, value in sample.items():
        assert same(back[name], value) or (math.isnan(value) and math.isnan(float(back[name])))


@given(
    text=st.text(max_size=20),
    number=INTS,
    real=st.floats(allow_nan=False),
    separator=st.text(min_size=1, max_size=3),
    newline=st.text(min_size=1, max_size=3),
)
def test_xsv_lines_read_back_equal_or_are_refused(
    text: str, number: int, real: float, separator: str, newline: str
) -> None:
    """No separator, newline or value makes a line that reads back as something else."""
    try:
        kind = XSVColumns(COLUMNS, separator=separator, newline=newline)
    except SchemaError:
        assume(False)
        raise
    sample = {"s": text, "a": number, "f": real}
    try:
        record = kind.encode(sample)
    except SampleError:
        line = separator.join([str(number), str(real), text])
        assert (
            line.count(separator) != 2
            or newline in line
            or line.split(separator) != [str(number), str(real), text]
            or (line + newline).index(newline) != len(line)
        )
        return
    assert kind.decode(record) == dict(sorted(sample.items()))
    assert all(same(kind.decode(record)[name], value) for name, value in sample.items())


@per_kind
@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
def test_special_floats_survive(columns: JSONColumns | XSVColumns, value: float) -> None:
    """Infinities, the negative zero and the extremes come back bit for bit."""
    back = columns.decode(columns.encode({**SAMPLE, "f": value}))["f"]
    assert same(back, value)


@per_kind
def test_nan_survives(columns: JSONColumns | XSVColumns) -> None:
    """NaN is written as Python writes it."""
    assert math.isnan(float(columns.decode(columns.encode({**SAMPLE, "f": math.nan}))["f"]))


@per_kind
@pytest.mark.parametrize(
    ("column", "value", "plain"),
    [
        ("a", np.int8(-3), -3),
        ("a", np.uint64(2**64 - 1), 2**64 - 1),
        ("a", True, 1),
        ("a", np.bool_(1), 1),
        ("a", Level.HIGH, 3),
        ("f", np.float32(0.1), float(np.float32(0.1))),
        ("f", np.float64(0.1), 0.1),
        ("f", Loud(1.5), 1.5),
        ("s", np.str_("é"), "é"),
    ],
)
def test_values_that_convert_without_loss_are_taken(
    columns: JSONColumns | XSVColumns, column: str, value: Any, plain: Any
) -> None:
    """NumPy scalars and subclasses are written as the plain values they equal."""
    assert columns.decode(columns.encode({**SAMPLE, column: value}))[column] == plain


@per_kind
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("a", 1.0),
        ("a", "1"),
        ("a", None),
        ("a", np.float32(1)),
        ("a", np.array(1)),
        ("f", 1),
        ("f", "nan"),
        ("f", np.int64(1)),
        ("f", np.longdouble(1)),
        ("s", b"x"),
        ("s", 1),
        ("s", np.bytes_(b"x")),
        ("s", ["x"]),
    ],
)
def test_values_of_another_type_are_refused(
    columns: JSONColumns | XSVColumns, column: str, value: Any
) -> None:
    """The error names the column, what was wanted and what came."""
    with pytest.raises(
        SampleError, match=rf"column '{column}': wanted {COLUMNS[column]}"
    ) as caught:
        columns.encode({**SAMPLE, column: value})
    assert type(value).__name__ in str(caught.value)


@per_kind
def test_a_missing_column_is_named(columns: JSONColumns | XSVColumns) -> None:
    """It is a KeyError too, as the reference raises."""
    with pytest.raises(MissingColumnError, match="column 'f' is missing; the sample has 's', 'a'"):
        columns.encode({"s": "x", "a": 1})


@per_kind
def test_an_int_beyond_pythons_text_limit_is_refused(columns: JSONColumns | XSVColumns) -> None:
    """It could be written by no means, and is not half written."""
    with pytest.raises(SampleError, match="no text form"):
        columns.encode({**SAMPLE, "a": 10**5000})


@pytest.mark.parametrize("text", ["a,b", "a\n", "\n", ",", "half \ud800"])
def test_csv_refuses_what_would_not_read_back(text: str) -> None:
    """The format has no quoting, so the sample is refused and the way out is named."""
    columns = XSVColumns(COLUMNS, format="csv")
    with pytest.raises(SampleError, match="no quoting"):
        columns.encode({**SAMPLE, "s": text})


@pytest.mark.parametrize("text", ["\r", 'a "quoted" word', "", " ", "\u2028", "\0", "\t"])
def test_csv_takes_what_reads_back(text: str) -> None:
    """Only separator and newline have a meaning."""
    columns = XSVColumns(COLUMNS, format="csv")
    assert columns.decode(columns.encode({**SAMPLE, "s": text}))["s"] == text


def test_a_separator_that_arises_where_columns_meet_is_found() -> None:
    """With the separator ';;', a value that ends in ';' would move the cut."""
    columns = XSVColumns({"a": "str", "b": "str"}, separator=";;")
    with pytest.raises(SampleError, match="holds a separator or newline where two columns meet"):
        columns.encode({"a": "x;", "b": ";y"})


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"a": "bytes"},
        {"a": "ndarray:uint8"},
        {"a": int},
        {1: "int"},
        {"a": ["int"]},
        {"a": "INT"},
    ],
)
def test_columns_of_no_text_format_are_refused(columns: Any) -> None:
    """Only str, int and float have a text form here."""
    with pytest.raises(SchemaError, match="column"):
        JSONColumns(columns)
    with pytest.raises(SchemaError, match="column"):
        XSVColumns(columns, format="csv")


@pytest.mark.parametrize("name", ["a,b", "a\nb", "\ud800"])
def test_names_that_break_the_header_line_are_refused(name: str) -> None:
    """The header line has no quoting either."""
    with pytest.raises(SchemaError, match="header line"):
        XSVColumns({name: "int", "z": "int"}, format="csv")


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "xsv"},
        {"format": "xsv", "separator": ""},
        {"format": "csv", "separator": ";"},
        {"format": "tsv", "separator": ","},
        {"format": "csv", "newline": ""},
        {"format": "csv", "newline": ","},
        {"format": "csv", "newline": "\ud800"},
    ],
)
def test_separators_and_newlines_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """A separator is for xsv alone, csv and tsv have theirs; a newline must end lines only."""
    with pytest.raises(SchemaError):
        XSVColumns({"a": "int", "b": "int"}, **settings)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"a": 1, "f": 1.0, "s": "x"}',
        b'{"a": 1, "f": 1.0}\n',
        b'{"a": 1.0, "f": 1.0, "s": "x"}\n',
        b'{"a": 1, "f": true, "s": "x"}\n',
        b'{"a": 1, "f": 9007199254740993, "s": "x"}\n',
        b'{"a": 1, "f": 1.0, "s": null}\n',
        b'{"a": 1, "f": 1.0, "s": {"s": "x"}}\n',
        b"[1, 2]\n",
        b"null\n",
        b"\xff\xfe{\x00}\x00\n",
        b'{"a": 1, "f": 1.0, "s": "\xff"}\n',
        b'{"a": ' + b"9" * 5000 + b', "f": 1.0, "s": "x"}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_json_lines_that_are_no_samples_are_refused(line: bytes) -> None:
    """Wrong columns, wrong types, other encodings and hostile nesting all end the same way."""
    with pytest.raises((ValueError, RecursionError)):
        JSONColumns(COLUMNS).decode(line)


def test_json_reads_what_other_tools_write() -> None:
    """Other key order, no spaces, plain UTF-8, further keys and whole floats are read."""
    line = '{"s":"é","x":[1],"f":2,"a":7}\n'.encode()
    assert JSONColumns(COLUMNS).decode(line) == {"a": 7, "f": 2.0, "s": "é"}
    assert type(JSONColumns(COLUMNS).decode(line)["f"]) is float


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"1,1.0,x",
        b"1,1.0\n",
        b"1,1.0,x,y\n",
        b"x,1.0,x\n",
        b"1,x,x\n",
        b"1.5,1,x\n",
        b"1,1,\xff\n",
    ],
)
def test_csv_lines_that_are_no_samples_are_refused(line: bytes) -> None:
    """Too few or too many columns, no numbers, and bytes that are not UTF-8 are errors."""
    with pytest.raises(ValueError, match=r"line ends|columns|column '|utf-8"):
        XSVColumns(COLUMNS, format="csv").decode(line)


def test_a_shard_too_long_for_its_offsets_is_refused() -> None:
    """Offsets have 32 bits; they must not wrap silently."""
    assert len(shard_meta([1 << 31, (1 << 31) - 1], start=0, config={})) == 18
    with pytest.raises(SchemaError, match="smaller size_limit"):
        shard_meta([1 << 31, 1 << 31], start=0, config={})


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_the_references_files_come_out_byte_for_byte(golden: Path, name: str) -> None:
    """Encoding the values in order, cut by the size limit, gives its data and meta files."""
    values = json.loads((golden / name / "values.json").read_bytes())
    limit = values["kwargs"]["size_limit"]
    kind: JSONColumns | XSVColumns
    if name == "jsonl":
        kind = JSONColumns(values["columns"])
    else:
        kind = XSVColumns(values["columns"], format="csv")
    shards: list[list[bytes]] = [[]]
    for record in map(kind.encode, values["samples"]):
        if sum(map(len, shards[-1])) + len(record) > limit:
            shards.append([])
        shards[-1].append(record)
    config = kind.config(compression=None, hashes=(), size_limit=limit)
    index = json.loads((golden / name / "index.json").read_bytes())["shards"]
    assert len(shards) == len(index) > 1
    for records, entry in zip(shards, index, strict=True):
        data = kind.header() + b"".join(records)
        meta = shard_meta([len(r) for r in records], start=len(kind.header()), config=config)
        assert data == (golden / name / entry["raw_data"]["basename"]).read_bytes()
        assert meta == (golden / name / entry["raw_meta"]["basename"]).read_bytes()
        assert {key: entry[key] for key in config} == config
