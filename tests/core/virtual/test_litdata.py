"""Chunks that litData wrote, read as they lie; and such that are broken."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._codec import parse_compression
from streaming_core._store import LocalStore, MemoryStore
from streaming_core._virtual import SourceFile, SourceReader, build_index
from streaming_core._virtual._kinds import kind_of_name, open_kind
from streaming_core._virtual._kinds._litdata import LitData
from streaming_core.errors import SchemaError, SourceFormatError, StoreError, StreamingError

if TYPE_CHECKING:
    from streaming_core._store import Store

_DATA = Path(__file__).parents[2] / "data" / "litdata"


def _values(i: int) -> dict[str, Any]:
    rows = [[float(2 * at), float(2 * at + 1)] for at in range(2 * i)]
    return {
        "i": -i,
        "f": i / 4,
        "s": f"größe {i}",
        "b": bytes([i, 255, 0]) * (i % 3),
        "t": i % 2 == 0,
        "grid": [[3 * row, 3 * row + 1, 3 * row + 2] for row in range(i)],
        "flat": [float(n) for n in range(i % 4)],
        "cube": [rows[:i], rows[i:]],
        "row": [*range(i)],
    }


def _nested(i: int) -> dict[str, Any]:
    return {"0": i, "1": f"s{i}", "2.0": 1.5 * i, "2.1.z": b"q" * i, "3": [[0]]}


def _table(i: int) -> dict[str, Any]:
    return {"i": i if i % 3 else None, "s": f"größe {i}", "x": {"a": i / 2, "l": [i] * (i % 3)}}


_CASES: dict[str, tuple[int, Any]] = {
    "values": (30, _values),
    "nested": (6, _nested),
    "single": (6, lambda i: {"value": f"text {i}"}),
    "tokens": (6, lambda i: {"value": [*range(i, i + 7)]}),
    "batches": (
        700,
        lambda i: {"i": i, "a": [[float(n) for n in range(i % 5)]], "s": "x" * (i % 7)},
    ),
    "table": (30, _table),
    "table_zstd": (30, _table),
}


def _files(store: Store) -> list[SourceFile]:
    return [
        SourceFile(info.key, info.size, info.etag)
        for info in store.list()
        if info.key.endswith(".bin")
    ]


def _read(kind: LitData, store: Store, columns: list[str] | None = None) -> list[Any]:
    rows: list[Any] = []
    for file in _files(store):
        reader = SourceReader(store, file)
        scan = kind.scan(reader)
        for unit in scan.units:
            wanted = kind.ranges(file, scan.meta, unit, columns)
            table = kind.decode(file, scan.meta, unit, reader.ranges(wanted), columns)
            assert table.num_rows == unit.samples
            for field in table.schema:
                assert field.equals(scan.schema.field(field.name))
            rows += (table if columns is None else table.select(columns)).to_pylist()
    return rows


def _copy(name: str, chunk: str = "chunk-0-0.bin") -> tuple[MemoryStore, bytes]:
    """Return a store with an index and one chunk, and the chunk."""
    store = MemoryStore()
    store.put("index.json", [(_DATA / name / "index.json").read_bytes()])
    data = (_DATA / name / chunk).read_bytes()
    store.put("chunk-0-0.bin", [data])
    return store, data


@pytest.mark.parametrize("name", _CASES)
def test_chunks_of_litdata_read_as_what_was_put_in(name: str) -> None:
    """Every layout, and every way to store a value that is read; whole and by column."""
    count, make = _CASES[name]
    store = LocalStore(_DATA / name)
    rows = _read(LitData(), store)
    expected = [make(i) for i in range(count)]
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected
    for column in expected[0]:
        assert _read(LitData(), store, [column]) == [{column: row[column]} for row in expected]


def test_images_are_the_bytes_of_their_files() -> None:
    """Which other programs decode."""
    image = pytest.importorskip("PIL.Image")
    rows = _read(LitData(), LocalStore(_DATA / "values"), ["image"])
    for i, row in enumerate(rows):
        opened = image.open(io.BytesIO(row["image"]))
        assert opened.size == (5, 4)
        assert abs(opened.convert("RGB").getpixel((0, 0))[0] - i * 5) < 4


@pytest.mark.parametrize("name", _CASES)
def test_units_of_any_size_have_all_items_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut after every item, every batch, or not at all."""
    count, make = _CASES[name]
    for limit in (1, 500, 1 << 30):
        monkeypatch.setattr("streaming_core._virtual._kinds._litdata_chunk._CUT_BYTES", limit)
        rows = _read(LitData(), LocalStore(_DATA / name))
        expected = [make(i) for i in range(count)]
        assert [{key: row[key] for key in expected[0]} for row in rows] == expected


