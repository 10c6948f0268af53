"""The pure parts of planning: bitmaps, frames, values as text, places, and plans as bytes."""

from __future__ import annotations

import datetime as dt
import re
import struct
import zlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.virtual.tables import portable, puffin, vector_blob
from tests.profiles import examples

from streaming_core._store import MemoryStore
from streaming_core._virtual import SourceFile, SourceReader
from streaming_core._virtual._tables import PlannedFile, TablePlan, dump, keep_bits, parse
from streaming_core._virtual._tables._places import rooted
from streaming_core._virtual._tables._plan import checked_positions
from streaming_core._virtual._tables._puffin import deletion_vectors, vector_positions
from streaming_core._virtual._tables._roaring import roaring_positions
from streaming_core._virtual._tables._values import from_text, to_text
from streaming_core.errors import IndexInvalidError, SchemaError, SourceFormatError

# Few and many, in runs, and beyond 32 bits, so that every form of container occurs.
_POSITIONS = st.one_of(
    st.sets(st.integers(0, 1 << 40), max_size=50),
    st.sets(st.integers(0, 200_000), max_size=300),
    st.builds(
        lambda start, length, step: set(range(start, start + length * step, step)),
        st.integers(0, 1 << 33),
        st.integers(0, 20_000),
        st.integers(1, 5),
    ),
)

# --- bitmaps --------------------------------------------------------------------------------------


@given(_POSITIONS)
@settings(max_examples=examples(60))
def test_bitmaps_of_another_library_are_understood(positions: set[int]) -> None:
    """Every position comes back, in order."""
    found = roaring_positions(portable(positions), -1, "here")
    assert found.dtype == np.int64
    assert found.tolist() == sorted(positions)


def test_every_form_of_container_occurs() -> None:
    """Arrays, bitmaps and runs; with and without the table of where they begin."""
    rng = np.random.default_rng(1)
    positions = {
        *rng.choice(65_536, 30_000, replace=False).tolist(),
        *(rng.choice(65_536, 100, replace=False) + 65_536).tolist(),
        *range(200_000, 250_000),
        *range(1 << 20, (1 << 20) + 65_536),
        *((5 << 32) + rng.choice(70_000, 5000, replace=False)).tolist(),
    }
    assert roaring_positions(portable(positions), -1, "x").tolist() == sorted(positions)
    assert roaring_positions(portable(range(100)), 100, "x").tolist() == list(range(100))


@given(st.sets(st.integers(0, 100_000), max_size=200), st.data())
def test_damaged_bitmaps_give_positions_in_bounds_or_an_error(
    positions: set[int], data: st.DataObject
) -> None:
    """Cut, flipped or made up: never a crash, disorder, or a row that there is not."""
    good = bytearray(portable(positions))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    bad = bytes(good[: data.draw(st.integers(0, len(good)))])
    try:
        found = roaring_positions(bad, 200_000, "here")
    except SourceFormatError:
        return
    assert (np.diff(found) > 0).all()
    assert not len(found) or 0 <= found[0] <= found[-1] < 200_000


