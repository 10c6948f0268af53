"""JSON lines that are broken or mean harm: an error that says where, never a crash."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import TextFile, survives
from tests.profiles import examples

from streaming_core._virtual import Piece
from streaming_core.errors import SourceFormatError

GOOD = b'{"a": 1, "b": "x"}\n'


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        # Arrow's parser ends the process at a null that comes first, and makes rows of others.
        (b"null", "object was expected"),
        (b"3", "object was expected"),
        (b"[1]", "object was expected"),
        (b'"x"', "object was expected"),
        (b'{"a": 2} {"a": 3}', "2 objects"),
        (b'{"a": 2}{"a": 3}', "2 objects"),
        (b'{"a": 2} null', "2 objects"),
        (b'{"a": 2', "Missing a comma"),
        (b'{"a": 2}}', "line 3"),
        (b'{"a": }', "Invalid value"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": 01}', "line 3"),
        (b'{"a": 1}\0', "line 3"),
        (b'{"b": "\t"}', "encoding"),
        (b'{"b": "\\ud800"}', "surrogate"),
        (b'{"b": "\xff"}', "UTF-8"),
        (b'{"b": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"a": 1e999}', "too big"),
        (b'{"c": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"c":' * 100_000 + b"1" + b"}" * 100_000, "nested"),
        (b'{"c": ' + b"[" * 100_000, "nested"),
    ],
)
@pytest.mark.parametrize("unit", [1, 1 << 20])
@pytest.mark.parametrize("before", [0, 1])
def test_a_bad_line_is_named(bad: bytes, what: str, unit: int, before: int) -> None:
    """With its line and the byte at which it begins."""
    data = before * (GOOD + b"\n") + (1 - before) * b" \n\n" + bad + b"\n" + GOOD
    at = data.index(b"\n" + bad) + 1
    with pytest.raises(SourceFormatError, match=rf"a\.jsonl, line 3, byte {at}\b|UTF-8") as error:
        TextFile("a.jsonl", data, unit_bytes=unit)
    assert what in str(error.value)


def test_an_object_in_several_lines_is_refused() -> None:
    """It would be cut apart."""
    with pytest.raises(SourceFormatError, match="line 2"):
        TextFile("a.jsonl", b'{"a":\n1}\n')


@pytest.mark.parametrize("bad", [b"null", b'{"a": "\xff"}', b"}", b'{"a": 1}{"a": 2}', b" \n "])
def test_bytes_that_changed_later_are_an_error(bad: bytes) -> None:
    """Where no version tells, the rows do."""
    file = TextFile("a.jsonl", b'{"a": 1234567890}\n' * 3)
    (unit,) = file.units
    data = b'{"a": 1234567890}\n' + bad.ljust(17) + b"\n" + b'{"a": 1234567890}\n'
    with pytest.raises(SourceFormatError, match=r"a\.jsonl, line \d, byte \d"):
        file.kind.decode(file.file, file.scan.meta, unit, [Piece(0, data)], None)


def test_deep_rows_are_read_where_the_schema_leaves_them_out() -> None:
    """What is not wanted is passed over, however deep."""
    data = b'{"a": 1, "c": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    assert TextFile("a.jsonl", data, schema={"a": "int64"}).rows() == [{"a": 1}]


def test_brackets_in_strings_are_no_nesting() -> None:
    """Nor are many that are closed."""
    row = {"a": "[{" * 1000 + '"\\', "b": [[n] for n in range(1000)]}
    assert TextFile("a.jsonl", json.dumps(row).encode()).rows() == [row]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"".join(b'{"k%d": 1}\n' % n for n in range(25_000)), marks=pytest.mark.slow),
        pytest.param(
            b"".join(b'{"m": {"k%d": 1}}\n' % n for n in range(25_000)), marks=pytest.mark.slow
        ),
        b"{" + b",".join(b'"k%d": 1' % n for n in range(100_000)) + b"}\n",
    ],
    ids=["keys", "inner keys", "one row"],
)
def test_keys_that_are_data_make_no_columns(data: bytes) -> None:
    """Each would take room in each row; the error says how to read them."""
    with pytest.raises(SourceFormatError, match=r"columns.*as_text"):
        TextFile("a.jsonl", data)


def test_keys_that_are_data_are_read_as_text() -> None:
    """As that error says."""
    data = b"".join(b'{"m": {"k%d": 1}}\n' % n for n in range(20_000))
    assert TextFile("a.jsonl", data, as_text=["m"]).rows()[-1] == {"m": '{"k19999": 1}'}


@pytest.mark.slow
def test_many_rows_of_many_columns_are_refused_before_they_take_memory() -> None:
    """A short row may have thousands of columns that are missing."""
    data = b"{" + b",".join(b'"k%d": 1' % n for n in range(2000)) + b"}\n" + b"{}\n" * 100_000
    tracemalloc.start()
    try:
        with pytest.raises(SourceFormatError, match=r"100001 rows .* 2000 columns.*unit_bytes"):
            TextFile("a.jsonl", data)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    file = TextFile("a.jsonl", data, unit_bytes=20_000)
    assert file.unit(file.units[-1]).num_rows == file.units[-1].samples > 1


@given(st.lists(st.sampled_from([*b'{}[]":,\\\n 1aetrufnl-.', 0, 0xFF]), min_size=1, max_size=40))
def test_any_bytes_are_read_or_refused(data: list[int]) -> None:
    """Nothing but the error for them is raised."""
    survives("a.jsonl", bytes(data), unit_bytes=9)
    survives("a.json", bytes(data), unit_bytes=9)


def test_flips_and_cuts_are_read_or_refused() -> None:
    """Of a file with everything in it, with and without a schema, and as text."""
    row = {"a": [1, 2.5, None], "b": {"c": "é\n", "d": [{"e": True}]}, "f": "x" * 20}
    data = b"".join(json.dumps({**row, "n": n}).encode() + b"\n" for n in range(20))
    choice = random.Random(5)  # noqa: S311 - to be the same each time
    for _ in range(examples(400)):
        bad = bytearray(data)
        for _ in range(choice.randint(1, 3)):
            bad[choice.randrange(len(bad))] = choice.choice(b'{}[]",:\\\n\0\xff019nt')
        cut = bytes(bad[: choice.randrange(1, len(bad))])
        survives("a.jsonl", cut, unit_bytes=200)
        survives("a.jsonl", cut, unit_bytes=200, schema={"a": ["double"], "f": "string"})
        survives("a.jsonl", cut, unit_bytes=200, as_text=["b"])
