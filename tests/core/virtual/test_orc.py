"""ORC: equal to what pyarrow reads of the same files, and no more bytes than the columns have."""

from __future__ import annotations

import datetime as dt
import io
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from tests.core.virtual.kind_reading import Opened, decoded
from tests.profiles import examples

from streaming_core._virtual import open_kind
from streaming_core._virtual._kinds import _packing, kind_of_name
from streaming_core.errors import SourceChangedError, SourceFormatError

CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]
SHIPPED = Path(pytest.importorskip("pyarrow.tests").__path__[0]) / "data" / "orc"


def _file(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    orc.write_table(table, sink, **options)
    return sink.getvalue()


def _oracle(data: bytes) -> pa.Table:
    table: pa.Table = orc.ORCFile(pa.BufferReader(data)).read()
    return table.replace_schema_metadata(None)


def _table(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    day = dt.date(1969, 7, 20)
    return pa.table(
        {
            "id": np.arange(rows),
            "x": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "small": rng.integers(-100, 100, rows).astype(np.int8),
            "wide": rng.integers(-(1 << 62), 1 << 62, rows),
            "flag": pa.array([n % 3 == 0 if n % 5 else None for n in range(rows)], pa.bool_()),
            "text": pa.array(
                [f"row {n} {'ü🎈' * (n % 7)}" if n % 11 else None for n in range(rows)], pa.string()
            ),
            "few": pa.array([str(n % 3) for n in range(rows)], pa.string()),
            "blob": pa.array([bytes([n % 256]) * (n % 9) for n in range(rows)], pa.binary()),
            "tags": pa.array(
                [[str(k) for k in range(n % 4)] if n % 6 else None for n in range(rows)],
                pa.list_(pa.string()),
            ),
            "pair": pa.array(
                [{"a": n, "b": {"c": str(n)}} if n % 4 else None for n in range(rows)],
                pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}),
            ),
            "map": pa.array(
                [[("k", n), ("l", None)][: n % 3] for n in range(rows)],
                pa.map_(pa.string(), pa.int64()),
            ),
            "money": pa.array([Decimal(n - 50) / 100 for n in range(rows)], pa.decimal128(12, 2)),
            "day": pa.array([day + dt.timedelta(n) for n in range(rows)], pa.date32()),
            "at": pa.array(rng.integers(-(10**18), 10**18, rows), pa.timestamp("ns")),
            "utc": pa.array(rng.integers(0, 10**18, rows), pa.timestamp("ns", "UTC")),
            "a.b": rng.integers(0, 9, rows),
        }
    )


NAMES = _table(1).column_names


@settings(max_examples=examples(60))
@given(
    rows=st.integers(0, 700),
    codec=st.sampled_from(CODECS),
    stripe=st.sampled_from([1, 1 << 12, 64 << 20]),
    batch=st.integers(1, 300),
    block=st.sampled_from([1 << 16, 1 << 18]),
    version=st.sampled_from(["0.11", "0.12"]),
    dictionary=st.sampled_from([0.0, 1.0]),
    columns=st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, unique=True)),
)
def test_units_have_all_rows_once_in_order(
    rows: int,
    codec: str,
    stripe: int,
    batch: int,
    block: int,
    version: str,
    dictionary: float,
    columns: list[str] | None,
) -> None:
    """Whatever was written how, and with whichever columns."""
    data = _file(
        _table(rows),
        compression=codec,
        stripe_size=stripe,
        batch_size=batch,
        compression_block_size=block,
        file_version=version,
        dictionary_key_size_threshold=dictionary,
    )
    opened = Opened("orc", data)
    oracle = _oracle(data)
    assert opened.rows == rows
    assert opened.scan.schema.equals(oracle.schema)
    in_order = None if columns is None else [name for name in NAMES if name in columns]
    assert opened.read(columns).equals(oracle if in_order is None else oracle.select(in_order))