def test_a_small_bitmap_that_claims_much_takes_little() -> None:
    """A few bytes for each 65,536 rows must not make gigabytes."""
    containers = 65_535
    bomb = struct.pack("<QI", 1, 0) + struct.pack("<I", 12347 | (containers - 1) << 16)
    bomb += b"\xff" * ((containers + 7) // 8)
    bomb += b"".join(struct.pack("<HH", key, 65_535) for key in range(containers))
    bomb += b"\0" * (4 * containers) + struct.pack("<HHH", 1, 0, 65_535) * containers
    with pytest.raises(SourceFormatError, match="more than the 100000 rows"):
        roaring_positions(bomb, 100_000, "here")
    endless = struct.pack("<Q", (1 << 64) - 1)
    with pytest.raises(SourceFormatError, match="4 bytes wanted"):
        roaring_positions(endless, 100_000, "here")


# --- Puffin ---------------------------------------------------------------------------------------


def _reader(data: bytes) -> SourceReader:
    store = MemoryStore()
    store.put("x.puffin", [data])
    return SourceReader(store, SourceFile("x.puffin", len(data), ""))


@pytest.mark.parametrize("compressed", [False, True])
def test_vectors_are_found_in_a_puffin_file(compressed: bool) -> None:
    """Those of the files that are asked for, and no others."""
    data = puffin([("a", range(5)), ("b", [7]), ("c", [1 << 33])], compressed=compressed)
    found = deletion_vectors(_reader(data), {"a": 10, "b": 8, "d": 1})
    assert {name: rows.tolist() for name, rows in found.items()} == {"a": [0, 1, 2, 3, 4], "b": [7]}


def test_a_footer_longer_than_the_first_read_is_fetched_whole() -> None:
    """With a vector for each of many files."""
    vectors = [(f"s3://bucket/some/long/folder/{at:06d}.parquet", [at]) for at in range(2000)]
    found = deletion_vectors(_reader(puffin(vectors)), {path: 2000 for path, _ in vectors})
    assert [found[path].tolist() for path, rows in vectors] == [rows for _, rows in vectors]


@given(st.data())
def test_damaged_puffin_files_are_errors_or_harmless(data: st.DataObject) -> None:
    """What is returned at all is what was deleted."""
    good = puffin([("a", [1, 5, 9]), ("b", range(100))])
    bad = bytearray(good)
    at = data.draw(st.integers(0, len(good) - 1))
    bad[at] = data.draw(st.integers(0, 255))
    try:
        found = deletion_vectors(_reader(bytes(bad)), {"a": 10, "b": 100})
    except SourceFormatError:
        return
    # A name or kind in the footer may have become another one; then the vector is nobody's.
    assert found.get("a", np.array([1, 5, 9])).tolist() == [1, 5, 9]
    assert found.get("b", np.arange(100)).tolist() == list(range(100))


def _told(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return a Puffin file with another text in its footer."""
    head, footer = data.rsplit(b"PFA1{", 1)
    document = (b"{" + footer[:-12]).replace(old, new)
    return head + b"PFA1" + document + struct.pack("<iI", len(document), 0) + b"PFA1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1] + b"0", "no Puffin file"),
        (lambda data: data[:4], "no Puffin file"),
        (lambda data: data[:-8] + struct.pack("<I", 2) + b"PFA1", "flags 2"),
        (lambda data: data[:-8] + struct.pack("<I", 1) + b"PFA1", "compressed footer is broken"),
        (lambda data: data[:-12] + struct.pack("<iI", 1 << 30, 0) + b"PFA1", "cannot be"),
        (lambda data: data[:-12] + struct.pack("<iI", -5, 0) + b"PFA1", "cannot be"),
        (lambda data: data.replace(b'"offset":4', b'"offset":9'), "vector is broken"),
        (lambda data: data.replace(b'"offset":4', b'"offset":-'), "footer is broken"),
        (lambda data: _told(data, b'"length":', b'"length":-'), "blob of -"),
        (lambda data: _told(data, b'"offset":4', b'"offset":999'), "behind the file's"),
        (lambda data: data.replace(b'{"blobs"', b'{"bl0bs"'), "footer is broken"),
    ],
)
def test_broken_puffin_files_say_what_is_wrong(change: Any, message: str) -> None:
    """Each part is checked on its own."""
    with pytest.raises(SourceFormatError, match=message):
        deletion_vectors(_reader(change(puffin([("a", [1])]))), {"a": 10})


def test_a_compressed_vector_is_refused() -> None:
    """The format says that they are not; guessing would be worse."""
    data = _told(puffin([("a", [1])]), b'"type"', b'"compression-codec":"zstd","type"')
    with pytest.raises(SourceFormatError, match="compressed as 'zstd'"):
        deletion_vectors(_reader(data), {"a": 10})


def test_a_vector_is_checked_by_length_magic_and_checksum() -> None:
    """Also one that is shorter than its frame."""
    blob = vector_blob([1, 2])
    assert vector_positions(blob, 3, "x").tolist() == [1, 2]
    body = b"\0\0\0\0" + blob[8:-4]
    others = [
        blob[:5],
        b"",
        blob + b"\0",
        blob[:-1] + bytes([blob[-1] ^ 1]),
        blob[:4] + body + struct.pack(">I", zlib.crc32(body)),
    ]
    for other in others:
        with pytest.raises(SourceFormatError, match=r"^x: a deletion vector"):
            vector_positions(other, 3, "x")


# --- which rows are kept --------------------------------------------------------------------------


@given(st.sets(st.integers(0, 300)), st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_bits_of_all_units_together_keep_what_is_not_deleted(
    deleted: set[int], units: list[int]
) -> None:
    """However a file is cut."""
    rows = sum(units)
    positions = np.array(sorted(one for one in deleted if one < rows), np.int64)
    kept: list[int] = []
    first = 0
    for count in units:
        bits = keep_bits(positions, first, count)
        if bits is None:
            kept += range(first, first + count)
        else:
            assert len(bits) == (count + 7) // 8
            mask = np.unpackbits(np.frombuffer(bits, np.uint8))
            assert not mask[count:].any()  # what is counted is the ones
            kept += (first + np.flatnonzero(mask)).tolist()
        first += count
    assert kept == [row for row in range(rows) if row not in deleted]


def test_positions_of_several_places_are_joined_and_checked() -> None:
    """Each once; a file whose rows are not known has no upper bound."""
    parts = [np.array([5, 1]), np.array([], np.int64), np.array([1, 9])]
    assert checked_positions(parts, 10, "x").tolist() == [1, 5, 9]
    assert checked_positions(parts, -1, "x").tolist() == [1, 5, 9]
    assert checked_positions([], 10, "x").tolist() == []
    with pytest.raises(SourceFormatError, match="row 9 is deleted, but the file has 9 rows"):
        checked_positions(parts, 9, "x")


# --- values as text -------------------------------------------------------------------------------

_UTC = pa.timestamp("us", "UTC")
_VALUES = st.one_of(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.just(pa.int64())),
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.just(pa.int32())),
    st.tuples(st.booleans(), st.just(pa.bool_())),
    st.tuples(st.floats(allow_nan=False), st.just(pa.float64())),
    st.tuples(st.floats(width=32, allow_nan=False), st.just(pa.float32())),
    st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.just(pa.large_string())),
    st.tuples(st.binary(), st.sampled_from([pa.binary(), pa.large_binary()])),
    st.tuples(st.binary(min_size=16, max_size=16), st.just(pa.binary(16))),
    st.tuples(st.dates(), st.just(pa.date32())),
    st.tuples(st.times(), st.just(pa.time64("us"))),
    st.tuples(st.datetimes(), st.just(pa.timestamp("us"))),
    st.tuples(st.datetimes(timezones=st.just(dt.UTC)), st.just(_UTC)),
    st.tuples(st.integers(-(10**8), 10**8), st.just(pa.timestamp("ns"))),
    st.tuples(
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda whole: Decimal(whole).scaleb(-2)),
        st.just(pa.decimal128(9, 2)),
    ),
)


@given(_VALUES)
def test_values_survive_as_text(pair: tuple[Any, pa.DataType]) -> None:
    """Of every type that a table can be partitioned by."""
    scalar = pa.scalar(*pair)
    text = to_text(scalar)
    assert isinstance(text, str)
    assert from_text(text, scalar.type, "x").equals(scalar)
    assert to_text(pa.scalar(None, scalar.type)) is None
    assert not from_text(None, scalar.type, "x").is_valid


def test_text_that_is_no_value_is_an_error() -> None:
    """It names the place, the text and the type."""
    for text, kind in (("x", pa.int64()), ("2024-13-01", pa.date32()), ("?", pa.binary())):
        with pytest.raises(SourceFormatError, match=rf"^here: .*is no {re.escape(str(kind))}"):
            from_text(text, kind, "here")


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locations", "table", "root", "keys"),
    [
        (["s3a://b/t/x", "s3n://b/t/p=a%20b/y"], "s3://b/t/", "s3://b/t", ["x", "p=a%20b/y"]),
        (["s3://b/t/x"], "s3://other/t", "s3://b/t", ["x"]),
        (["s3://b/x", "s3://b/d/y"], "s3://b/t", "s3://b/", ["x", "d/y"]),
        (["s3://b/x"], "s3://b", "s3://b/", ["x"]),
        (["s3://b/tt/x"], "s3://b/t", "s3://b/tt", ["x"]),
        (["file:/a/b c/x", "/a/b c/y", "file:///a/b c/z"], "/q", "/a/b c", ["x", "y", "z"]),
        (["file:///x"], "file:///t", "/", ["x"]),
        (["ABFSS://c@a/t/x"], "abfss://c@a/t", "abfss://c@a/t", ["x"]),
        ([], "gs://b/t", "gs://b/t", []),
    ],
)
def test_one_folder_is_found_for_all_files(
    locations: list[str], table: str, root: str, keys: list[str]
) -> None:
    """The table's if they are below it, else what they share; nothing is decoded."""
    assert rooted(locations, table) == (root, keys)


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        (["s3://a/x", "s3://b/x"], "several places"),
        (["s3://a/x", "/x"], "this machine"),
        (["s3://a/t/d//x"], "empty part"),
        (["s3://a/t//x"], "absolute"),
        (["s3://a/t/../x"], "'..' part"),
        (["s3://a/t/a\\b"], "backslash"),
    ],
)
def test_places_that_cannot_be_read_are_refused(locations: list[str], message: str) -> None:
    """Before anything is read."""
    with pytest.raises(SchemaError, match=message):
        rooted(locations, "s3://a/t")