def test_a_chunk_that_is_compressed_as_a_whole_reads() -> None:
    """As earlier versions wrote them."""
    store, data = _copy("values")
    codec = parse_compression("zstd")
    assert codec is not None
    store.put("chunk-0-0.bin", [codec.compress([data])])
    assert [row["i"] for row in _read(LitData(), store)] == [-i for i in range(20)]
    for odd in (codec.compress([codec.compress([data])]), codec.compress([data])[:-9]):
        store.put("chunk-0-0.bin", [odd])
        with pytest.raises(SourceFormatError, match=r"chunk-0-0\.bin"):
            _read(LitData(), store)


def test_what_is_stored_in_ways_that_are_not_known_is_refused_by_name() -> None:
    """Or given as it is stored; what could run code is never run."""
    store = LocalStore(_DATA / "unknown")
    with pytest.raises(SourceFormatError, match="'c' are stored by 'numpy' as type 11"):
        _read(LitData(), store)
    rows = _read(LitData("bytes"), store)
    assert [row["i"] for row in rows] == [0, 1, 2, 3]
    assert all(row["p"] == b"\x80\x04N." for row in rows)
    copy, _ = _copy("unknown")
    index = json.loads((_DATA / "unknown" / "index.json").read_bytes())
    index["config"]["data_format"][1] = "int"
    copy.put("index.json", [json.dumps(index).encode()])
    with pytest.raises(SourceFormatError, match=r"'p' are stored by 'pickle', which can run code"):
        _read(LitData(), copy)
    with pytest.raises(SchemaError, match="unknown must be one of"):
        open_kind("litdata", {"unknown": "skip"})


def test_the_format_has_to_be_named() -> None:
    """Other programs call their files so too."""
    assert kind_of_name("chunk-0-0.bin") is None
    assert kind_of_name("pytorch_model.bin") is None


def test_the_index_of_many_chunks_is_read_once() -> None:
    """It says the same of all of them."""

    class Counting(MemoryStore):
        gets = 0

        def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
            Counting.gets += 1
            return super().get(key, max_bytes=max_bytes)

    store = Counting()
    store.put("a/index.json", [(_DATA / "values" / "index.json").read_bytes()])
    for n in range(300):
        store.put(f"a/chunk-0-{n}.bin", [(_DATA / "values" / "chunk-0-1.bin").read_bytes()])
    index = build_index(store, _files(store), "litdata")
    assert index.num_samples == 3000
    assert Counting.gets <= 64  # those that ask at the same time
    assert len(index.schemas) == 1


def test_a_chunk_without_its_index_is_an_error() -> None:
    """The message says what is missing; one of tables needs none."""
    store, _ = _copy("values")
    store.delete("index.json")
    with pytest.raises(SourceFormatError, match=r"chunk-0-0\.bin: 'index\.json', which says"):
        _read(LitData(), store)
    store, _ = _copy("table")
    store.delete("index.json")
    assert len(_read(LitData(), store)) == 20


