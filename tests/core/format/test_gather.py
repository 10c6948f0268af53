"""Gathered columns hold what the rows hold, however the rows are chosen and the columns lie."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.format.gathering import (
    assert_rows,
    flat,
    gather_pairs,
    gather_rows,
    picks,
    shard_of,
    tables,
)
from tests.core.format.mds.values import VALUES
from tests.profiles import examples

from streaming_core._columns import Fixed, Objects, Ragged
from streaming_core._format import Shard, gather, gather_none, open_shard
from streaming_core._format._mds import Encoding, Int, mds_encodings
from streaming_core._format._text import JSONColumns, XSVColumns, open_text_shard, shard_meta
from streaming_core._index import FileInfo, ShardFormat, ShardInfo, ShardSchema
from streaming_core.errors import MissingColumnError, SchemaError


@given(data=st.data())
def test_gathered_rows_equal_single_rows(data: st.DataObject) -> None:
    """Any rows of any shards, in any order, have the values and types of `Shard.row`."""
    columns, samples = data.draw(tables())
    shards = [shard_of(columns, part) for part in samples]
    wanted = data.draw(picks(shards))
    copy = data.draw(st.booleans())
    names = data.draw(st.none() | st.lists(st.sampled_from(sorted(columns)), unique=True))
    rows = [shards[i].row(row) for i, row in wanted]
    if names is not None:
        rows = [{name: row[name] for name in names} for row in rows]
    assert_rows(gather_pairs(shards, wanted, names, copy=copy), rows)


@pytest.mark.parametrize("encoding", sorted(VALUES))
@settings(max_examples=examples(15))
@given(data=st.data())
def test_every_encoding_is_gathered(encoding: str, data: st.DataObject) -> None:
    """A column of each encoding comes back as its rows do, alone and beside another."""
    value = VALUES[encoding]
    first = data.draw(st.lists(value, min_size=1, max_size=4))
    for columns in ({"x": encoding}, {"x": encoding, "a": "str"}, {"x": encoding, "z": "int"}):
        samples = [{"x": v, "a": "é" * i, "z": i} for i, v in enumerate(first)]
        shard = shard_of(columns, samples)
        assert_rows(gather_rows(shard, range(len(first))[::-1]), shard[::-1])


@given(arrays=flat(), encoding=st.sampled_from(["ndarray", "typed"]))
def test_arrays_of_one_dimension_lie_end_to_end(
    arrays: list[np.ndarray[Any, Any]], encoding: str
) -> None:
    """Token arrays of different length become one ragged column, and never single objects."""
    text = f"ndarray:{arrays[0].dtype.name}" if encoding == "typed" else encoding
    shard = shard_of({"x": text}, [{"x": array} for array in arrays])
    columns = gather_rows(shard)
    alike = len({len(array) for array in arrays}) == 1
    assert isinstance(columns["x"], Fixed if alike else Ragged)
    assert_rows(columns, list(shard))
    assert all(row["x"].flags.writeable for row in columns.rows())


@given(st.lists(st.sampled_from([0, 1, 4000, 9000]), min_size=1, max_size=6), st.booleans())
def test_large_bytes_stay_apart_until_wanted(sizes: list[int], two: bool) -> None:
    """Bytes of any size are the same as views, in one piece, in slices and after pickling."""
    samples = [{"x": bytes([i]) * size} for i, size in enumerate(sizes)]
    shards = [shard_of({"x": "bytes"}, samples) for _ in range(1 + two)]
    count = len(sizes)
    columns = gather_pairs(shards, [(i, row) for row in range(count) for i in range(len(shards))])
    wanted = [sample for sample in samples for _ in shards]
    assert_rows(columns, wanted)
    column = columns["x"]
    assert isinstance(column, Ragged)
    assert (column.views is not None) == (sum(sizes) >= 4096 * count)
    assert column.data.tobytes() == b"".join(sample["x"] for sample in wanted)
    assert_rows(pickle.loads(pickle.dumps(columns)), wanted)
    assert_rows(columns.slice(1, 3), wanted[1:3])


@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_slice_of_columns_is_the_columns_of_a_slice(data: st.DataObject) -> None:
    """Slices, and slices of slices, hold the rows that a list's slices hold."""
    columns, (samples, *_) = data.draw(tables())
    shard = shard_of(columns, samples)
    gathered = gather_rows(shard)
    a, b, c = (data.draw(st.integers(-6, 6)) for _ in range(3))
    assert_rows(gathered.slice(a, b), shard[a:b])
    assert_rows(gathered.slice(a, b).slice(c, 9), shard[a:b][c:9])
    assert_rows(pickle.loads(pickle.dumps(gathered.slice(a, b))), shard[a:b])


class _Pair(Encoding):
    size = 2

    def encode(self, obj: Any) -> bytes:
        return bytes(obj)

    def decode(self, data: bytes) -> tuple[int, ...]:
        return tuple(data)


