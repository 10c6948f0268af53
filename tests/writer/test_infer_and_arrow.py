"""Columns found from the data, and Arrow tables as batches."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.golden import same_value

from streaming_core import (
    CSVWriter,
    Encoding,
    JSONWriter,
    MDSWriter,
    load_index,
    mds_encodings,
)
from streaming_core.errors import MissingColumnError, SampleError, SchemaError
from streaming_writer._infer import infer_columns, infer_encoding

if TYPE_CHECKING:
    from pathlib import Path

pillow = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (1, "int"),
        (True, "int"),
        (2**63, "str_int"),
        (0.5, "float64"),
        ("a", "str"),
        (b"a", "bytes"),
        (bytearray(b"a"), "bytes"),
        (Decimal("1.5"), "str_decimal"),
        (np.int16(1), "int16"),
        (np.float32(1), "float32"),
        (np.bool_(1), "uint8"),
        (np.str_("a"), "str"),
        (np.zeros((2, 3), np.uint16), "ndarray:uint16"),
        (np.zeros(2, ">i4"), "ndarray:int32"),
        ({"a": [1, None]}, "json"),
        ([1, 2], "json"),
        (None, "json"),
        (pillow.new("RGB", (2, 2)), "pil"),
        ([pillow.new("L", (2, 2))], "list[pil]"),
    ],
)
def test_one_value_says_its_encoding(value: Any, encoding: str) -> None:
    """The encoding found gives the value back."""
    assert infer_encoding(value) == encoding


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        np.zeros(2, bool),
        np.zeros(2, complex),
        np.longdouble(1),
        np.complex64(1),
        np.datetime64("2026-01-01", "ns"),
        np.timedelta64(1, "s"),
    ],
)
def test_values_without_a_safe_encoding_are_refused(value: Any) -> None:
    """Pickle is never chosen for the user; arrays that no reader knows are named."""
    with pytest.raises(SchemaError, match=r"encoding"):
        infer_encoding(value)


def test_first_samples_widen_the_columns() -> None:
    """Ints and floats together are floats, arrays of several types are arrays of any."""
    samples = [
        {"a": 1, "b": 1, "c": np.zeros(1, "u1"), "d": pillow.new("L", (1, 1))},
        {"a": 0.5, "b": 2**70, "c": np.zeros(1, "f4"), "d": pillow.new("L", (1, 1))},
    ]
    assert infer_columns(samples) == {"a": "float64", "b": "str_int", "c": "ndarray", "d": "pil"}


@pytest.mark.parametrize(
    ("samples", "error", "told"),
    [
        ([{"a": 1}, {"a": "x"}], SampleError, r"sample 1, column 'a': came str 'x'.*have int"),
        ([{"a": 1}, {"b": 1}], SampleError, r"sample 1 has a column 'b'"),
        ([{"a": 1, "b": 1}, {"a": 1}], MissingColumnError, r"sample 1: column 'b' is missing"),
        ([{"a": object()}], SchemaError, r"sample 0, column 'a'.*pkl"),
    ],
)
def test_samples_that_disagree_are_named(
    tmp_path: Path, samples: list[Any], error: type[Exception], told: str
) -> None:
    """The error says the sample, the column, what came and what was there before.

    It comes from the sample's own `write`, which leaves no trace, and the writer goes on.
    """
    with MDSWriter(out=tmp_path / "out") as writer:
        for sample in samples[:-1]:
            writer.write(sample)
        with pytest.raises(error, match=told):
            writer.write(samples[-1])
        for sample in samples[:-1] * 70:
            writer.write(sample)
    assert load_index(tmp_path / "out").num_samples == 71 * (len(samples) - 1)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_inferred_columns_write_what_given_ones_do(tmp_path: Path, files: Any, count: int) -> None:
    """However many samples there are, inference changes no byte."""
    samples = [{"i": i, "t": f"{i}", "v": np.arange(i % 4)} for i in range(count)]
    columns = {"i": "int", "t": "str", "v": "ndarray:int64"}
    for name, given in (("inferred", None), ("given", columns)):
        with MDSWriter(out=tmp_path / name, columns=given, size_limit=2000) as writer:
            for sample in samples:
                writer.write(sample)
    assert files(tmp_path / "inferred") == files(tmp_path / "given")


class _Lazy:
    """What becomes an array only when asked, as a tensor does."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._source


