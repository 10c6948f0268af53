"""JSON files: one array whose elements are the rows, or lines; told by how they begin."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import moto
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import CUTS, TextFile, same, survives
from tests.profiles import examples

from streaming_core._virtual._kinds._json_array import ElementScanner
from streaming_core._virtual._kinds._lines import ends_in
from streaming_core.errors import SourceFormatError

TEXTS = st.text(st.sampled_from('a"\\\\\\[]{},:\n é漢'), max_size=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"s": TEXTS, "n": st.integers(0, 9), "l": st.lists(TEXTS, max_size=3)}
    ),
    max_size=8,
)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", " :\n"), (",\n\n\t", ":")])


@given(ROWS, CUTS, CUTS, SPACES, st.booleans(), st.sampled_from([None, 2]))
def test_all_elements_come_once_and_in_order(
    rows: list[Any], unit: int, piece: int, between: tuple[str, str], escaped: bool, indent: Any
) -> None:
    """However the array is written, and wherever it is cut."""
    text = json.dumps(rows, separators=between, ensure_ascii=escaped, indent=indent)
    data = f"\n {text}\r\n ".encode()
    file = TextFile("a.json", data, piece=piece, unit_bytes=unit)
    assert same(file.rows(), rows)
    whole = TextFile("a.json", data)
    assert whole.scan.schema.equals(file.scan.schema)
    for name in whole.scan.schema.names:
        assert file.rows([name]) == [{name: row[name]} for row in whole.rows()]


@given(ROWS, CUTS)
def test_lines_are_told_from_an_array(rows: list[Any], unit: int) -> None:
    """By the first byte that is not blank."""
    data = b"\n \n" + b"\n".join(json.dumps(row).encode() for row in rows)
    file = TextFile("a.json", data, unit_bytes=unit)
    assert same(file.rows(), rows)


@given(ROWS.filter(bool), CUTS, CUTS, SPACES, st.sampled_from(["", "\n", " \r\n"]))
def test_objects_on_several_lines_are_a_row_each(
    rows: list[Any], unit: int, piece: int, between: tuple[str, str], apart: str
) -> None:
    """However they are written, and wherever the file is cut."""
    rows = [{"first": 1, **row} for row in rows]
    text = apart.join(json.dumps(row, separators=between, indent=2) for row in rows)
    file = TextFile("a.json", f"\n {text}\n".encode(), piece=piece, unit_bytes=unit)
    assert same(file.rows(), rows)


def test_a_document_is_one_row() -> None:
    """As programs write their settings; its first line may be long, or only a brace."""
    for document in ({"a": 1, "b": {"c": [1, 2]}}, {"long": "x" * 200_000, "b": 1}):
        file = TextFile("a.json", json.dumps(document, indent=4).encode())
        assert file.rows() == [document]
    spread = b'{"long": "' + b"x" * 200_000 + b'",\n"b": 1}'
    assert [row["b"] for row in TextFile("a.json", spread).rows()] == [1]


@given(st.text(st.sampled_from('a"\\[]{},')), CUTS)
def test_ends_do_not_depend_on_pieces(text: str, size: int) -> None:
    """Whatever the text is, broken ones too."""

    def found(step: int) -> list[int] | str:
        scanner, ends, data = ElementScanner(), [], text.encode()
        try:
            for at in range(0, len(data), step):
                ends += (
                    scanner.feed(np.frombuffer(data[at : at + step], np.uint8)).at + at
                ).tolist()
        except ValueError:
            return "refused"
        return [*ends, scanner.begun, bool(scanner.problem())]

    assert found(size) == found(max(1, len(text)))


def test_thousands_of_elements_in_many_units() -> None:
    """As Python reads them; units begin at elements and are as large as told."""
    rows = [
        {"n": n, "s": 'x]\\"},' * (n % 13), "d": {"l": [{"k": n}, {"k": None}]}}
        for n in range(9000)
    ]
    data = json.dumps(rows, indent=1).encode()
    file = TextFile("a.json", data, unit_bytes=100_000, piece=65_537)
    assert file.rows() == rows
    assert all(data[unit.number : unit.part].lstrip()[:1] == b"{" for unit in file.units)
    sizes = [unit.part - unit.number for unit in file.units[:-1]]
    assert len(sizes) > 5
    assert min(sizes) >= 100_000 > max(sizes) - 1000


def test_an_array_that_another_package_ships() -> None:
    """Compressed, with columns that only some elements have."""
    path = Path(moto.__file__).parent / "ec2" / "resources" / "amis.json.gz"
    file = TextFile("a.json.gz", path.read_bytes(), unit_bytes=20_000)
    wanted = json.loads(gzip.decompress(path.read_bytes()))
    assert len(wanted) > 40
    assert len(file.units) > 1
    assert same(file.rows(), wanted)


@pytest.mark.parametrize("unit", [1, 1000])
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'[{"a": 1},\n{"a": 2}', "the file ends within the array"),
        (b'[{"a": 1}, {"a": "]', "the file ends within the array"),
        (b"[", "the file ends within the array"),
        (b'[{"a": 1},\n]', "ends with a comma"),
        (b"[,]", "ends with a comma"),
        (b'[{"a": 1}] x', "text follows"),
        (b'[{"a": 1}]]', "text follows"),
        (b'[{"a": 1}\n,, {"a": 2}]', "line 2.*object was expected"),
        (b'[{"a": 1} {"a": 2}]', "2 objects"),
        (b"[1, 2]", "object was expected"),
        (b"[null]", "object was expected"),
        (b"[[]]", "object was expected"),
        (b'[{"a": 1]}]', "."),
        (b'[{"a": 1}},{"a": 2}]', "."),
        (b'[{"a": 1},\n\n{"a": "x"}]', "line 3, byte 12.*as_text"),
        (b'[{"a": 1},\n{"a": ' + b"[" * 9999 + b"]" * 9999 + b"}]", "line 2.*nested"),
        (b'{"a":\n[1]', "the file ends within an object"),
        (b'{"a":\n[1]} x', "object was expected|no JSON object"),
        (b'{"a":\n1}}', "closed that was not opened"),
        (b'{"a":\n1} [2]', "object was expected|no JSON object"),
        (b'"x"', "object was expected"),
    ],
)
def test_a_broken_array_is_an_error_with_its_place(data: bytes, what: str, unit: int) -> None:
    """Not rows of another number."""
    with pytest.raises(SourceFormatError, match=r"a\.json, line \d+, byte \d+: .") as error:
        TextFile("a.json", data, unit_bytes=unit)
    assert error.match(f"(?s){what}")


def test_an_empty_array_has_no_rows() -> None:
    """And no columns."""
    file = TextFile("a.json", b" [ \n ] ")
    assert file.units == ()
    assert len(file.scan.schema) == 0


def test_a_schema_and_texts_are_as_for_lines() -> None:
    """The options are the same."""
    data = b'[{"v": 1, "w": 2}, {"v": "x"},\n {"v": [1,  2]}]'
    texts = TextFile("a.json", data, as_text=["v"], unit_bytes=1)
    assert [row["v"] for row in texts.rows()] == ["1", "x", "[1,  2]"]
    given_one = TextFile("a.json", data, schema={"w": "float"}, unit_bytes=1)
    assert [row["w"] for row in given_one.rows()] == [2.0, None, None]


def test_rows_that_break_a_given_schema_are_named() -> None:
    """With their line, when they are decoded."""
    data = b'[{"v": 1},\n{"v": 2},\n\n {"v": "x"}]'
    file = TextFile("a.json", data, schema={"v": "int64"})
    with pytest.raises(SourceFormatError, match=r"a\.json, line 4, byte 23: .*to string"):
        file.rows()


def test_flips_and_cuts_are_read_or_refused() -> None:
    """Nothing but the error for them is raised."""
    rows = [{"a": [1, None], "b": {"c": 'é"\\\n'}, "n": n} for n in range(20)]
    data = json.dumps(rows).encode()
    choice = random.Random(7)  # noqa: S311 - to be the same each time
    for _ in range(examples(400)):
        bad = bytearray(data)
        for _ in range(choice.randint(1, 3)):
            bad[choice.randrange(len(bad))] = choice.choice(b'{}[]",:\\\n\0\xff019n')
        survives("a.json", bytes(bad), unit_bytes=100)
        survives("a.json", bytes(bad[: choice.randrange(1, len(bad))]), unit_bytes=100)


def test_ends_of_a_block_are_those_of_the_scan() -> None:
    """A block ends with a comma, but for the last."""
    data = b'{"a": "\\"],"}, {"b": [1, 2]} ,{}'
    assert ends_in(ElementScanner(), data).tolist() == [14, 30, 32]
    assert ends_in(ElementScanner(), data[:30]).tolist() == [14, 30]
