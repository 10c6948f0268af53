"""Whole shards: any columns and values go in and come out, by number, slice and iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.format.mds.making import info_of, key, make_shard, opened, schema_of
from tests.core.format.mds.values import VALUES

from streaming_core._format._mds import MDSColumns, config_bytes, shard_header
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable


COLUMNS = st.dictionaries(st.text(max_size=6), st.sampled_from(sorted(VALUES)), min_size=1)


@st.composite
def datasets(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return columns and samples."""
    columns = draw(COLUMNS.filter(bool))
    rows = st.fixed_dictionaries({name: VALUES[text] for name, text in columns.items()})
    return columns, draw(st.lists(rows, max_size=5))


@given(datasets())
def test_any_samples_come_back(dataset: tuple[dict[str, str], list[dict[str, Any]]]) -> None:
    """Any columns under any names, with any values, come back in order; keys sorted by name."""
    columns, samples = dataset
    info, raw = make_shard(columns, samples)
    shard = opened(info, raw, allow_unsafe=True)
    wanted = [key(dict(sorted(sample.items()))) for sample in samples]
    assert [key(sample) for sample in shard] == wanted
    assert [key(shard[-1 - i]) for i in range(len(samples))] == wanted[::-1]
    assert len(shard) == len(samples)


@pytest.fixture(scope="module")
def five() -> Any:
    """Return a shard of five samples."""
    info, raw = make_shard({"n": "int", "s": "str"}, [{"n": i, "s": "é" * i} for i in range(5)])
    return opened(info, raw)


@pytest.mark.parametrize("where", [slice(None), slice(1, 4), slice(None, None, -2), slice(9, 3)])
def test_slices_are_lists(five: Any, where: slice) -> None:
    """A slice gives what it would give of a list."""
    assert [sample["n"] for sample in five[where]] == list(range(5))[where]


@pytest.mark.parametrize("row", [5, -6, 2**40, -(2**40)])
@pytest.mark.parametrize("how", ["item", "row", "record"])
def test_rows_that_are_not_there_are_index_errors(five: Any, row: int, how: str) -> None:
    """The error names the shard, the row that was asked for, and how many there are."""
    calls: dict[str, Callable[[int], Any]] = {"item": five.__getitem__}
    call = calls.get(how) or getattr(five, how)
    with pytest.raises(IndexError, match=f"shard.00007.mds: no sample {row}, the shard has 5"):
        call(row)


def test_shards_are_sequences(five: Any) -> None:
    """Whatever works on a sequence works on a shard; numpy's integers are numbers of rows."""
    assert [sample["n"] for sample in reversed(five)] == [4, 3, 2, 1, 0]
    assert five[np.int64(3)] == five[-2] == {"n": 3, "s": "ééé"}
    assert {"n": 2, "s": "éé"} in five
    assert five.record(1) == MDSColumns({"n": "int", "s": "str"}).encode({"n": 1, "s": "é"})


def test_an_empty_shard_has_no_samples() -> None:
    """The reference writes one where the first sample alone exceeds the limit."""
    info, raw = make_shard({"a": "int"}, [])
    assert list(opened(info, raw)) == []
    assert len(opened(info, raw)) == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_shards_are_read_from_any_buffer(kind: Any) -> None:
    """A mapping is as good as bytes."""
    info, raw = make_shard({"a": "ndarray"}, [{"a": np.arange(3)}])
    assert key(opened(info, kind(raw))[0]["a"]) == key(np.arange(3))


def test_samples_outlive_their_shard() -> None:
    """What was decoded does not change with the buffer that the shard lay in."""
    info, raw = make_shard({"a": "ndarray", "b": "bytes"}, [{"a": np.arange(9), "b": b"abc"}])
    buffer = bytearray(raw)
    sample = opened(info, buffer)[0]
    buffer[:] = bytes(len(raw))
    assert (sample["a"].tolist(), sample["b"]) == (list(range(9)), b"abc")


def test_settings_that_others_wrote_are_accepted() -> None:
    """Only columns are compared: order of keys, spaces and further keys are free."""
    record = MDSColumns({"a": "int"}).encode({"a": 5})
    for config in (b"{}", b' {"later": [1],\n "column_names": ["a"]}\n'):
        raw = shard_header(np.array([len(record)]), config) + record
        assert list(opened(info_of(schema_of({"a": "int"}), raw, 1), raw)) == [{"a": 5}]


def test_a_shard_beyond_its_offsets_is_refused() -> None:
    """Offsets have 32 bits, and none is cut to them in silence."""
    assert shard_header(np.array([2**32 - 1 - 14]), b"{}").endswith(b"\xff\xff\xff\xff{}")
    with pytest.raises(SchemaError, match=r"a shard of 4294967296 bytes.*size_limit"):
        shard_header(np.array([2**32 - 14]), b"{}")
    with pytest.raises(SchemaError, match="a shard of 8589934616 bytes"):
        shard_header(np.full(4, 2**31), b"")


def test_settings_are_as_the_format_writes_them() -> None:
    """Sorted keys, Python's separators, ASCII: the bytes are part of the format."""
    config = MDSColumns({"é": "str"}).config(compression="zstd:5", hashes=("md5",), size_limit=None)
    assert config_bytes(config) == (
        b'{"column_encodings": ["str"], "column_names": ["\\u00e9"], "column_sizes": [null], '
        b'"compression": "zstd:5", "format": "mds", "hashes": ["md5"], "size_limit": null, '
        b'"version": 2}'
    )


@pytest.mark.parametrize("columns", [{}, {"a": 3}, {3: "int"}, {"a": None}])
def test_columns_must_be_names_and_encodings(columns: Any) -> None:
    """Anything else is refused before a byte is written."""
    with pytest.raises(SchemaError, match=r"no columns|columns map names to encodings"):
        MDSColumns(columns)


def test_columns_are_sorted_and_others_left_out() -> None:
    """The order of a sample's keys does not matter, and what is no column is not written."""
    columns = MDSColumns({"b": "uint8", "a": "str", "B": "uint8"})
    assert columns.names == ("B", "a", "b")
    assert columns.encode({"a": "x", "b": 2, "B": 1, "c": 9}) == b"\x01\0\0\0\x01x\x02"
    with pytest.raises(KeyError, match="a"):
        columns.encode({"b": 2, "B": 1})