def test_samples_kept_for_inference_are_copies(tmp_path: Path, read_all: Any) -> None:
    """A buffer that the caller reuses while the columns are still open does no harm."""
    value, nested, raw = np.zeros(2, np.int64), {"k": [0]}, bytearray(1)
    with MDSWriter(out=tmp_path / "out") as writer:
        for i in range(3):
            value[:], nested["k"][0], raw[0] = i, i, i
            lazy = _Lazy(value)
            writer.write({"v": value, "j": nested, "b": memoryview(raw), "t": lazy})
            value[:] = -1
    found = read_all(tmp_path / "out")
    assert [sample["b"] for sample in found] == [b"\0", b"\1", b"\2"]
    assert [sample["t"][0] for sample in found] == [0, 1, 2]
    assert [(s["v"][0], s["j"]["k"][0]) for s in read_all(tmp_path / "out")] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_a_first_batch_settles_the_columns(tmp_path: Path) -> None:
    """Array types and the first elements of lists say what the columns are."""
    with MDSWriter(out=tmp_path / "out") as writer:
        writer.write_batch({"x": np.zeros((2, 3), np.float32), "n": np.arange(2), "t": ["a", "b"]})
        writer.write({"x": np.zeros(3, np.float32), "n": 3, "t": "c"})
    schema = load_index(tmp_path / "out").schemas[0]
    assert dict(zip(schema.column_names, schema.column_encodings, strict=True)) == {
        "x": "ndarray:float32",
        "n": "int64",
        "t": "str",
    }


def test_text_writers_infer_too(tmp_path: Path, read_all: Any) -> None:
    """What a line can hold is found; what it cannot is refused by name."""
    samples = [{"a": 1, "b": "x", "c": 0.5}]
    for kind in (JSONWriter, CSVWriter):
        with kind(out=tmp_path / kind.__name__) as writer:
            writer.write(samples[0])
        assert read_all(tmp_path / kind.__name__) == samples
    with pytest.raises(SchemaError, match="bytes"), JSONWriter(out=tmp_path / "b") as writer:
        writer.write({"a": b"x"})


TABLE = pa.table(
    {
        "i8": pa.array([1, 2, 3, 4], pa.int8()),
        "u32": pa.array([1, 2, 3, 4], pa.uint32()),
        "f4": pa.array([0.5, 1, 2, 3], pa.float32()),
        "text": ["a", "é", "", "long " * 9],
        "large": pa.array(["a", "b", "c", "d"], pa.large_string()),
        "blob": [b"", b"\x00", b"ab", b"c" * 99],
        "tokens": pa.array([[1, 2], [], [3], [4, 5, 6]], pa.list_(pa.uint16())),
        "fixed": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.int32(), 2)),
        "flag": [True, False, True, False],
        "word": pa.array(["x", "y", "x", "y"]).dictionary_encode(),
        "deci": pa.array([Decimal("1.10")] * 4, pa.decimal128(5, 2)),
        "tree": [{"a": 1}, {"a": None}, {"a": 3}, None],
    }
)
ENCODINGS = {
    "i8": "int8",
    "u32": "uint32",
    "f4": "float32",
    "text": "str",
    "large": "str",
    "blob": "bytes",
    "tokens": "ndarray:uint16",
    "fixed": "ndarray:int32",
    "flag": "int",
    "word": "str",
    "deci": "str_decimal",
    "tree": "json",
}


def _as_samples(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row["tokens"] = np.array(row["tokens"], np.uint16)
        row["fixed"] = np.array(row["fixed"], np.int32)
    return rows


@pytest.mark.parametrize("how", ["table", "chunked", "sliced", "batch", "reader"])
def test_arrow_tables_are_written_as_their_rows_are(tmp_path: Path, files: Any, how: str) -> None:
    """Every column type, in one chunk, several, or a slice of one, gives the rows' bytes."""
    table = TABLE
    if how == "chunked":
        table = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2), TABLE.slice(3)])
    if how == "sliced":
        table = TABLE.slice(1, 2)
    given: Any = table
    if how == "batch":
        given = table.combine_chunks().to_batches()[0]
    if how == "reader":
        given = table.to_reader()
    with MDSWriter(out=tmp_path / "rows", columns=ENCODINGS) as writer:
        for sample in _as_samples(table):
            writer.write(sample)
    with MDSWriter(out=tmp_path / "arrow", columns=ENCODINGS) as writer:
        writer.write_batch(given)
    assert files(tmp_path / "rows") == files(tmp_path / "arrow")


