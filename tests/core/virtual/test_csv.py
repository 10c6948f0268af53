"""CSV: records whole wherever it is cut, equal to what Arrow and Python read."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pac
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import CUTS, PiecesStore, TextFile

from streaming_core._virtual import SourceFile, SourceReader, kind_names, open_kind
from streaming_core._virtual._kinds import kind_of_name
from streaming_core.errors import SchemaError, SourceFormatError

VALUES = st.text(st.sampled_from('ab ",\n\r\té漢'), max_size=6)


def written(rows: list[list[str]], end: str, quoting: int, delimiter: str = ",") -> bytes:
    """Return the rows as Python writes them."""
    out = io.StringIO()
    style: Any = {"lineterminator": end, "quoting": quoting, "delimiter": delimiter}
    csv.writer(out, **style).writerows(rows)
    return out.getvalue().encode()


def arrow_reads(data: bytes, **convert: Any) -> pa.Table:
    """Return what Arrow reads in one block."""
    return pac.read_csv(
        io.BytesIO(data),
        pac.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pac.ParseOptions(newlines_in_values=True),
        pac.ConvertOptions(**convert),
    )


@given(
    st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=10),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    CUTS,
    CUTS,
)
def test_all_records_come_once_and_in_order(
    rows: list[list[str]], end: str, quoting: int, unit: int, piece: int
) -> None:
    """Neither the sizes of units nor those of pieces change what is read."""
    if end != "\r\n":  # of which Python quotes no other
        quoting = csv.QUOTE_ALL
    data = written([["x", "y\nz"], *rows], end, quoting)
    schema = {"x": "string", "y\nz": "string"}
    file = TextFile("a.csv", data, piece=piece, unit_bytes=unit, schema=schema)
    assert [list(row.values()) for row in file.rows()] == rows
    # And with types, as Arrow finds them in one block, cut or not.
    whole = TextFile("a.csv", data)
    assert whole.scan.schema.equals(arrow_reads(data).schema)
    assert whole.rows() == arrow_reads(data).to_pylist()
    cut = TextFile("a.csv", data, piece=piece, unit_bytes=unit)
    assert len(cut.rows()) == len(rows)
    for name in cut.scan.schema.names:
        assert cut.rows([name]) == [{name: row[name]} for row in cut.rows()]


def test_thousands_of_records_are_as_arrow_reads_them() -> None:
    """Typed columns, quotes with newlines, nulls; in many units."""
    rows = [
        [
            str(n),
            f"{n / 7}" if n % 3 else str(n),
            f'text "{n}",\nand é' * (n % 4),
            "true" if n % 2 else "false",
            "2024-01-02" if n % 5 else "2024-01-02 03:04:05",
            "" if n % 7 else "NA",
            "" if n < 9000 else "late",
        ]
        for n in range(10_000)
    ]
    names = ["id", "score", "text", "flag", "time", "none", "late"]
    data = written([names, *rows], "\r\n", csv.QUOTE_MINIMAL)
    file = TextFile("a.csv", data, unit_bytes=60_000, piece=65_537)
    assert len(file.units) > 5
    came = pa.concat_tables([file.unit(unit) for unit in file.units])
    wanted = arrow_reads(data)
    assert came.schema.equals(wanted.schema)
    assert came.combine_chunks().equals(wanted.combine_chunks())


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("1", "2.5", "double"),
        ("1", "x", "string"),
        ("", "5", "int64"),
        ("NA", "x", "string"),
        ("true", "x", "string"),
        ("1", "true", "string"),
        ("2024-01-02", "2024-01-02 03:04:05", "timestamp[s]"),
        ("2024-01-02", "2024-01-02 03:04:05.678", "timestamp[ns]"),
        ("2024-01-02T00:00:00Z", "2024-01-02T00:00:00.5Z", "timestamp[ns, tz=UTC]"),
        ("2024-01-02", "12:30:00", "string"),
        ("007", "x", "string"),
    ],
)
def test_types_are_those_that_all_values_fit(one: str, other: str, kind: str) -> None:
    """In units of their own, in either order, the same as in one unit."""
    for values in ([one, other], [other, one]):
        data = "v,w\n" + "".join(f"{value},1\n" for value in values)
        cut = TextFile("a.csv", data.encode(), unit_bytes=1)
        assert len(cut.units) == 2
        assert str(cut.scan.schema.field("v").type) == kind
        whole = TextFile("a.csv", data.encode())
        assert whole.scan.schema.equals(cut.scan.schema)
        assert whole.rows() == cut.rows()
        if kind == "string":
            assert [row["v"] for row in cut.rows()] == values


@pytest.mark.parametrize("unit", [1, 1000])
def test_headers(unit: int) -> None:
    """From the file, made up, or given."""
    data = b'\n\n"a\nb",c\n1,x\n'
    assert TextFile("a.csv", data, unit_bytes=unit).rows() == [{"a\nb": 1, "c": "x"}]
    none = TextFile("a.csv", data, unit_bytes=unit, header=False)
    assert none.rows() == [{"f0": "a\nb", "f1": "c"}, {"f0": "1", "f1": "x"}]
    named = TextFile("a.csv", data, unit_bytes=unit, header=["p", "q"])
    assert named.rows() == [{"p": "a\nb", "q": "c"}, {"p": "1", "q": "x"}]
    assert TextFile("a.csv", b"\xef\xbb\xbfa,b\r\n", unit_bytes=unit).scan.schema.names == [
        "a",
        "b",
    ]
    assert TextFile("a.csv", b"a,b", unit_bytes=unit).units == ()
    assert TextFile("a.csv", b"\n\r\n", unit_bytes=unit).scan.schema.names == []


def test_marks_are_options() -> None:
    """Delimiter, quote, and what stands for nothing."""
    data = b"a;b\n'x;\ny';-\n-;'-'\n"
    file = TextFile("a.csv", data, delimiter=";", quote="'", null_values=["-"], unit_bytes=1)
    assert file.rows() == [{"a": "x;\ny", "b": None}, {"a": None, "b": None}]
    bare = TextFile("a.csv", b'a,b\n"x,1\n', quote=None)
    assert bare.rows() == [{"a": '"x', "b": 1}]
    tabs = TextFile("a.tsv", b'a\tb\n1,2\t"x\ty"\n', unit_bytes=1)
    assert tabs.rows() == [{"a": "1,2", "b": "x\ty"}]


def test_a_given_schema_is_the_schema() -> None:
    """Its columns in its order; the others are not read."""
    data = b"a,b,c\n1,2,x\n,,\n"
    file = TextFile("a.csv", data, schema={"c": "large_string", "a": "int16"}, unit_bytes=1)
    assert file.scan.schema.names == ["c", "a"]
    assert file.rows() == [{"c": "x", "a": 1}, {"c": "", "a": None}]
    with pytest.raises(SchemaError, match="no column 'z'; there are a, b, c"):
        TextFile("a.csv", data, schema={"z": "int16"})


@pytest.mark.parametrize("unit", [1, 100_000])
@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ("1,2,3", "Expected 2 columns, got 3"),
        ("1", "Expected 2 columns, got 1"),
        ('3 "x\ny",1', "Expected 2 columns, got 1"),
    ],
)
def test_a_bad_record_is_named(bad: str, what: str, unit: int) -> None:
    """With its line, newlines within quotes counted, and its byte."""
    good = '1,"a\nb"\n\n'
    data = "a,b\n" + good * 200 + bad + "\n" + good
    place = rf"a\.csv, line 602, byte {4 + 200 * len(good)}: {what}"
    with pytest.raises(SourceFormatError, match=place):
        TextFile("a.csv", data.encode(), unit_bytes=unit)


def test_records_that_break_a_given_schema_are_named() -> None:
    """When they are decoded."""
    data = b"a,b\n" + b'1,"\n"\n' * 50 + b"x,2\n"
    file = TextFile("a.csv", data, schema={"a": "int64"})
    with pytest.raises(SourceFormatError, match=r"a\.csv, line 102, byte 304: .*invalid value 'x'"):
        file.rows()
    assert TextFile("a.csv", data, schema={"b": "string"}).rows()[-1] == {"b": "2"}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'a,b\n1,2\n"3,4\n5,6\n', r"line 3, byte 8: the file ends within quotes"),
        (b"a,a\n1,2\n", r"line 1, byte 0: several columns are called 'a'.*header="),
        (b"a,b\n1,2\n3,\xe9\n", "line 3, byte 10: .*UTF-8"),
        (b"a,\xe9\n1,2\n", "line 1, byte 2: .*UTF-8"),
        (b"a,b\n" + b'"x' * 1000, "line 2, byte 4: .*max_record_bytes"),
        (b"," * 60_000 + b"\n", "60001 columns"),
    ],
)
def test_what_is_no_csv_is_refused_with_its_place(data: bytes, what: str) -> None:
    """Not read as something else."""
    limit = 500 if b"x" in data else 1 << 20
    with pytest.raises(SourceFormatError, match=what):
        TextFile("a.csv", data, max_record_bytes=limit, piece=100)


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"delimiter": "\n"},
        {"delimiter": "é"},
        {"quote": "''"},
        {"quote": ","},
        {"header": "abc"},
        {"header": [1]},
        {"null_values": "NA"},
        {"schema": {"a": "what"}},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    """A wrong one is refused, and named."""
    with pytest.raises(SchemaError, match=next(iter(options))):
        TextFile("a.csv", b"a,b\n1,2\n", **options)


@pytest.mark.parametrize("name", ["umath-validation-set-exp", "umath-validation-set-arctanh"])
def test_a_csv_file_of_another_package(name: str) -> None:
    """Python reads the same records, line ends and all."""
    path = Path(np.__file__).parent / "_core" / "tests" / "data" / f"{name}.csv"
    lines = [line for line in path.read_text().splitlines(keepends=True) if line[0] != "#"]
    data = "".join(lines).encode()
    file = TextFile("a.csv", data, unit_bytes=2000)
    assert file.rows() == arrow_reads(data).to_pylist()
    wanted = list(csv.DictReader(lines))
    assert len(wanted) > 100
    texts = TextFile("a.csv", data, unit_bytes=2000, schema=dict.fromkeys(wanted[0], "string"))
    assert texts.rows() == wanted


def test_a_table_of_another_package_without_header() -> None:
    """Spaces around values are kept in texts."""
    path = Path(np.__file__).parent / "random" / "tests" / "data" / "pcg64-testset-1.csv"
    schema = {"n": "string", "hex": "string"}
    file = TextFile("a.csv", path.read_bytes(), header=["n", "hex"], unit_bytes=500, schema=schema)
    wanted = list(csv.reader(path.read_text().splitlines()))
    assert [list(row.values()) for row in file.rows()] == wanted


NUMBERS = [
    "",
    "0",
    "1",
    "-7",
    "007",
    "+5",
    "0x1F",
    "1.5",
    "1e3",
    "9007199254740993",
    "+9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
    "NaN",
    "inf",
]
TIMES = ["2024-01-02", "2024-01-02 03:04:05", "2024-01-02T03:04:05.25Z", "03:04:05", "03:04:05.5"]


@example(["-7", "+9007199254740993"])
@given(
    st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4)
    | st.lists(st.sampled_from([*NUMBERS, *TIMES, "true", "False", "x", " 1 "]), max_size=4)
)
def test_types_do_not_depend_on_cuts(values: list[str]) -> None:
    """Each value alone, or all together: the same types and rows, or the same number refused."""
    data = "v,w\n" + "".join(f"{value},1\n" for value in values)
    try:
        whole = TextFile("a.csv", data.encode())
    except SourceFormatError as error:
        why = re.search(r"a\.csv: column 'v' has -?\d+ ", str(error))
        assert why is not None
        with pytest.raises(SourceFormatError, match=re.escape(why[0])):
            TextFile("a.csv", data.encode(), unit_bytes=1)
        return
    cut = TextFile("a.csv", data.encode(), unit_bytes=1)
    assert len(cut.units) == len(values)
    assert cut.scan.schema.equals(whole.scan.schema)
    # Compared as text, as no NaN equals another.
    assert str(cut.rows()) == str(whole.rows())


@pytest.mark.parametrize("name", ["text", "jsonl", "json", "csv", "tsv"])
def test_names_tell_the_format(name: str) -> None:
    """With and without compression."""
    assert name in kind_names()
    for suffix in open_kind(name).suffixes:
        assert kind_of_name(f"folder/file{suffix.upper()}") == name


def test_a_kind_reads_files_of_any_number() -> None:
    """Nothing of one scan is left in the next."""
    kind = open_kind("csv")
    store = PiecesStore(100)
    schemas: list[str] = []
    for n, data in enumerate([b"a,b\n1,x\n", b"c\n1.5\n"]):
        info = store.put(f"{n}.csv", [data])
        reader = SourceReader(store, SourceFile(info.key, info.size, info.etag))
        schemas.append(str(kind.scan(reader).schema))
    assert schemas == ["a: int64\nb: string", "c: double"]
