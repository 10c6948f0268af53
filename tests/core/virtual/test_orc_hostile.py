"""Broken and hostile ORC files: refused with an error that says so, never a crash or a hang."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from tests.core.virtual.kind_reading import Opened, damaged, outcome
from tests.profiles import examples

from streaming_core._virtual._kinds._bounded import ExpandError, expand
from streaming_core._virtual._kinds._orc_lengths import sum_of_lengths
from streaming_core._virtual._kinds._orc_types import columns_of
from streaming_core.errors import SourceFormatError

CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]


def _file(**options: Any) -> bytes:
    rows = 300
    table = pa.table(
        {
            "i": np.random.default_rng(0).integers(0, 1 << 40, rows),
            "s": [f"v{n * n % 999}" * (n % 3) for n in range(rows)],
            "few": [str(n % 4) for n in range(rows)],
            "l": [[1, 2, None][: n % 4] for n in range(rows)],
            "p": [{"x": n, "y": str(n)} if n % 3 else None for n in range(rows)],
            "m": pa.array([[("a", n)] for n in range(rows)], pa.map_(pa.string(), pa.int64())),
        }
    )
    sink = io.BytesIO()
    orc.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("codec", CODECS)
def test_files_cut_anywhere_are_refused(codec: str) -> None:
    """There is no end without a tail."""
    data = _file(compression=codec)
    for size in range(0, len(data), max(1, len(data) // 150)):
        with pytest.raises(SourceFormatError):
            Opened("orc", data[:size])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["0.11", "0.12"])
def test_damaged_files_are_refused_or_read(codec: str, version: str) -> None:
    """Nothing else: all rows counted, or the error that is meant for it."""
    data = _file(compression=codec, file_version=version, dictionary_key_size_threshold=0.5)
    rng = np.random.default_rng(CODECS.index(codec))
    found = {outcome("orc", damaged(data, rng)) for _ in range(examples(250))}
    assert "refused" in found


def test_wrong_lengths_of_texts_do_not_reach_the_library() -> None:
    """Which would write beyond its memory for one byte that is another."""
    data = _file(compression="uncompressed", dictionary_key_size_threshold=0.0)
    opened = Opened("orc", data)
    (unit,) = opened.scan.units
    spans = opened.kind.ranges(opened.file, opened.scan.meta, unit, ["s"])
    refused = 0
    for at in range(spans[0][0], spans[-1][1], 3):
        broken = bytearray(data)
        broken[at] = 255 - broken[at]
        refused += outcome("orc", bytes(broken)) == "refused"
    assert refused > 20


LENGTHS = st.one_of(
    st.lists(st.integers(0, 300), min_size=1, max_size=1200),
    st.lists(st.sampled_from([0, 1, 2, 40_000]), min_size=1, max_size=700),
    st.builds(lambda n, step: [k * step for k in range(n)], st.integers(1, 400), st.integers(0, 9)),
    st.builds(lambda n: [5] * n, st.integers(1, 1500)),
)


@settings(max_examples=examples(60))
@given(lengths=LENGTHS, version=st.sampled_from(["0.11", "0.12"]))
def test_lengths_that_were_written_are_never_refused(lengths: list[int], version: str) -> None:
    """All ways of encoding them, as the writer chooses them."""
    lists = pa.array([[True] * n for n in lengths], pa.list_(pa.bool_()))
    table = pa.table({"b": [bytes(n) for n in lengths], "l": lists})
    sink = io.BytesIO()
    orc.write_table(table, sink, compression="zstd", file_version=version)
    assert Opened("orc", sink.getvalue()).read().equals(table)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("0a2710", 10_000 * 5),  # a short repeat, as the format's own description has it
        ("5e03 5ca1 ab1e dead beef", 23713 + 43806 + 57005 + 48879),
        ("c609 0202 2242 4246", 2 + 3 + 5 + 7 + 11 + 13 + 17 + 19 + 23 + 29),
        (
            "8e13 2b21 07d0 1e00 1470 2832 3c46 505a 646e 7882 8c96 a0aa b4be fce8",
            sum([2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)]),
        ),
    ],
)
def test_runs_as_the_format_describes_them(data: str, wanted: int) -> None:
    """The examples of its specification."""
    raw = bytes.fromhex(data.replace(" ", ""))
    assert sum_of_lengths(raw, newer=True) == wanted


@pytest.mark.parametrize(
    ("data", "wanted"), [("61 00 07", 100 * 7), ("fb 02 03 04 07 0b", 2 + 3 + 4 + 7 + 11)]
)
def test_older_runs_as_the_format_describes_them(data: str, wanted: int) -> None:
    """The examples of its specification."""
    assert sum_of_lengths(bytes.fromhex(data), newer=False) == wanted


@given(data=st.binary(max_size=40), newer=st.booleans())
def test_any_bytes_as_lengths(data: bytes, *, newer: bool) -> None:
    """A sum that can be, or a refusal."""
    try:
        total = sum_of_lengths(data, newer=newer)
    except ValueError:
        return
    assert 0 <= total < 1 << 50


def test_types_that_are_no_tree_are_refused() -> None:
    """A library would follow them beyond the end, or around in a circle."""
    struct = bytes([8, 12, 0x12, 1, 1, 0x1A, 1, 97])  # one column, called a, of type 1
    assert columns_of([struct, bytes([8, 4])]) == ((1, 2),)
    wrong = [
        [],
        [bytes([8, 4])],
        [struct],
        [struct, bytes([8, 4]), bytes([8, 4])],
        [struct, bytes([8, 10])],  # a list of nothing
        [struct, bytes([8, 10, 0x12, 1, 1])],  # a list of itself
        [struct, bytes([8, 14, 40, 77])],  # decimals of 77 digits
        [struct, bytes([8, 99])],
    ]
    for types in wrong:
        with pytest.raises(ValueError, match=r"type|decimal"):
            columns_of(types)


@given(data=st.binary(max_size=3000), codec=st.sampled_from(["snappy", "lz4_raw"]))
def test_blocks_expand_within_their_bound(data: bytes, codec: str) -> None:
    """To exactly what was compressed, and to nothing if it is more than was allowed."""
    name = codec.removesuffix("_raw")
    packed = pa.Codec(codec).compress(data * 3, asbytes=True)
    assert expand(name, packed, len(data) * 3) == data * 3
    if data:
        with pytest.raises(ExpandError, match="expands to more than"):
            expand(name, packed, len(data) * 3 - 1)