def test_arrow_types_settle_the_columns(tmp_path: Path, read_all: Any) -> None:
    """Without columns, the table's types say the encodings."""
    with MDSWriter(out=tmp_path / "out") as writer:
        writer.write_batch(TABLE)
    schema = load_index(tmp_path / "out").schemas[0]
    assert dict(zip(schema.column_names, schema.column_encodings, strict=True)) == ENCODINGS
    for came, wanted in zip(read_all(tmp_path / "out"), _as_samples(TABLE), strict=True):
        for name in ("text", "tokens", "fixed", "blob", "tree", "deci"):
            assert same_value(came[name], wanted[name])


def test_nulls_are_refused_with_their_place(tmp_path: Path) -> None:
    """A missing value is no zero and no empty text."""
    table = pa.table({"t": ["a", None, "c"]})
    with MDSWriter(out=tmp_path / "out", columns={"t": "str"}) as writer:
        with pytest.raises(SampleError, match=r"sample 1 \(row 1 of the batch\), column 't'.*None"):
            writer.write_batch(table)
        writer.write_batch(pa.table({"t": ["d"]}))
    assert load_index(tmp_path / "out").num_samples == 1


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.int64(), 2)])
@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:int64", "ndarray:float64"])
def test_nulls_within_lists_are_refused_too(tmp_path: Path, kind: Any, encoding: str) -> None:
    """They would become NaN, and integers floats, without a word."""
    table = pa.table({"v": pa.array([[1, 2], [3, None]], kind)})
    with (
        MDSWriter(out=tmp_path / "out", columns={"v": encoding}) as writer,
        pytest.raises(SampleError, match="column 'v'"),
    ):
        writer.write_batch(table)


def test_tables_larger_than_memory_come_as_readers(tmp_path: Path, read_all: Any) -> None:
    """Each batch of a reader is written as it comes; none before is held."""
    batches = [pa.record_batch({"n": list(range(i, i + 10))}) for i in range(0, 50, 10)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    with MDSWriter(out=tmp_path / "out") as writer:
        writer.write_batch(reader)
    assert [sample["n"] for sample in read_all(tmp_path / "out")] == list(range(50))


@pytest.mark.parametrize("batch", [[1, 2], None, {"a": 5}, {"a": "text"}])
@pytest.mark.parametrize("columns", [None, {"a": "int"}])
def test_what_is_no_batch_is_refused(tmp_path: Path, batch: Any, columns: Any) -> None:
    """With or without columns, the error says what was wanted and what came."""
    with (
        MDSWriter(out=tmp_path / "out", columns=columns) as writer,
        pytest.raises(SampleError, match=r"wanted .* came"),
    ):
        writer.write_batch(batch)


def test_timestamps_need_a_say(tmp_path: Path) -> None:
    """What has no encoding is refused, not turned into something else."""
    table = pa.table({"when": [datetime(2026, 1, 1, tzinfo=UTC)]})
    with pytest.raises(SampleError, match="when"), MDSWriter(out=tmp_path / "out") as writer:
        writer.write_batch(table)


def test_text_writers_take_arrow_tables(tmp_path: Path, read_all: Any) -> None:
    """Rows of a table become lines."""
    with JSONWriter(out=tmp_path / "out", columns={"a": "int", "t": "str"}) as writer:
        writer.write_batch(pa.table({"a": [1, 2], "t": ["x", "y"]}))
    assert read_all(tmp_path / "out") == [{"a": 1, "t": "x"}, {"a": 2, "t": "y"}]


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"a": [1, 2], "b": ["x"]}, "same length"),
        ({"a": [1, 2]}, "'b' is missing"),
        ({"a": 5, "b": ["x"]}, "'a': wanted an array or a list"),
        ({"a": [1, 2], "b": "xy"}, "'b': wanted an array or a list"),
        ({"a": [1, "2"], "b": ["x", "y"]}, r"row 1 of the batch\), column 'a' \(int\)"),
        ({"a": np.array([1.5]), "b": ["x"]}, r"column 'a'.*whole number"),
        ({"a": np.array([2**63], np.uint64), "b": ["x"]}, r"column 'a'.*64 bits"),
        ([{"a": 1, "b": "x"}], "columns"),
    ],
)
def test_bad_batches_say_what_is_wrong_and_leave_nothing(
    tmp_path: Path, batch: Any, told: str, read_all: Any
) -> None:
    """The error names column and row; the batch is left out whole."""
    with MDSWriter(out=tmp_path / "out", columns={"a": "int", "b": "str"}) as writer:
        with pytest.raises(SampleError, match=told):
            writer.write_batch(batch)
        writer.write({"a": 1, "b": "kept"})
    assert read_all(tmp_path / "out") == [{"a": 1, "b": "kept"}]


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ({"a": 1}, r"sample 1: column 'b' is missing; the sample has 'a'"),
        (
            {"a": "x", "b": "y"},
            r"sample 1, column 'a' \(int\): wanted a whole number, came str 'x'",
        ),
        ({"a": 1, "b": 2}, r"sample 1, column 'b' \(str\): wanted str, came int 2"),
        ([1, 2], r"sample 1: wanted a mapping"),
        ({"a": 2**63, "b": ""}, r"sample 1, column 'a' \(int\): wanted an int of 64 bits"),
    ],
)
def test_a_sample_that_does_not_fit_says_which_column_and_why(
    tmp_path: Path, sample: Any, told: str
) -> None:
    """Column, encoding, what was wanted, what came, and the sample's number."""
    with MDSWriter(out=tmp_path / "out", columns={"a": "int", "b": "str"}) as writer:
        writer.write({"a": 0, "b": ""})
        with pytest.raises(SampleError, match=told):
            writer.write(sample)
    with MDSWriter(out=tmp_path / "packed", columns={"a": "int"}) as writer:
        writer.write({"a": 0})
        with pytest.raises(SampleError, match="sample 1"):
            writer.write({"a": "x"})


