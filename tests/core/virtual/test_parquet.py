"""Parquet files taken apart into units and put together again, as others read them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core._store import LocalStore, MemoryStore
from streaming_core._virtual import SourceFile, SourceReader
from streaming_core._virtual._kinds._parquet import Parquet
from streaming_core.errors import SourceChangedError, SourceFormatError

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_core._virtual import Scan

_DATA = pytest.importorskip("pyarrow.tests").__path__[0]


def _file(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _reader(data: bytes) -> SourceReader:
    store = MemoryStore()
    info = store.put("a.parquet", [data])
    return SourceReader(store, SourceFile("a.parquet", info.size, info.etag))


def _read(kind: Parquet, reader: SourceReader, scan: Scan, columns: list[str] | None) -> pa.Table:
    tables = []
    for unit in scan.units:
        wanted = kind.ranges(reader.file, scan.meta, unit, columns)
        table = kind.decode(reader.file, scan.meta, unit, reader.ranges(wanted), columns)
        assert table.num_rows == unit.samples
        tables.append(table if columns is None else table.select(columns))
    return pa.concat_tables(tables)


def _table(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "x": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "text": [f"row {n} {'ü' * (n % 7)}" if n % 11 else None for n in range(rows)],
            "tags": [[str(k) for k in range(n % 4)] for n in range(rows)],
            "pair": [{"a": n, "b": {"c": str(n)}} for n in range(rows)],
            "vector": pa.array(rng.random((rows, 3)).tolist(), pa.list_(pa.float32(), 3)),
            "kind": pa.array([str(n % 3) for n in range(rows)]).dictionary_encode(),
        }
    )


@settings(max_examples=examples(30))
@given(
    rows=st.integers(0, 400),
    group=st.integers(1, 200),
    compression=st.sampled_from(["none", "snappy", "zstd", "gzip", "brotli", "lz4"]),
    version=st.sampled_from(["1.0", "2.0"]),
    columns=st.one_of(
        st.none(),
        st.lists(st.sampled_from(_table(1).column_names), min_size=1, unique=True),
    ),
)
def test_units_have_all_rows_once_in_order(
    rows: int, group: int, compression: str, version: str, columns: list[str] | None
) -> None:
    """Whatever was written how, and with whichever columns."""
    table = _table(rows)
    data = _file(table, row_group_size=group, compression=compression, data_page_version=version)
    kind, reader = Parquet(), _reader(data)
    scan = kind.scan(reader)
    assert sum(unit.samples for unit in scan.units) == rows
    if rows:
        found = _read(kind, reader, scan, columns)
        wanted = pq.read_table(io.BytesIO(data), columns=columns)
        assert found.equals(wanted.select(columns or wanted.column_names))


def test_large_groups_are_cut_and_small_ones_go_together() -> None:
    """So that a unit is neither too much for a shuffle nor too little for a request."""
    rows = 60_000
    table = pa.table({"id": np.arange(rows), "blob": [bytes(3000)] * rows})
    options = {"use_dictionary": False, "compression": "zstd"}
    kind, reader = Parquet(), _reader(_file(table, row_group_size=rows, **options))
    scan = kind.scan(reader)
    assert len(scan.units) >= 3
    assert max(unit.nbytes for unit in scan.units) <= 64 << 20
    assert _read(kind, reader, scan, ["id"])["id"].to_pylist() == list(range(rows))

    small = table.slice(0, 5000).select(["id"])
    reader = _reader(_file(small, row_group_size=50))
    scan = kind.scan(reader)
    assert len(scan.units) == 1
    assert _read(kind, reader, scan, None)["id"].to_pylist() == list(range(5000))


def test_only_the_wanted_columns_bytes_are_asked_for() -> None:
    """Those of whole chunks, side by side as one range."""
    table = pa.table({name: np.random.default_rng(0).random(5000) for name in "abcdefgh"})
    data = _file(table, row_group_size=5000, compression="none", use_dictionary=False)
    kind, reader = Parquet(), _reader(data)
    scan = kind.scan(reader)
    (unit,) = scan.units
    two = kind.ranges(reader.file, scan.meta, unit, ["c", "d"])
    assert len(two) == 1
    assert sum(stop - start for start, stop in two) < 2.1 * 8 * 5000
    assert len(kind.ranges(reader.file, scan.meta, unit, ["a", "h"])) == 2
    assert len(kind.ranges(reader.file, scan.meta, unit, None)) == 1


def test_a_long_footer_takes_a_second_request() -> None:
    """And no more."""
    table = pa.table({f"column-{n:04d}": [n] for n in range(3000)})
    kind, reader = Parquet(), _reader(_file(table))
    scan = kind.scan(reader)
    assert len(scan.meta) > 64 << 10
    assert _read(kind, reader, scan, None).equals(table)


@pytest.mark.parametrize(
    "name",
    ["v0.7.1.parquet", "v0.7.1.column-metadata-handling.parquet", "v0.7.1.all-named-index.parquet"],
)
def test_files_of_other_writers(name: str) -> None:
    """Those that a public package ships."""
    from pathlib import Path

    folder = Path(_DATA, "data", "parquet")
    store = LocalStore(folder)
    info = store.head(name)
    reader = SourceReader(store, SourceFile(name, info.size, info.etag))
    kind = Parquet()
    found = _read(kind, reader, kind.scan(reader), None)
    assert found.equals(pq.read_table(folder / name))


@pytest.mark.parametrize("keep", [0, 3, 11, 12, 100, -1, -9])
def test_what_is_cut_off_is_said(keep: int) -> None:
    """With the file's name."""
    data = _file(_table(50))
    with pytest.raises(SourceFormatError, match=r"a\.parquet"):
        Parquet().scan(_reader(data[:keep]))


