"""Arrow files, Feather and streams: equal to pyarrow's reading, only the wanted buffers fetched."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, ipc
from tests.core.virtual.kind_reading import Opened, damaged, decoded, outcome
from tests.profiles import examples

from streaming_core._virtual import open_kind
from streaming_core._virtual._kinds import _packing, kind_of_name
from streaming_core._virtual._kinds._arrow_ipc_flat import Writer, root
from streaming_core.errors import SourceFormatError

SHIPPED = Path(pytest.importorskip("pyarrow.tests").__path__[0]) / "data" / "feather"
FORMS = {"file": ipc.new_file, "stream": ipc.new_stream}


def _bytes(table: pa.Table, form: str = "file", rows: int | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    with FORMS[form](sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def _table(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    few = pa.array([None if n % 5 == 0 else f"k{n % 3}" for n in range(rows)], pa.string())
    texts = [f"row {n} {'ü🎈' * (n % 9)}" if n % 11 else None for n in range(rows)]
    lists = [[n, None][: n % 3] if n % 4 else None for n in range(rows)]
    union = pa.UnionArray.from_sparse(
        pa.array([n % 2 for n in range(rows)], pa.int8()),
        [pa.array(range(rows), pa.int64()), pa.array(["x"] * rows, pa.string())],
    )
    dense = pa.UnionArray.from_dense(
        pa.array([0] * rows, pa.int8()),
        pa.array(range(rows), pa.int32()),
        [pa.array(range(rows), pa.int64()), pa.array([], pa.string())],
    )
    pairs = [{"a": n, "b": {"c": f"k{n % 4}"}} if n % 4 != 1 else None for n in range(rows)]
    nested = pa.struct(
        {"a": pa.int64(), "b": pa.struct({"c": pa.dictionary(pa.int8(), pa.string())})}
    )
    return pa.table(
        {
            "id": np.arange(rows),
            "x": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "nothing": pa.nulls(rows),
            "flag": pa.array([n % 3 == 0 if n % 5 else None for n in range(rows)], pa.bool_()),
            "text": pa.array(texts, pa.string()),
            "large": pa.array(texts, pa.large_string()),
            "view": pa.array(texts, pa.string_view()),
            "few": few.dictionary_encode(),
            "few again": few.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            "list": pa.array(lists, pa.list_(pa.int64())),
            "list view": pa.array(lists, pa.list_view(pa.int64())),
            "fixed": pa.array(rng.random((rows, 3)).tolist(), pa.list_(pa.float32(), 3)),
            "pair": pa.array(pairs, nested),
            "map": pa.array(
                [[("k", n)] for n in range(rows)],
                pa.map_(pa.string(), pa.int64()),
            ),
            "union": union,
            "dense": dense,
            "uuid": pa.array([bytes([n % 256]) * 16 for n in range(rows)], pa.uuid()),
            "money": pa.array(range(rows), pa.int64()).cast(pa.decimal128(22, 2)),
            "at": pa.array(rng.integers(0, 10**18, rows), pa.timestamp("ns", "UTC")),
            "a.b": rng.integers(0, 9, rows),
        }
    )


NAMES = _table(1).column_names


@settings(max_examples=examples(80))
@given(
    rows=st.integers(0, 500),
    batch=st.integers(1, 200),
    form=st.sampled_from(sorted(FORMS)),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    columns=st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, unique=True)),
)
def test_units_have_all_rows_once_in_order(
    rows: int, batch: int, form: str, compression: str | None, columns: list[str] | None
) -> None:
    """Whatever was written how, and with whichever columns."""
    table = _table(rows)
    opened = Opened("arrow", _bytes(table, form, batch, compression=compression))
    assert opened.rows == rows
    assert opened.scan.schema.equals(table.schema)
    in_order = [name for name in NAMES if columns is None or name in columns]
    assert opened.read(columns).equals(table.select(in_order))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_large_batches_are_cut_and_small_ones_go_together(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a unit is neither too much for a shuffle nor too little for a request."""
    table = _table(3000)
    data = _bytes(table, form)
    monkeypatch.setattr(_packing, "_MOST_BYTES", 100 << 10)
    opened = Opened("arrow", data)
    assert len(opened.scan.units) > 4
    assert {unit.number for unit in opened.scan.units} == {0}
    assert opened.read().equals(table)
    monkeypatch.undo()
    monkeypatch.setattr(_packing, "_FEW_BYTES", 1 << 20)
    opened = Opened("arrow", _bytes(table, form, rows=10))
    assert 4 < len(opened.scan.units) < 100
    assert opened.read(["few", "pair"]).equals(table.select(["few", "pair"]))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_only_the_wanted_columns_buffers_are_fetched(form: str) -> None:
    """Of the other columns no byte travels."""
    rng = np.random.default_rng(0)
    rows = 50_000
    table = pa.table({name: rng.random(rows) for name in "abcdefgh"})
    data = _bytes(table, form, rows=10_000)
    opened = Opened("arrow", data)
    assert opened.bytes_of(["c"]) <= 8 * rows + 5 * 64
    before = opened.store.nbytes
    assert opened.read(["c", "f"]).equals(table.select(["c", "f"]))
    assert opened.store.nbytes - before <= 16 * rows + 10 * 64