def test_users_encodings_are_decoded_by_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered class decodes, one derived from ours too, and another under the name later."""

    class Negative(Int):
        def decode(self, data: bytes) -> int:
            return -super().decode(data)

    monkeypatch.setitem(mds_encodings, "pair", _Pair)
    monkeypatch.setitem(mds_encodings, "own", Negative)
    columns = {"a": "int", "p": "pair", "q": "own"}
    sample = {"a": 1, "p": (3, 4), "q": 5}
    shard = shard_of(columns, [sample])
    wanted = [{"a": 1, "p": (3, 4), "q": -5}]
    assert_rows(gather_rows(shard), wanted)
    assert list(shard) == wanted
    monkeypatch.setitem(mds_encodings, "own", Int)
    shard = shard_of(columns, [sample])
    assert gather_rows(shard).rows() == [sample]


def _text_shards() -> list[Shard]:
    rows = [{"f": 0.5, "i": 2**70, "s": "é"}, {"f": 2.0, "i": -1, "s": ""}]
    encodings = {"f": "float", "i": "int", "s": "str"}
    shards: list[Shard] = []
    formats: list[JSONColumns | XSVColumns] = [
        JSONColumns(encodings),
        XSVColumns(encodings, format="tsv"),
    ]
    for columns in formats:
        head = columns.header()
        lines = [columns.encode(row) for row in rows]
        raw = head + b"".join(lines)
        config = columns.config(compression=None, hashes=(), size_limit=None)
        meta = shard_meta([len(line) for line in lines], start=len(head), config=config)
        names, texts = tuple(encodings), tuple(encodings.values())
        form: ShardFormat = "json" if isinstance(columns, JSONColumns) else columns.format
        schema = ShardSchema(form, names, texts, newline="\n")
        file = FileInfo("shard.00000.raw", len(raw), {})
        info = ShardInfo(0, 2, schema, file, None, FileInfo("shard.00000.meta", len(meta), {}))
        shards.append(open_shard(info, {"raw": raw, "raw_meta": meta}))
    return shards


def test_text_shards_and_shards_of_several_kinds_are_gathered() -> None:
    """JSON, TSV and MDS rows of the same columns come together.

    Numbers that are Python's in some and NumPy's in others are NumPy's in all, and so one array.
    """
    sample = {"f": np.float64(4.5), "i": 3, "s": "mds"}
    mds = shard_of({"f": "float64", "i": "int", "s": "str"}, [sample])
    json, tsv = _text_shards()
    shards = [json, mds, tsv]
    pairs = [(0, 1), (2, 0), (1, 0), (0, 0)]
    rows = [dict(row) for row in (json.row(1), tsv.row(0), sample, json.row(0))]
    assert [type(row["f"]) for row in rows] == [float, float, np.float64, float]
    for row in rows:
        row["f"] = np.float64(row["f"])
    columns = gather_pairs(shards, pairs)
    assert_rows(columns, rows)
    assert isinstance(columns["f"], Fixed)
    assert gather_pairs(shards, pairs, ["s"])["s"].to_list() == ["", "é", "mds", "é"]


def test_shards_of_different_columns_are_no_batch() -> None:
    """The error names the columns of both."""
    a, b = shard_of({"x": "int"}, [{"x": 1}]), shard_of({"y": "int"}, [{"y": 1}])
    with pytest.raises(SchemaError, match=r"\['y'\], the first has \['x'\]"):
        gather_pairs([a, b], [(0, 0), (1, 0)])


@pytest.mark.parametrize("columns", [{"x": "int"}, {"x": "str"}])
@pytest.mark.parametrize("bad", [-1, 3, 2**40, -(2**62)])
def test_rows_that_are_not_there_are_an_error(columns: dict[str, str], bad: int) -> None:
    """A row beyond the shard raises what `row` raises, wherever it stands."""
    samples = [{"x": i if columns["x"] == "int" else str(i)} for i in range(3)]
    shards = [shard_of(columns, samples), shard_of(columns, samples)]
    for first, second in ((bad, 0), (0, bad)):
        with pytest.raises(IndexError, match=f"no sample {bad}, the shard has 3"):
            gather_rows(shards[0], [first, second])
        with pytest.raises(IndexError, match=f"no sample {bad}, the shard has 3"):
            gather_pairs(shards, [(0, 0), (1, first), (1, second), (0, 1)])


@pytest.mark.parametrize("columns", [{"x": "int"}, {"x": "str"}])
def test_rows_must_be_of_a_shard_that_is_given(columns: dict[str, str]) -> None:
    """A shard that is not there, or as many rows as there are not shards for, is an error."""
    shard = shard_of(columns, [{"x": 1 if columns["x"] == "int" else "a"}])
    for bad in (-1, 1, 2**40):
        with pytest.raises(IndexError, match=rf"of 1 shard\(s\), number {bad} is wanted"):
            gather_pairs([shard], [(0, 0), (bad, 0)])
    with pytest.raises(ValueError, match="2 rows are wanted, but for 1 the shard is given"):
        gather([shard], np.zeros(1, np.int64), np.zeros(2, np.int64))


def test_a_column_that_is_not_there_is_named() -> None:
    """The error lists the columns that there are, for every kind of shard."""
    for shard in (shard_of({"x": "int"}, [{"x": 1}]), *_text_shards()):
        with pytest.raises(MissingColumnError, match="no column 'nope'; the shards have '"):
            gather_rows(shard, [0], ["nope"])


def test_nothing_is_gathered_to_nothing() -> None:
    """No rows give columns without values, of the types the shard has."""
    shard = shard_of({"i": "int", "s": "str", "j": "json"}, [{"i": 1, "s": "a", "j": None}])
    columns = gather_rows(shard, [])
    assert columns.rows() == []
    assert isinstance(columns["i"], Fixed)
    assert isinstance(columns["s"], Ragged)
    assert isinstance(columns["j"], Objects)
    assert gather_pairs([], []).rows() == []


@pytest.mark.parametrize("encoding", ["ndarray:int64:2", "int64", "ndarray"])
def test_columns_are_the_callers_own(encoding: str) -> None:
    """Writing to a gathered array, or to a row's, changes no other one, and views refuse it."""
    value = np.int64(7) if encoding == "int64" else np.array([1, 2])
    raw = shard_of({"x": encoding}, [{"x": value}] * 4)
    column = gather_rows(raw)["x"]
    assert isinstance(column, Fixed)
    column.values[...] = 99
    assert_rows(gather_rows(raw), [{"x": value}] * 4)
    view = gather_rows(raw, copy=False)["x"]
    assert isinstance(view, Fixed)
    assert view.values.flags.writeable == (encoding == "ndarray")