@settings(max_examples=examples(60))
@given(st.data())
def test_flipped_bytes_are_an_error_or_show(draw: st.DataObject) -> None:
    """Never a crash, never another number of rows than was counted."""
    data = bytearray(_file(_table(200), row_group_size=60))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    kind, reader = Parquet(), _reader(bytes(data))
    try:
        scan = kind.scan(reader)
        _read(kind, reader, scan, None)
    except (SourceFormatError, SourceChangedError):
        pass


@pytest.mark.parametrize("text", [b"name_of_it", b"parquet-cpp-arrow"])
@pytest.mark.parametrize("columns", [None, ["other"]])
def test_names_that_are_no_text_are_an_error_of_the_file(
    text: bytes, columns: list[str] | None
) -> None:
    """Wherever in the footer they stand: of the column, of its chunk, of the writer."""
    good = _file(pa.table({"name_of_it": [1], "other": [2]}), store_schema=False)
    kind, errors = Parquet(), 0
    places = [at for at in range(len(good)) if good.startswith(text, at)]
    for at in places:
        reader = _reader(good[:at] + b"\xff" + good[at + 1 :])
        try:
            scan = kind.scan(reader)
            assert _read(kind, reader, scan, columns).num_rows == 1
        except SourceFormatError:
            errors += 1
    assert errors


def test_a_file_that_is_replaced_is_told(tmp_path: Path) -> None:
    """Also where it has as many bytes as before."""
    store = LocalStore(tmp_path)
    info = store.put("a.parquet", [_file(_table(50))])
    reader = SourceReader(store, SourceFile("a.parquet", info.size, info.etag))
    kind = Parquet()
    scan = kind.scan(reader)
    data = bytearray(store.get("a.parquet"))
    data[10] ^= 1
    store.delete("a.parquet")
    store.put("a.parquet", [bytes(data)])
    wanted = kind.ranges(reader.file, scan.meta, scan.units[0], None)
    with pytest.raises(SourceChangedError, match="changed after it was indexed"):
        reader.ranges(wanted)
    store.delete("a.parquet")
    with pytest.raises(SourceChangedError, match="gone"):
        reader.ranges(wanted)
