"""Whole numbers of text stay what they are, or are refused: none becomes a float unasked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import TextFile, same

from streaming_core._store import MemoryStore
from streaming_core._virtual import Decoder, SourceFile, View, build_index
from streaming_core.errors import SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT = ["0", "7", "-3", "9007199254740992", "-9007199254740992"]
_LONG = ["9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808"]
_HUGE = ["9223372036854775808", "18446744073709551615"]
_NONE = ["18446744073709551616", "-9223372036854775809", "9" * 60, "-" + "9" * 400]
_OTHER = ["1.5", "-2e3", "1e300", "9007199254740993.0"]
_LITERALS = st.sampled_from([*_SHORT, *_LONG, *_HUGE, *_NONE, *_OTHER, "null"])


def _type_of(literals: Sequence[str]) -> str:
    """Return the type that the rule gives a column; `refused` if it gives none."""
    there = [text for text in literals if text != "null"]
    whole = [int(text) for text in there if text.lstrip("-").isdigit()]
    if len(whole) < len(there):
        return "double" if all(abs(number) <= 1 << 53 for number in whole) else "refused"
    if all(-(1 << 63) <= number < 1 << 63 for number in whole):
        return "int64" if whole else "null"
    return "uint64" if min(whole) >= 0 and max(whole) < 1 << 64 else "refused"


def _check(name: str, data: bytes, unit: int, literals: Sequence[str], **options: Any) -> None:
    wanted = _type_of(literals)
    if wanted == "refused":
        with pytest.raises(SourceFormatError, match=r"column 'v.* has .*schema=\{'v': 'double'\}"):
            TextFile(name, data, unit_bytes=unit, **options)
        return
    file = TextFile(name, data, unit_bytes=unit, **options)
    kind = file.scan.schema.field("v").type
    while pa.types.is_nested(kind):
        kind = kind.field(0).type
    assert str(kind) == wanted
    came = [row["v"] for row in file.rows()]
    for value, text in zip(came, literals, strict=True):
        while isinstance(value, list | dict):
            value = next(iter(value.values() if isinstance(value, dict) else value))  # noqa: PLW2901
        # As text, for 2**53 + 1 equals the float that it is rounded to only if it is one.
        number = None if text == "null" else json.loads(text)
        assert str(value) == str(float(number) if wanted == "double" and number else number) or (
            value == number == 0
        )


@given(
    st.lists(_LITERALS, min_size=1, max_size=5),
    st.sampled_from(["{}", "[{}]", '{{"a": {}}}', '[{{"a": [{}]}}]']),
    st.sampled_from([1, 1 << 20]),
)
def test_json_has_one_type_for_all_numbers_or_none(
    literals: list[str], form: str, unit: int
) -> None:
    """On lines, at any depth, in one block or in several."""
    lines = [f'{{"v": {form.format(text)}, "w": "1.5"}}\n' for text in literals]
    _check("a.jsonl", "".join(lines).encode(), unit, literals)
    _check("a.jsonl", "".join(lines).encode(), unit, literals, as_text=["w"])
    array = "[" + ",\n".join(lines) + "]"
    _check("a.json", array.encode(), unit, literals)


@given(st.lists(_LITERALS, min_size=1, max_size=5), st.sampled_from([1, 1 << 20]))
def test_csv_likewise(literals: list[str], unit: int) -> None:
    """Quoted or not, beside other columns."""
    rows = [f"{'' if text == 'null' else text},x\n" for text in literals]
    _check("a.csv", ("v,w\n" + "".join(rows)).encode(), unit, literals)
    quoted = [f'"{text}"\tx\n' if text != "null" else "\tx\n" for text in literals]
    _check("a.tsv", ("v\tw\n" + "".join(quoted)).encode(), unit, literals)


def test_rows_that_only_arrow_reads_are_looked_at_too() -> None:
    """Python knows no Inf."""
    with pytest.raises(SourceFormatError, match="column 'v' has 9007199254740993 beside"):
        TextFile("a.jsonl", b'{"v": 9007199254740993, "w": Inf}\n{"v": 1.5}\n')
    file = TextFile("a.jsonl", b'{"v": 1e300, "w": Inf, "t": "9007199254740993"}\n{"v": 1.5}\n')
    assert [row["v"] for row in file.rows()] == [1e300, 1.5]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
@pytest.mark.parametrize("unit", [1, 1 << 20])
def test_the_message_names_the_file_the_column_and_the_number(name: str, unit: int) -> None:
    """And the way out, which leads there."""
    texts = ["5", "-1", "18446744073709551615"]
    data = "v\n" + "".join(f"{text}\n" for text in texts)
    if name == "a.jsonl":
        data = "".join(f'{{"v": {text}}}\n' for text in texts)
    wanted = rf"{name}: column 'v' has 18446744073709551615 beside -1, .*schema=\{{'v': 'double'\}}"
    with pytest.raises(SourceFormatError, match=wanted):
        TextFile(name, data.encode(), unit_bytes=unit)
    file = TextFile(name, data.encode(), unit_bytes=unit, schema={"v": "double"})
    assert same(file.rows(), [{"v": float(text)} for text in texts])


# --- several files --------------------------------------------------------------------------------


def _decoded(kind: str, *columns: Sequence[str]) -> list[Any]:
    """Return the column `v` of files that have these literals, decoded in one form."""
    store = MemoryStore()
    files: list[SourceFile] = []
    for at, literals in enumerate(columns):
        data = "v\n" + "".join(f"{text}\n" for text in literals)
        if kind == "jsonl":
            data = "".join(f'{{"v": {text}}}\n' for text in literals)
        info = store.put(f"{at}.{kind}", [data.encode()])
        files.append(SourceFile(info.key, info.size, info.etag))
    index = build_index(store, files, kind)
    decoder = Decoder(index, store, View())
    batches = [decoder.batch(at) for at in range(len(index.files))]
    found: list[Any] = pa.Table.from_batches(batches, decoder.schema)["v"].to_pylist()
    return found


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@given(st.lists(st.lists(_LITERALS.filter(lambda text: text != "null"), min_size=1), min_size=1))
def test_files_are_alike_to_blocks_of_one(kind: str, columns: list[list[str]]) -> None:
    """The same numbers, or the same refusal when the data set is opened: never at a row."""
    wanted = [text for literals in columns for text in literals]
    kind_wanted = _type_of(wanted)
    if kind_wanted == "refused":
        with pytest.raises((SourceFormatError, SchemaError), match=r"column 'v'.*'v': 'double'"):
            _decoded(kind, *columns)
        return
    found = _decoded(kind, *columns)
    assert {type(value) for value in found} == {float if kind_wanted == "double" else int}
    assert found == [json.loads(text) for text in wanted]


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ([["18446744073709551615"], ["3", "-1"]], r"0\.jsonl: column 'v'.* 63 bits, in .*1\.jsonl"),
        ([["1.5"], ["2"], ["9007199254740993"]], r"2\.jsonl: column 'v'.* 53 bits, in .*0\.jsonl"),
        ([["18446744073709551615"], ["1.5"]], r"0\.jsonl: column 'v'.* 53 bits, in .*1\.jsonl"),
    ],
)
def test_both_files_are_named(columns: list[list[str]], wanted: str) -> None:
    """With what each has."""
    with pytest.raises(SchemaError, match=wanted):
        _decoded("jsonl", *columns)