@pytest.mark.parametrize("codec", CODECS)
def test_stripes_of_different_rows_are_counted_exactly(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are bounded by bytes, so no two need have as many rows."""
    rng = np.random.default_rng(0)
    texts = [bytes(rng.integers(0, 256, 1 + n * n // 240_000, np.uint8)) for n in range(12_000)]
    data = _file(pa.table({"b": texts}), compression=codec, stripe_size=64 << 10, batch_size=64)
    file = orc.ORCFile(pa.BufferReader(data))
    stripes = [file.read_stripe(at).num_rows for at in range(file.nstripes)]
    assert len(set(stripes)) >= 2
    monkeypatch.setattr(_packing, "_FEW_BYTES", 0)
    opened = Opened("orc", data)
    assert [unit.samples for unit in opened.scan.units] == stripes
    assert opened.read()["b"].to_pylist() == texts


def test_large_stripes_are_cut_and_small_ones_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a unit is neither too much for a shuffle nor too little for a request."""
    table = _table(3000)
    data = _file(table, compression="zstd")
    monkeypatch.setattr(_packing, "_MOST_BYTES", 64 << 10)
    opened = Opened("orc", data)
    assert len(opened.scan.units) > 4
    assert {unit.number for unit in opened.scan.units} == {0}
    assert opened.read().equals(_oracle(data))
    monkeypatch.undo()

    opened = Opened("orc", _file(table, stripe_size=1, batch_size=100))
    assert orc.ORCFile(pa.BufferReader(_file(table, stripe_size=1, batch_size=100))).nstripes > 5
    assert len(opened.scan.units) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_wanted_columns_streams_are_fetched(codec: str) -> None:
    """Neither other columns nor indexes and bloom filters; and nothing but the ranges is read."""
    rng = np.random.default_rng(1)
    rows = 100_000
    table = pa.table({name: rng.random(rows) for name in "abcdefgh"})
    data = _file(table, compression=codec, stripe_size=1 << 20, bloom_filter_columns=[0, 2])
    opened = Opened("orc", data)
    assert opened.bytes_of(["c"]) < 1.02 * 8 * rows
    before = opened.store.nbytes
    assert opened.read(["c", "a"])["c"].equals(table["c"])
    assert opened.store.nbytes - before == opened.bytes_of(["a", "c"]) < 1.02 * 16 * rows
    # Of all columns everything is fetched but the indexes, footers and statistics.
    assert opened.bytes_of() < len(data)


def test_a_file_is_looked_at_with_one_request_if_its_end_has_all() -> None:
    """More stripes take one more call for all of their footers, not one for each."""
    small = Opened("orc", _file(_table(500)))
    assert small.scan_calls == 1
    rng = np.random.default_rng(1)
    blobs = pa.table({"b": [rng.bytes(1000) for _ in range(20_000)]})
    data = _file(blobs, stripe_size=256 << 10, batch_size=64)
    large = Opened("orc", data)
    assert len(large.scan.units) > 3
    assert large.scan_calls == 2
    assert large.scan_bytes < 70 << 10 < len(data)


@pytest.mark.slow
def test_a_footer_beyond_the_first_read_takes_another() -> None:
    """Of many columns it is larger than what is read at first."""
    table = pa.table({f"a column of some name {n:05d}": [n, None] for n in range(2500)})
    data = _file(table, compression="uncompressed")
    opened = Opened("orc", data)
    assert opened.scan_calls >= 2
    assert opened.read(["a column of some name 02499"]).num_columns == 1
    assert opened.read().equals(_oracle(data))


def test_columns_that_a_file_lacks_leave_its_rows() -> None:
    """Another file may have them."""
    opened = Opened("orc", _file(_table(300)))
    for unit in opened.scan.units:
        assert opened.kind.ranges(opened.file, opened.scan.meta, unit, ["nope"]) == []
        table = opened.kind.decode(opened.file, opened.scan.meta, unit, [], ["nope"])
        assert (table.num_rows, table.num_columns) == (unit.samples, 0)


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED.glob("*.orc")))
def test_files_of_other_writers(name: str) -> None:
    """Those that a package ships, written by other programs, some long ago."""
    data = (SHIPPED / name).read_bytes()
    oracle = _oracle(data)
    opened = Opened("orc", data)
    assert opened.rows == oracle.num_rows
    assert opened.read().equals(oracle)
    for column in oracle.column_names:
        assert opened.read([column]).equals(oracle.select([column]))


