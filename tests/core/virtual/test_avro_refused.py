"""Avro that cannot become columns, or is broken: refused with an error that says so."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.virtual.avro_files import CODECS, SCHEMA, SYNC, row_of, written
from tests.core.virtual.kind_reading import Opened, damaged, outcome
from tests.profiles import examples

from streaming_core._virtual._kinds._avro_schema import parse_schema
from streaming_core.errors import SourceFormatError


def _refusal(schema: Any) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_schema(json.dumps(schema).encode())
    return str(caught.value)


def test_schemas_that_cannot_become_columns_are_told() -> None:
    """With the field's name, and what is wrong."""

    def field(kind: Any) -> Any:
        return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}

    assert "f: the union" in _refusal(field(["int", "string"]))
    assert "f: the union" in _refusal(field(["null", "int", "string"]))
    assert "has itself among its fields" in _refusal(field(["null", "R"]))
    assert "no type 'Nope'" in _refusal(field("Nope"))
    assert "a fixed type is -1" in _refusal(field({"type": "fixed", "name": "F", "size": -1}))
    assert "symbols" in _refusal(field({"type": "enum", "name": "E", "symbols": [1]}))
    assert "without a name" in _refusal(field({"type": "record", "fields": []}))
    assert "a type is" in _refusal(field(7))
    twice = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}] * 2}
    assert "that is taken: 'f'" in _refusal(twice)
    deep: Any = "int"
    for _ in range(80):
        deep = {"type": "array", "items": deep}
    assert "deeper" in _refusal(deep)


def test_schemas_that_grow_without_bound_are_refused() -> None:
    """Each record has two of the one before: few bytes, and more types than there is memory."""
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for n in range(1, 40):
        both = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{n - 1}"}]
        kind = {"type": "record", "name": f"R{n}", "fields": both}
    assert "more than" in _refusal(kind)


@pytest.mark.parametrize("data", [b"", b"Obj", b"Obj\x01", b"Obj\x02" + bytes(99), bytes(100)])
def test_other_files_are_refused(data: bytes) -> None:
    """With the file's name, and what is wrong."""
    with pytest.raises(SourceFormatError, match=r"a\.avro: no Avro file that can be read"):
        Opened("avro", data)


def test_a_codec_that_is_not_read_is_named() -> None:
    """With those that are."""
    data = written("long", [1]).replace(b"\x08null", b"\x08zzip")
    with pytest.raises(
        SourceFormatError, match="its codec is 'zzip'; those that are read are null"
    ):
        Opened("avro", data)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_files_cut_anywhere_are_refused(codec: str) -> None:
    """But between two blocks, as no file says how many it has."""
    data = written(SCHEMA, [row_of(n) for n in range(100)], codec, 20)
    ends = {at + 16 for at in range(len(data)) if data.startswith(SYNC, at)}
    for size in range(0, len(data), max(1, len(data) // 300)):
        assert size in ends or outcome("avro", data[:size]) == "refused"


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_damaged_files_are_refused_or_read(codec: str) -> None:
    """Nothing else: all rows counted, or the error that is meant for it."""
    data = written(SCHEMA, [row_of(n) for n in range(60)], codec, 20)
    rng = np.random.default_rng(len(data))
    found = {outcome("avro", damaged(data, rng)) for _ in range(examples(250))}
    assert "refused" in found


@pytest.mark.parametrize(
    "block",
    [
        "fe ff ff ff ff ff ff ff ff 01",  # more items than there are bytes
        "ff ff ff ff ff ff ff ff ff 01 00",
        "01 ff ff ff ff ff ff ff ff ff 01",  # a block of negative length
        "80 80 80 80 80 80 80 80 80 80 80",
        "03 00 03 00 03 00",
    ],
)
@pytest.mark.parametrize("items", ["null", "long", {"type": "array", "items": "null"}])
def test_hostile_arrays_neither_hang_nor_take_memory(block: str, items: Any) -> None:
    """Whether the column is read or passed over."""
    fields = [
        {"name": "l", "type": {"type": "array", "items": items}},
        {"name": "n", "type": "long"},
    ]
    data = written({"type": "record", "name": "R", "fields": fields}, [{"l": [], "n": 9}])
    head = data[: data.index(SYNC) + 16]
    raw = bytes.fromhex(block)
    opened = Opened("avro", head + bytes([2, 2 * len(raw)]) + raw + SYNC)
    for columns in (None, ["n"]):
        with pytest.raises(SourceFormatError):
            opened.read(columns)


def test_rows_that_take_no_bytes_are_bounded() -> None:
    """A block of few bytes may claim any number of them."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}
    assert Opened("avro", written(schema, [{"n": None}] * 1000)).read().num_rows == 1000
    head = written(schema, [])
    many = bytes.fromhex("feffffffffffffffff01")
    with pytest.raises(SourceFormatError, match="claims"):
        Opened("avro", head + many + b"\0" + SYNC)


def test_blocks_that_expand_without_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they do."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}
    monkeypatch.setattr("streaming_core._virtual._kinds._avro._SMALL", 1 << 20)
    for codec in sorted(CODECS.keys() - {"null"}):
        opened = Opened("avro", written(schema, [{"b": bytes(8 << 20)}], codec))
        if codec == "snappy":  # it cannot shrink anything so far
            assert opened.read().num_rows == 1
            continue
        with pytest.raises(SourceFormatError, match=r"expands to more than|declares"):
            opened.read()


def test_a_broken_index_is_told() -> None:
    """What was saved of a file may be damaged too."""
    opened = Opened("avro", written(SCHEMA, [row_of(1)]))
    for meta in (b"", b"\xff", opened.scan.meta[:-3]):
        with pytest.raises(SourceFormatError, match="its index is broken"):
            opened.kind.decode(opened.file, meta, opened.scan.units[0], [], None)


@given(data=st.binary(max_size=200))
def test_any_bytes_as_rows(data: bytes) -> None:
    """The rows that were counted, or a refusal."""
    head = written(SCHEMA, [])
    size = len(data)
    number = bytes([2 * size & 0x7F | (0x80 if size > 63 else 0)]) + (
        bytes([2 * size >> 7]) if size > 63 else b""
    )
    assert outcome("avro", head + b"\2" + number + data + SYNC) in {"refused", "read"}