def test_a_file_is_looked_at_with_few_requests() -> None:
    """One for the end, one call for the messages of all batches, whatever their bodies have."""
    table = pa.table({"x": np.random.default_rng(0).random(2_000_000)})
    data = _bytes(table, rows=100_000)
    opened = Opened("arrow", data)
    assert opened.scan_calls == 2
    assert opened.scan_bytes < 80 << 10 < len(data)
    assert Opened("arrow", _bytes(table.slice(0, 100))).scan_calls == 1


def test_a_stream_of_large_batches_is_not_read_whole() -> None:
    """Its bodies are leapt over; those of small ones are read with what comes next."""
    table = pa.table({"x": np.random.default_rng(0).random(6_000_000)})
    opened = Opened("arrow", _bytes(table, "stream", rows=500_000))
    assert opened.scan_calls <= 15
    assert opened.scan_bytes < 2 << 20
    opened = Opened("arrow", _bytes(table, "stream", rows=5000))
    assert opened.scan_calls < 30
    assert opened.read().equals(table)


def test_dictionaries_that_grow_or_are_replaced() -> None:
    """In a stream each batch has those that came before it."""
    texts: list[list[str | None]] = [
        ["a", "b"],
        ["a", "b", "c"],
        ["x", "y"],
        ["x", None, "z"],
        ["q"],
    ]
    kind = pa.dictionary(pa.int32(), pa.string())
    for deltas in (False, True):
        batches = []
        for words in texts:
            values = sorted({word for word in words if word})
            codes = pa.array([None if w is None else values.index(w) for w in words], pa.int32())
            other = pa.array(range(len(words)), pa.int64())
            coded = pa.DictionaryArray.from_arrays(codes, values)
            batches.append(pa.record_batch([coded.cast(kind), other], ["d", "n"]))
        sink = io.BytesIO()
        options = ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
        with ipc.new_stream(sink, batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        opened = Opened("arrow", sink.getvalue())
        assert opened.read()["d"].to_pylist() == [word for words in texts for word in words]
        assert opened.read(["n"]).num_rows == opened.rows


def test_dictionaries_of_other_columns_stay_where_they_are() -> None:
    """However large they are."""
    large = pa.array([f"a long word {n}" for n in range(50_000)]).dictionary_encode()
    table = pa.table({"d": large, "n": range(50_000)})
    opened = Opened("arrow", _bytes(table, rows=10_000))
    assert opened.bytes_of(["n"]) <= 8 * 50_000 + 5 * 64
    assert opened.read(["n"]).equals(table.select(["n"]))
    assert opened.read(["d"])["d"].to_pylist() == large.to_pylist()


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_files(compression: str) -> None:
    """As `pyarrow.feather` and pandas write them."""
    table = _table(900)
    sink = io.BytesIO()
    feather.write_feather(table, sink, compression=compression, chunksize=100)
    assert Opened("arrow", sink.getvalue()).read().equals(table)


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED.glob("*.feather")))
def test_files_of_the_first_versions(name: str) -> None:
    """Which name their codec elsewhere."""
    oracle = feather.read_table(str(SHIPPED / name))
    assert Opened("arrow", (SHIPPED / name).read_bytes()).read().equals(oracle)


