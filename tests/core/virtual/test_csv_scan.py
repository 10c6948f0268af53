"""The ends of CSV records, against a scanner that looks at one byte after the other."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.csv as pac
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.text_reading import CUTS, survives
from tests.profiles import examples

from streaming_core._virtual._kinds._csv_scan import CsvScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = st.text(st.sampled_from('aab,,""""\n\n\r'), max_size=60)


def ends_of(text: bytes, quote: int | None = ord('"')) -> tuple[list[int], list[bool], bool, bool]:
    """Return ends, which are rows, whether a row is open, and whether quotes are: byte by byte."""
    ends: list[int] = []
    full: list[bool] = []
    begin = at = 0
    state = "start"
    while at < len(text):
        byte = text[at]
        at += 1
        if state == "quoted":
            if byte == quote:
                if at < len(text) and text[at] == quote:
                    at += 1
                else:
                    state = "field"
        elif byte in b"\r\n":
            size = at - 1 - begin
            if byte == ord("\r"):
                if at == len(text):  # half of an end, or all of it
                    return ends, full, size > 0, False
                at += text[at] == ord("\n")
            ends.append(at)
            full.append(size > 0)
            begin, state = at, "start"
        elif byte == ord(","):
            state = "start"
        elif state == "start" and byte == quote:
            state = "quoted"
        else:
            state = "field"
    return ends, full, at > begin, state == "quoted"


def scanned(
    text: bytes, sizes: Sequence[int], quote: str | None = '"'
) -> tuple[list[int], list[bool], bool, bool]:
    """Return the same from the scanner, which is fed pieces of these sizes by turns."""
    scanner = CsvScanner(",", quote)
    ends: list[int] = []
    full: list[bool] = []
    at = turn = 0
    while at < len(text):
        piece = np.frombuffer(text[at : at + sizes[turn % len(sizes)]], np.uint8)
        found = scanner.feed(piece)
        ends += (found.at + at).tolist()
        full += found.full.tolist()
        at += len(piece)
        turn += 1
    return ends, full, scanner.begun, bool(scanner.problem())


@given(TEXTS, st.lists(CUTS, min_size=1, max_size=4))
def test_ends_are_those_found_byte_by_byte(text: str, sizes: list[int]) -> None:
    """Whatever the text, and however it comes."""
    data = text.encode()
    assert scanned(data, [*sizes, 1]) == ends_of(data)
    assert scanned(data, [1 << 20]) == ends_of(data)
    assert scanned(data, sizes, None) == ends_of(data, None)


@given(st.lists(st.text(st.sampled_from('ab"\n'), max_size=8), max_size=8))
def test_arrow_finds_as_many_rows(fields: list[str]) -> None:
    """Of one column, with quotes in places where they do not belong, too."""
    data = "\n".join(fields).encode() + b"\n"
    _, full, begun, is_open = scanned(data, [7])
    if begun or is_open or not any(full):
        return
    table = pac.read_csv(
        io.BytesIO(data),
        pac.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=["x"]),
        pac.ParseOptions(newlines_in_values=True),
    )
    assert table.num_rows == sum(full)


@pytest.mark.parametrize("field", ['5" disk', '"a""b\n"', '"x"y', "", '"', "plain"])
def test_long_texts_of_one_sort(field: str) -> None:
    """Over many windows; those with quotes within fields take another way."""
    text = f"1,{field},z\r\n".encode() * 3000
    assert scanned(text, [4096]) == ends_of(text)
    assert scanned(text, [1 << 20]) == ends_of(text)


def test_flips_and_cuts_are_read_or_refused() -> None:
    """Nothing but the error for them is raised."""
    data = b"a,b,c\r\n" + '1,"x\n""y""",2.5\r\n,é,\r\n'.encode() * 15
    choice = random.Random(3)  # noqa: S311 - to be the same each time
    for _ in range(examples(600)):
        bad = bytearray(data)
        for _ in range(choice.randint(1, 3)):
            bad[choice.randrange(len(bad))] = choice.choice(b'",\n\r\0\xff1x')
        survives("a.csv", bytes(bad), unit_bytes=choice.choice([1, 50, 10_000]))
        survives("a.csv", bytes(bad[: choice.randrange(1, len(bad))]), unit_bytes=50)
        survives("a.csv", bytes(bad), unit_bytes=50, schema={"a": "int64"}, header=["a", "b", "c"])