# --- plans ----------------------------------------------------------------------------------------


def _plan() -> TablePlan:
    nothing = np.empty(0, np.int64)
    return TablePlan(
        "s3://b/t",
        "17",
        pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "1"})]),
        (
            PlannedFile("a", "parquet", 100, 10, (("p", None), ("q", "ü")), np.array([1, 9])),
            PlannedFile("b/c", "orc", 0, -1, (), nothing),
        ),
        "[]",
    )


def test_a_plan_comes_back_from_bytes() -> None:
    """With all that it had."""
    plan, copy = _plan(), parse(dump(_plan()), "x")
    assert dump(copy) == dump(plan)
    assert copy.schema.equals(plan.schema, check_metadata=True)
    assert copy.files[0].constants == (("p", None), ("q", "ü"))
    assert copy.files[0].deleted.tolist() == [1, 9]
    assert copy.files[0].source() == SourceFile("a", 100, "", (("p", None), ("q", "ü")))
    assert copy.url(1) == "s3://b/t/b/c"


def test_rows_are_checked_against_the_table() -> None:
    """A file with others than the table says was touched by something else."""
    plan = _plan()
    plan.check_rows(0, 10)
    plan.check_rows(1, 12345)
    with pytest.raises(SourceFormatError, match="s3://b/t/a has 9 rows, but the table says 10"):
        plan.check_rows(0, 9)
    file = PlannedFile("a", "parquet", 1, -1, (), np.array([7]))
    unknown = TablePlan("s3://b/t", "1", plan.schema, (file,))
    unknown.check_rows(0, 8)
    with pytest.raises(SourceFormatError, match="row 7 is deleted, but there are 7"):
        unknown.check_rows(0, 7)