@pytest.mark.parametrize(
    "options",
    [
        {"metadata_version": ipc.MetadataVersion.V4},
        {"use_legacy_format": True, "metadata_version": ipc.MetadataVersion.V4},
    ],
)
@pytest.mark.parametrize("form", sorted(FORMS))
def test_older_versions_of_messages(form: str, options: dict[str, Any]) -> None:
    """With no mark before lengths, and unions that have validity."""
    names = [name for name in NAMES if name not in {"union", "dense"}]
    table = _table(300).select(names)
    opened = Opened("arrow", _bytes(table, form, 70, **options))
    assert opened.read().equals(table)
    assert opened.read(["few", "text"]).equals(table.select(["text", "few"]))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("form", ["file", "stream"])
def test_files_that_polars_wrote(compression: str, form: str) -> None:
    """Its texts are views, of any number of buffers."""
    polars = pytest.importorskip("polars")
    texts = [f"text {n} {'long ' * (n % 9)}" if n % 7 else None for n in range(4000)]
    frame = polars.DataFrame(
        {
            "id": range(4000),
            "text": texts,
            "tags": [[str(n)] * (n % 3) for n in range(4000)],
            "kind": polars.Series([str(n % 3) for n in range(4000)], dtype=polars.Categorical),
            "pair": [{"a": n, "b": str(n)} for n in range(4000)],
        }
    )
    sink = io.BytesIO()
    write = frame.write_ipc if form == "file" else frame.write_ipc_stream
    write(sink, compression=compression)
    data = sink.getvalue()
    reader = ipc.open_file(data) if form == "file" else ipc.open_stream(data)
    oracle = reader.read_all()
    opened = Opened("arrow", data)
    assert opened.read().equals(oracle)
    assert opened.read(["text"])["text"].to_pylist() == texts
    assert opened.read(["kind", "pair"]).equals(oracle.select(["kind", "pair"]))


def test_decoded_in_one_form() -> None:
    """Through an index, as a data set reads it."""
    names = ["id", "text", "view", "few", "list", "fixed", "pair", "uuid"]
    table = _table(1000).select(names)
    found = decoded("arrow", _bytes(table, "stream", 30))
    assert found.to_pylist()[:5] != []
    for name in ("id", "text", "view", "few", "list", "fixed", "pair"):
        assert found[name].to_pylist() == table[name].to_pylist(), name


def test_columns_that_a_file_lacks_leave_its_rows() -> None:
    """Another file may have them."""
    opened = Opened("arrow", _bytes(_table(300)))
    for unit in opened.scan.units:
        assert opened.kind.ranges(opened.file, opened.scan.meta, unit, ["nope"]) == []
        table = opened.kind.decode(opened.file, opened.scan.meta, unit, [], ["nope"])
        assert (table.num_rows, table.num_columns) == (unit.samples, 0)


def test_names_tell_the_format_and_it_pickles() -> None:
    """Data sets that were cached by others end with `.arrow` though they are streams."""
    for name in ("a.arrow", "b.arrows", "c.FEATHER", "d.ipc"):
        assert kind_of_name(name) == "arrow"
    assert pickle.loads(pickle.dumps(open_kind("arrow"))).name == "arrow"


