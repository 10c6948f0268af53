"""Plain text by lines: every line once, whatever the cuts."""

from __future__ import annotations

import pickle
from pathlib import Path

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import CUTS, TextFile, survives

from streaming_core._store import MemoryStore
from streaming_core._virtual import Decoder, SourceFile, View, build_index, open_kind
from streaming_core.errors import SchemaError, SourceFormatError

TEXTS = st.text(st.sampled_from("ab \t\r\n\né漢🎈\0"), max_size=80)


def lines(data: bytes, *, blank: bool = False) -> list[str]:
    """Return the lines as Python finds them."""
    found = data.split(b"\n")
    last = found.pop()
    ended = [line.removesuffix(b"\r") for line in found]
    return [
        line.decode()
        for line in [*ended, *([last] if last else [])]
        if blank or line.strip(b" \t\r")
    ]


@given(TEXTS, CUTS, CUTS, st.booleans())
def test_all_lines_come_once_and_in_order(text: str, unit: int, piece: int, blank: bool) -> None:
    """Neither the sizes of units nor those of pieces change what is read."""
    data = text.encode()
    file = TextFile("a.txt", data, piece=piece, unit_bytes=unit, blank_lines=blank)
    assert [row["text"] for row in file.rows()] == lines(data, blank=blank)


@given(TEXTS, CUTS)
def test_a_range_owns_the_lines_that_begin_in_it(text: str, size: int) -> None:
    """Ranges follow each other, begin where a line does, and have lines of their own only."""
    data = text.encode()
    file = TextFile("a.txt", data, unit_bytes=size)
    end = 0
    for unit in file.units:
        assert unit.number >= end
        end = unit.part
        assert not unit.number or data[unit.number - 1 : unit.number] == b"\n"
        own = lines(data[unit.number : unit.part])
        assert [row["text"] for row in file.unit(unit).to_pylist()] == own
        # It ends with the first line that reaches its size.
        short = data[unit.number : unit.part].rstrip(b"\n")
        assert unit is file.units[-1] or b"\n" not in short[size:]


def test_a_line_longer_than_many_units_stays_whole() -> None:
    """The unit grows with it."""
    data = b"a\n" + b"x" * 100_000 + b"\nb\n"
    file = TextFile("a.txt", data, unit_bytes=10, piece=999)
    assert [len(row["text"]) for row in file.rows()] == [1, 100_000, 1]


def test_thousands_of_lines_in_many_units() -> None:
    """Windows, units and the file end in different places."""
    texts = [f"line {n} " + "é" * (n % 97) for n in range(20_000)]
    file = TextFile("a.txt", "\r\n".join(texts).encode(), unit_bytes=100_000, piece=70_001)
    assert len(file.units) > 10
    assert [row["text"] for row in file.rows()] == texts


def test_a_text_file_of_another_package() -> None:
    """Python reads the same lines."""
    path = Path(hypothesis.__file__).parent / "vendor" / "tlds-alpha-by-domain.txt"
    file = TextFile("a.txt", path.read_bytes(), unit_bytes=1000)
    assert [row["text"] for row in file.rows()] == path.read_text().splitlines()


def test_a_mark_of_utf8_is_passed_over() -> None:
    """And no other byte."""
    file = TextFile("a.txt", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", piece=1)
    assert [row["text"] for row in file.rows()] == ["a", "\ufeffb"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"ok\n\nb\xffd\n", "line 3, byte 5: .* no UTF-8"),
        (b"cut \xe6\xbc", "line 1, byte 4: .* no UTF-8"),
        (b"\xff\xfea\0", "UTF-16"),
        (b"\x1f\x8b\x08", "gzip data"),
        (b"PAR1abc", "Parquet"),
        (b"a\nbb\n" + b"c" * 200, "line 3, byte 5: .*more than 100 bytes.*max_record_bytes"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(data: bytes, what: str) -> None:
    """The message says what it is, or where."""
    with pytest.raises(SourceFormatError, match=what):
        TextFile("a.txt", data, piece=3, max_record_bytes=100)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but the error for them is raised."""
    survives("a.txt", data or b"x", unit_bytes=5)


@pytest.mark.parametrize(
    "options",
    [{"unit_bytes": 0}, {"max_ratio": "x"}, {"blank_lines": 3}, {"max_record_bytes": True}],
)
def test_options_are_checked(options: dict[str, object]) -> None:
    """A wrong one is refused before any I/O."""
    with pytest.raises(SchemaError, match=next(iter(options))):
        open_kind("text", options)


def test_files_become_one_decoder() -> None:
    """Index and decoder see text as they see other formats, in a copy too."""
    store = MemoryStore()
    files: list[SourceFile] = []
    for n in range(3):
        info = store.put(f"{n}.txt", [f"one {n}\n\ntwo {n}".encode()])
        files.append(SourceFile(info.key, info.size, info.etag))
    index = build_index(store, files, "text", {"unit_bytes": 4})
    decoder = pickle.loads(pickle.dumps(Decoder(index, store, View())))
    batches = [decoder.batch(at) for at in range(len(index.files))]
    texts = pa.Table.from_batches(batches).column("text").to_pylist()
    assert texts == ["one 0", "two 0", "one 1", "two 1", "one 2", "two 2"]