@pytest.mark.parametrize(
    "change",
    [
        {"data_format": ["int"]},
        {"data_format": "int"},
        {"data_format": [1] * 10},
        {"data_format": None},
        {"data_spec": "[1]"},
        {"data_spec": "{"},
        {"data_spec": '[1, {"type": "builtins.dict", "context": "[1]", "children_spec": []}]'},
        {"encryption": {"algorithm": "fernet"}},
    ],
)
def test_indexes_that_do_not_fit_are_errors(change: dict[str, Any]) -> None:
    """The message names the index."""
    store, _ = _copy("values")
    index = json.loads(store.get("index.json"))
    index["config"].update(change)
    store.put("index.json", [json.dumps(index).encode()])
    with pytest.raises(SourceFormatError, match=r"index\.json: "):
        _read(LitData(), store)
    for odd in (b"", b"[]", b"{" * 100_000, b"[" * 100_000, b"\xff"):
        store.put("index.json", [odd])
        with pytest.raises(SourceFormatError, match=r"index\.json: not an index of litData"):
            _read(LitData(), store)


@pytest.mark.parametrize("name", ["values", "batches", "table", "tokens"])
def test_every_cut_is_an_error(name: str) -> None:
    """A chunk that is cut short never passes for one with fewer items."""
    store, data = _copy(name)
    for cut in range(1, len(data), 1 + len(data) // 300):
        store.put("chunk-0-0.bin", [data[:cut]])
        with pytest.raises(SourceFormatError, match=r"chunk-0-0\.bin"):
            _read(LitData(), store)
    store.put("chunk-0-0.bin", [data, b"x"])
    with pytest.raises(SourceFormatError, match=r"chunk-0-0\.bin"):
        _read(LitData(), store)


@given(
    name=st.sampled_from(["values", "batches", "table", "table_zstd", "nested", "tokens"]),
    flips=st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 255)), min_size=1, max_size=4),
    at_the_head=st.booleans(),
)
def test_changed_bytes_give_items_or_typed_errors(
    name: str, flips: list[tuple[int, int]], at_the_head: bool
) -> None:
    """Never another exception, a crash, or other numbers of rows than were counted."""
    store, data = _copy(name)
    changed = bytearray(data)
    for at, value in flips:
        changed[at % (120 if at_the_head else len(data))] = value
    store.put("chunk-0-0.bin", [changed])
    with suppress(SourceFormatError):
        _read(LitData(), store)


@given(name=st.sampled_from(["values", "batches", "table"]), data=st.data())
def test_changed_indexes_give_items_or_typed_errors(name: str, data: st.DataObject) -> None:
    """What the saved index says of a chunk is read back from a file too."""
    store, _ = _copy(name)
    (file,) = _files(store)
    reader, kind = SourceReader(store, file), LitData()
    scan = kind.scan(reader)
    meta = bytearray(scan.meta)
    for _ in range(data.draw(st.integers(1, 3))):
        meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    with suppress(StreamingError):
        for unit in scan.units:
            wanted = kind.ranges(file, bytes(meta), unit, None)
            kind.decode(file, bytes(meta), unit, reader.ranges(wanted), None)


def test_an_index_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever calls itself so."""
    monkeypatch.setattr("streaming_core._virtual._kinds._litdata._MOST_INDEX", 10)
    with pytest.raises(StoreError, match="more than the 10 allowed"):
        _read(LitData(), LocalStore(_DATA / "values"))


def test_decoded_types_are_narrow_and_lists_keep_their_depth() -> None:
    """So that arrays become arrays of the same type again."""
    store, _ = _copy("values")
    (file,) = _files(store)
    schema = LitData().scan(SourceReader(store, file)).schema
    assert schema.field("grid").type == pa.large_list(pa.large_list(pa.int16()))
    assert schema.field("cube").type == pa.large_list(pa.large_list(pa.large_list(pa.float32())))
    assert schema.field("t").type == pa.bool_()