@pytest.mark.process
def test_writing_needs_no_arrow(tmp_path: Path) -> None:
    """Neither pyarrow nor Pillow is imported by writing plain columns."""
    code = (
        "import sys, numpy as np; from streaming_core import MDSWriter\n"
        f"with MDSWriter(out={str(tmp_path / 'o')!r}) as w: w.write_batch({{'a': np.arange(3)}})\n"
        "assert not {'pyarrow', 'PIL', 'torch', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("how", ["reader", "stream", "views"])
def test_one_shot_streams_and_views_keep_their_rows(
    tmp_path: Path, read_all: Any, how: str
) -> None:
    """Looking at the types of a stream does not use it up; views are text and bytes."""
    table = pa.table({"s": ["a", "b"], "b": [b"\xff", b"\xd8"]})
    given: Any = table.to_reader()
    if how == "stream":
        given = _Stream(table)
    if how == "views":
        kinds = pa.schema([("s", pa.string_view()), ("b", pa.binary_view())])
        given = table.cast(kinds)
    with MDSWriter(out=tmp_path / "out") as writer:
        writer.write_batch(given)
    assert read_all(tmp_path / "out") == [{"s": "a", "b": b"\xff"}, {"s": "b", "b": b"\xd8"}]
    assert load_index(tmp_path / "out").schemas[0].column_encodings == ("bytes", "str")


class _Stream:
    """What other libraries hand over: a table that can be read once."""

    def __init__(self, table: pa.Table) -> None:
        self._reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._reader.__arrow_c_stream__(requested_schema)


def test_columns_that_come_late_are_not_dropped(tmp_path: Path) -> None:
    """With inferred columns, a key that the first samples lack is an error at any time."""
    with MDSWriter(out=tmp_path / "out") as writer:
        for i in range(64):
            writer.write({"a": i})
        with pytest.raises(SampleError, match="'label'"):
            writer.write({"a": 64, "label": "x"})


def test_integers_are_not_rounded_to_floats(tmp_path: Path) -> None:
    """Widening to float is for integers that a float holds exactly."""
    with MDSWriter(out=tmp_path / "out") as writer:
        writer.write({"a": 2**60 + 1})
        with pytest.raises(SampleError, match="sample 1, column 'a'"):
            writer.write({"a": 0.5})


def test_masked_arrays_are_refused_both_ways(tmp_path: Path) -> None:
    """What a mask hides is no value."""
    masked = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    with MDSWriter(out=tmp_path / "out", columns={"a": "ndarray"}) as writer:
        with pytest.raises(SampleError, match="masked"):
            writer.write({"a": masked[0]})
        with pytest.raises(SampleError, match="masked"):
            writer.write_batch({"a": masked})


def test_an_encoding_that_gives_no_bytes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own encoding is at fault, and the error says so at its first value."""

    class Wrong(Encoding):
        def encode(self, obj: Any) -> Any:
            return str(obj)

    monkeypatch.setitem(mds_encodings, "wrong", Wrong)
    with MDSWriter(out=tmp_path / "out", columns={"a": "wrong"}) as writer:
        with pytest.raises(SampleError, match="Wrong gave str"):
            writer.write({"a": 1})
        with pytest.raises(SampleError, match="Wrong gave str"):
            writer.write_batch({"a": [1]})