def test_names_of_columns_are_no_code() -> None:
    """A column may have any name, also one that would end a literal."""
    names = ["'", '"', "a'}, 1/0, {'", "\\", "\n", "{x}", "é", "", "a0"]
    sample = {name: i for i, name in enumerate(sorted(names))}
    shard = shard_of(dict.fromkeys(names, "int"), [sample])
    assert gather_rows(shard).rows() == [sample]


@given(st.data())
def test_text_shards_give_numbers_in_arrays(data: st.DataObject) -> None:
    """Where all fit one, and with the values and types of single rows whatever they are."""
    ints = st.integers(-(2**63), 2**63 - 1) if data.draw(st.booleans()) else st.integers()
    values = data.draw(st.lists(st.tuples(ints | st.booleans(), st.floats()), min_size=1))
    encodings = {"f": "float", "i": "int", "t": "str"}
    columns: list[Any] = [JSONColumns(encodings), XSVColumns(encodings, format="tsv")]
    for kind in columns:
        lines = [kind.encode({"f": f, "i": i, "t": "é"}) for i, f in values]
        start = len(kind.header())
        config = kind.config(compression=None, hashes=(), size_limit=None)
        meta = shard_meta([len(line) for line in lines], start=start, config=config)
        raw = kind.header() + b"".join(lines)
        schema = ShardSchema(kind.format, tuple(encodings), tuple(encodings.values()), newline="\n")
        info = ShardInfo(0, len(lines), schema, FileInfo("shard", len(raw), {}))
        shard = open_text_shard(info, raw, meta)
        found = gather_rows(shard, range(len(lines))[::-1])
        assert_rows(found, shard[::-1])
        assert isinstance(found["f"], Fixed)
        plain = all(type(shard.row(row)["i"]) is int for row in range(len(lines)))
        small = all(-(2**63) <= i < 2**63 for i, _ in values)
        assert isinstance(found["i"], Fixed) == (plain and small)
        only = gather_rows(shard, [0], ["t"])
        assert only.rows() == [{"t": "é"}]


def test_a_slice_of_texts_decodes_its_own_bytes_only() -> None:
    """Neither those of the others are looked at, nor decoded."""
    texts = [f"{i:010d}" for i in range(20_001)]
    shard = shard_of({"t": "str"}, [{"t": text} for text in texts])
    whole = gather_rows(shard)["t"]
    tracemalloc.start()
    for at in (5, 19_999):
        assert whole.slice(at, at + 2).to_list() == texts[at : at + 2]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize("encoding", sorted(VALUES))
def test_no_samples_have_columns_of_the_same_type(encoding: str) -> None:
    """Each encoding has a column of no values, of the type and shape of some where it has one."""
    none = gather_none(shard_schema({"x": encoding}))["x"]
    assert len(none) == len(none.to_list()) == 0
    if encoding in {"int", "float32", "ndarray:int16:2,3"}:
        assert isinstance(none, Fixed)


def shard_schema(columns: dict[str, str]) -> ShardSchema:
    """Return the schema of MDS shards with the columns."""
    return ShardSchema("mds", tuple(columns), tuple(columns.values()), (None,) * len(columns))