# --- broken files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "ends within the length"),
        (b"ARROW1\0\0" + bytes(200), "Arrow file that ends with"),
        (b"FEA1" + bytes(100), "Feather file of version 1"),
        (b"\xff\xff\xff\xff\0\0\0\0", "does not begin with a schema"),
        (b"PAR1" * 100, "a message of"),
        (b"ARROW1\0\0" + b"\xff\xff\xff\x7fARROW1", "a footer of"),
    ],
)
def test_other_files_are_refused(data: bytes, match: str) -> None:
    """With the file's name, and what is wrong."""
    with pytest.raises(SourceFormatError, match=match):
        Opened("arrow", data)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_files_cut_anywhere_are_refused(form: str) -> None:
    """But where a stream ends between two batches, as it need not mark its end."""
    data = _bytes(_table(100), form, 30)
    whole = Opened("arrow", data).rows
    for size in range(0, len(data) - 9, max(1, len(data) // 200)):
        try:
            assert Opened("arrow", data[:size]).rows < whole
            assert form == "stream"
        except SourceFormatError:
            pass


def test_bytes_behind_a_streams_end_are_refused() -> None:
    """They may be another stream, whose rows would be lost."""
    data = _bytes(_table(10), "stream")
    with pytest.raises(SourceFormatError, match="bytes follow"):
        Opened("arrow", data + data)


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_damaged_files_are_refused_or_read(form: str, compression: str | None) -> None:
    """Nothing else: all rows counted, or the error that is meant for it."""
    data = _bytes(_table(60), form, 25, compression=compression)
    rng = np.random.default_rng(len(data))
    found = {outcome("arrow", damaged(data, rng)) for _ in range(examples(300))}
    assert found == {"refused", "read"}


def test_buffers_that_claim_to_grow_beyond_belief_are_refused() -> None:
    """Before anything is asked of memory."""
    table = pa.table({"x": np.zeros(100_000)})
    data = bytearray(_bytes(table, compression="zstd"))
    claim = (800_000).to_bytes(8, "little")
    at = data.index(claim + b"\x28\xb5\x2f\xfd")
    data[at : at + 8] = (1 << 40).to_bytes(8, "little")
    opened = Opened("arrow", bytes(data))
    with pytest.raises(SourceFormatError, match="claim to become"):
        opened.read()


def test_a_broken_index_is_told() -> None:
    """What was saved of a file may be damaged too."""
    opened = Opened("arrow", _bytes(_table(10)))
    for meta in (b"", b"\xff", opened.scan.meta[:-3]):
        with pytest.raises(SourceFormatError, match="its index is broken"):
            opened.kind.ranges(opened.file, meta, opened.scan.units[0], None)


@given(
    numbers=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=9),
    content=st.binary(max_size=80),
)
def test_tables_are_read_as_they_were_laid(numbers: list[int], content: bytes) -> None:
    """In any mixture of long and short fields, and of such that are left out."""
    out = Writer()
    forms = ["q" if n % 3 else "b" if n % 2 else "" for n in range(len(numbers))]
    at = out.table([*forms, "I"])
    for n, (form, number) in enumerate(zip(forms, numbers, strict=True)):
        if form:
            out.put(at[n + 1], form, number if form == "q" else number % 128)
    whole = content[: len(content) // 8 * 8]
    out.refer(at[-1], out.vector(whole, 8))
    table = root(bytes(out.data))
    for n, (form, number) in enumerate(zip(forms, numbers, strict=True)):
        wanted = number if form == "q" else number % 128 if form else 77
        assert table.number(n, "<q" if form == "q" else "<b", 77) == wanted
    assert table.structs(len(forms), 8) == whole
    assert table.table(len(forms) + 5) is None


@given(data=st.binary(max_size=60))
def test_any_bytes_as_a_table(data: bytes) -> None:
    """A `ValueError`, or something that lies within them."""
    try:
        table = root(data)
        table.number(0, "<q")
        table.text(1)
        table.tables(2)
        table.structs(3, 16)
    except ValueError:
        pass