@given(st.data())
def test_damaged_plans_are_refused_or_sound(data: st.DataObject) -> None:
    """Nothing but the typed error comes of them, and no key that leads elsewhere."""
    good = dump(_plan())
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(good), len(good) - 1, len(good) // 2, 0]))
    try:
        plan = parse(bytes(bad[:cut]), "here")
    except IndexInvalidError:
        return
    for file in plan.files:
        assert not file.key.startswith("/")
        assert (np.diff(file.deleted) > 0).all()


@pytest.mark.parametrize(
    "files",
    [
        (PlannedFile("../x", "parquet", 1, 1, (), np.array([], np.int64)),),
        (PlannedFile("x", "parquet", -1, 1, (), np.array([], np.int64)),),
        (PlannedFile("x", "parquet", 1, 1, (), np.array([1])),),
        (PlannedFile("x", "parquet", 1, 9, (), np.array([5, 5])),),
        (PlannedFile("x", "parquet", 1, 1, (), np.array([], np.int64)),) * 2,
    ],
)
def test_plans_that_cannot_be_are_refused(files: tuple[PlannedFile, ...]) -> None:
    """Whoever wrote them."""
    plan = TablePlan("s3://b/t", "1", pa.schema([]), files)
    with pytest.raises(IndexInvalidError, match="not a plan of a table"):
        parse(dump(plan), "here")
