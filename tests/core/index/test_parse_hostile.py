"""Bytes that nobody wrote as an index: one kind of error, whatever they are."""

from __future__ import annotations

import copy
import gzip
import json
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.core.index.documents import (
    GOLDEN_NAMES,
    document,
    dumped,
    golden,
    golden_bytes,
    mds_entry,
    parse,
    problems_of,
)

from streaming_core._index import ShardTable, dump_table, parse_index
from streaming_core.errors import IndexInvalidError

SMALL = golden_bytes("ids_one")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"<!DOCTYPE html><html><body>403 Forbidden</body></html>", "HTML"),
        (b"\n <Error><Code>NoSuchKey</Code></Error>", "HTML or XML"),
        (b"\xef\xbb\xbf" + SMALL, "byte order mark"),
        (SMALL.decode().encode("utf-16"), "UTF-16"),
        (gzip.compress(SMALL, mtime=0), "gzip"),
        (zstandard.compress(SMALL), "zstd"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git lfs pull"),
        (SMALL[:-1], "cut off"),
        (SMALL + b"x", "trailing"),
        (b"\0" * 100, "no valid JSON"),
        (b"nonsense", "no valid JSON"),
        (b"{'shards': []}", "no valid JSON"),
        (b'{"shards": [], "version": 2,}', "no valid JSON"),
        (b'{"shards": [NaN], "version": 2}', "no valid JSON"),
        (b'{"shards": [], "version": 2, "x": Infinity}', "no valid JSON"),
        (b'{"shards": [], "version": 2, "\xff": 1}', "UTF-8"),
    ],
)
def test_what_is_no_json_is_refused_with_a_hint(data: bytes, hint: str) -> None:
    """The error guesses what was stored in the index's place."""
    problems = problems_of(data)
    assert [(each.path, each.kind) for each in problems] == [("$", "json")]
    assert hint in problems[0].text


@pytest.mark.parametrize(
    "inner",
    [b'"\xff"', b'"\\ud800"', b'"\\q"', b'"\xed\xa0\x80"', b"1e999", b"1" * 5000, b"-", b"[1"],
)
def test_broken_values_are_refused_wherever_they_are(inner: bytes) -> None:
    """Text that is no UTF-8, half a surrogate, numbers without bounds: each is a problem."""
    entry = dumped(mds_entry())
    for data in (
        b'{"shards": [%s], "version": 2, "x": %s}' % (entry, inner),
        b'{"shards": [%s], "version": 2}' % entry.replace(b'"mds"', inner, 1),
        b'{"shards": [%s], "version": 2}' % entry.replace(b'"id"', inner, 1),
        b'{"shards": [%s], "version": 2}' % entry.replace(b"{", b'{"x": %s,' % inner, 1),
        b'{"shards": %s, "version": 2}' % inner,
        b'{"shards": [%s], "version": 2}' % inner,
    ):
        assert problems_of(data)


@pytest.mark.parametrize("depth", [70, 900, 5_000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_refused(depth: int, opening: bytes, closing: bytes) -> None:
    """No depth exhausts the stack, and none is accepted that a writer would choke on."""
    deep = opening * depth + b"1" + closing * depth
    entry = dumped(mds_entry()).replace(b"{", b'{"x": %s, ' % deep, 1)
    for data in (
        deep,
        opening * depth,
        b'{"shards": %s, "version": 2}' % deep,
        b'{"shards": [%s], "version": 2}' % deep,
        b'{"shards": [%s], "version": 2}' % entry,
        b'{"shards": [], "version": 2, "x": %s}' % deep,
    ):
        assert problems_of(data)


def test_depth_that_is_allowed_survives() -> None:
    """Unknown values may nest, as long as they do so modestly."""
    value: Any = 1
    for _ in range(60):
        value = [value]
    table = parse(document(mds_entry() | {"x": value}, y=value))
    assert table.extras == {"y": value}


def test_the_size_of_a_document_is_bounded() -> None:
    """More bytes than allowed are refused before any work."""
    with pytest.raises(IndexInvalidError) as info:
        parse_index(SMALL, "test", max_bytes=len(SMALL) - 1)
    assert [each.kind for each in info.value.problems] == ["size"]
    assert parse_index(SMALL, "test", max_bytes=len(SMALL)).num_shards == 1


def test_every_cut_of_a_document_is_refused() -> None:
    """However short a download ends, its beginning is no index."""
    assert all(problems_of(SMALL[:length]) for length in range(len(SMALL)))


def test_every_flipped_bit_is_a_document_or_an_index_error() -> None:
    """One flipped bit leaves a valid document or raises the one error."""
    refused = 0
    for at in range(len(SMALL) * 8):
        data = bytearray(SMALL)
        data[at // 8] ^= 1 << at % 8
        refused += bool(problems_of(bytes(data)))
    assert refused > len(SMALL) * 4


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict | list):
        keys = value.keys() if isinstance(value, dict) else range(len(value))
        for key in keys:
            found += _paths(value[key], (*path, key))
    return found


# Copied, because a drawn list may be changed by a later mutation.
ODD = st.sampled_from(
    [None, True, 0, 1, -1, 2, 3.0, 2**31, 2**32, 2**63, 2**64, 10**25, "", "x", "a/b", "../x",
     "00", "mds", "json", "csv", "zstd", "64mb", "\ud7ff", [], [None], ["a"], {}, {"a": "00"}]
).map(copy.deepcopy)  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """Draw a golden document with some members replaced, removed, added or copied."""
    value = golden(draw(st.sampled_from(GOLDEN_NAMES)))
    value["shards"] = value["shards"][:3]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_paths(value)[1:] or [("x",)]))
        holder: Any = value
        for key in path[:-1]:
            holder = holder[key]
        action = draw(st.sampled_from(["replace", "remove", "add", "copy"]))
        if action == "remove":
            holder.pop(path[-1], None) if isinstance(holder, dict) else holder.pop()
        elif action == "add" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["x", "newline", "columns", "raw_meta"]))] = draw(ODD)
        elif action == "copy" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
        else:
            holder[path[-1]] = draw(ODD)
    data = json.dumps(value, sort_keys=draw(st.booleans())).encode()
    return data.replace(b"0", b"0.0", 1) if draw(st.integers(0, 20)) == 0 else data


@given(mutations())
def test_changed_documents_are_tables_or_index_errors(data: bytes) -> None:
    """Fast way and judge agree on any change, and what is accepted comes back equal."""
    if not problems_of(data):
        table = parse_index(data, "test")
        assert json.loads(dump_table(table)) == json.loads(data)


@given(
    st.sampled_from(GOLDEN_NAMES),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), min_size=1, max_size=4),
)
def test_changed_bytes_are_tables_or_index_errors(
    name: str, edits: list[tuple[int, bytes]]
) -> None:
    """Random bytes in place of others never raise another error."""
    data = golden_bytes(name)
    for at, new in edits:
        start = at % len(data)
        data = data[:start] + new + data[start + len(new) :]
    if not problems_of(data):
        assert isinstance(parse_index(data, "test"), ShardTable)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    """Noise raises the one error."""
    assert problems_of(data)