@pytest.mark.parametrize("compression", ["NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"])
def test_files_that_pyorc_wrote(compression: str) -> None:
    """With its own choice of encodings, bloom filters and stripes."""
    pyorc = pytest.importorskip("pyorc")
    sink = io.BytesIO()
    schema = (
        "struct<id:bigint,s:string,c:char(5),l:array<map<string,int>>,d:decimal(30,4),t:timestamp>"
    )
    rows = [
        (
            n,
            None if n % 9 == 0 else f"ключ {n % 50}",
            "abc",
            [{"k": n, "m": 1}][: n % 2],
            Decimal(n) / 8,
            dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n),
        )
        for n in range(5000)
    ]
    with pyorc.Writer(
        sink,
        schema,
        compression=getattr(pyorc.CompressionKind, compression),
        stripe_size=16 << 10,
        batch_size=128,
        bloom_filter_columns=["s"],
        dict_key_size_threshold=0.8,
    ) as writer:
        writer.writerows(rows)
    opened = Opened("orc", sink.getvalue())
    assert opened.rows == 5000
    table = opened.read()
    assert table.equals(_oracle(sink.getvalue()))
    assert table["s"].to_pylist() == [row[1] for row in rows]
    assert table["d"].to_pylist() == [row[4] for row in rows]


def test_unions_are_read() -> None:
    """As pyarrow has them."""
    pyorc = pytest.importorskip("pyorc")
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<u:uniontype<int,string>>") as writer:
        writer.writerows([(n if n % 2 else str(n),) for n in range(200)])
    opened = Opened("orc", sink.getvalue())
    assert opened.read()["u"].to_pylist() == [n if n % 2 else str(n) for n in range(200)]


def test_decoded_in_one_form() -> None:
    """Through an index, as a data set reads it."""
    table = _table(2000)
    found = decoded("orc", _file(table, stripe_size=1), ("text", "id"))
    assert found["id"].to_pylist() == list(range(2000))
    assert found["text"].to_pylist() == table["text"].to_pylist()


def test_names_tell_the_format_and_it_pickles() -> None:
    """`.orc`, in any letters."""
    assert kind_of_name("a/b.ORC") == "orc"
    assert pickle.loads(pickle.dumps(open_kind("orc"))).name == "orc"


def test_a_file_that_changed_is_told() -> None:
    """Its version is checked with every read."""
    opened = Opened("orc", _file(_table(300)))
    opened.store.put(opened.file.key, [_file(_table(301))])
    with pytest.raises(SourceChangedError, match="changed after it was indexed"):
        opened.read()


@pytest.mark.parametrize("data", [b"", b"ORC", b"PAR1" * 9, bytes(100), b"\xff" * 100])
def test_other_files_are_refused(data: bytes) -> None:
    """With the file's name, and what is wrong."""
    with pytest.raises(SourceFormatError, match=r"a\.orc: no ORC file that can be read"):
        Opened("orc", data)


@pytest.mark.parametrize(("codec", "name"), [(3, "LZO"), (6, "Brotli"), (9, "number 9")])
def test_codecs_that_are_not_read_are_named(codec: int, name: str) -> None:
    """With those that are."""
    data = bytearray(_file(_table(10), compression="zlib"))
    script = len(data) - 1 - data[-1]
    at = data.index(b"\x10\x01", script) + 1  # field 2 of the last part
    data[at] = codec
    with pytest.raises(SourceFormatError, match=name):
        Opened("orc", bytes(data))


def test_a_broken_index_is_told() -> None:
    """What was saved of a file may be damaged too."""
    opened = Opened("orc", _file(_table(10)))
    for meta in (b"", b"\xff", opened.scan.meta[:-3]):
        with pytest.raises(SourceFormatError, match="its index is broken"):
            opened.kind.ranges(opened.file, meta, opened.scan.units[0], None)
    beyond = opened.scan.units[0]._replace(number=7)
    with pytest.raises(SourceFormatError, match="parts 7 to 8 of 1"):
        opened.kind.ranges(opened.file, opened.scan.meta, beyond, None)
