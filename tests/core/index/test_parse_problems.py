"""What is refused: every kind of problem, by its exact path and kind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.index.documents import (
    document,
    dumped,
    file,
    json_entry,
    mds_entry,
    problems_of,
    xsv_entry,
)

from streaming_core._index import parse_index
from streaming_core.errors import IndexInvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

DELETE = object()
S = "$.shards[1]"
MAKERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "mds": mds_entry,
    "zip": partial(mds_entry, zipped=True),
    "json": json_entry,
    "jsonzip": partial(json_entry, zipped=True),
    "csv": partial(xsv_entry, kind="csv"),
    "tsv": partial(xsv_entry, kind="tsv"),
    "xsv": xsv_entry,
}
ABSENT = [
    (kind, key, DELETE, key, "missing")
    for kind in ("mds", "json", "csv", "tsv", "xsv")
    for key in MAKERS[kind](1)
]
# entry, key to change, new value, path below the shard, kind
CASES: list[tuple[str, str, Any, str, str]] = [
    *ABSENT,
    ("mds", "raw_data/basename", DELETE, "raw_data.basename", "missing"),
    ("mds", "raw_data/bytes", DELETE, "raw_data.bytes", "missing"),
    ("zip", "zip_data/hashes", DELETE, "zip_data.hashes", "missing"),
    ("mds", "version", 1, "version", "value"),
    ("mds", "version", "2", "version", "type"),
    ("mds", "version", 2.0, "version", "type"),
    ("mds", "version", 10**400, "version", "value"),
    ("mds", "format", "parquet", "format", "value"),
    ("mds", "format", None, "format", "type"),
    ("mds", "format", "", "format", "value"),
    ("mds", "samples", -1, "samples", "range"),
    ("mds", "samples", 2**32, "samples", "range"),
    ("mds", "samples", 10**30, "samples", "range"),
    ("mds", "samples", True, "samples", "type"),
    ("mds", "samples", 1.0, "samples", "type"),
    ("mds", "samples", "3", "samples", "type"),
    ("mds", "samples", None, "samples", "type"),
    ("mds", "samples", 249, "raw_data.bytes", "range"),
    ("json", "samples", 24, "raw_meta.bytes", "range"),
    ("mds", "raw_data/bytes", -1, "raw_data.bytes", "range"),
    ("mds", "raw_data/bytes", 2**32, "raw_data.bytes", "range"),
    ("mds", "raw_data/bytes", 2**63, "raw_data.bytes", "range"),
    ("mds", "raw_data/bytes", 19, "raw_data.bytes", "range"),
    ("mds", "raw_data/bytes", False, "raw_data.bytes", "type"),
    ("mds", "raw_data/bytes", None, "raw_data.bytes", "type"),
    ("mds", "raw_data/bytes", 1000.0, "raw_data.bytes", "type"),
    ("json", "raw_data/bytes", 2**32, "raw_data.bytes", "range"),
    ("json", "raw_meta/bytes", 19, "raw_meta.bytes", "range"),
    ("zip", "zip_data/bytes", 2**63, "zip_data.bytes", "range"),
    ("mds", "raw_data", None, "raw_data", "type"),
    ("mds", "raw_data", [], "raw_data", "type"),
    ("json", "raw_meta", None, "raw_meta", "type"),
    ("zip", "zip_data", None, "zip_data", "value"),
    ("zip", "zip_data", "x", "zip_data", "type"),
    ("mds", "zip_data", file("z", 1), "zip_data", "value"),
    ("jsonzip", "zip_meta", None, "zip_meta", "value"),
    ("json", "zip_meta", file("z", 1), "zip_meta", "value"),
    ("mds", "raw_data/basename", 7, "raw_data.basename", "type"),
    ("mds", "raw_data/basename", "", "raw_data.basename", "value"),
    ("mds", "raw_data/basename", "index.json", "raw_data.basename", "name"),
    ("mds", "raw_data/hashes", None, "raw_data.hashes", "type"),
    ("mds", "raw_data/hashes", [], "raw_data.hashes", "type"),
    ("mds", "raw_data/hashes", {"md5": 1}, "raw_data.hashes.md5", "type"),
    ("mds", "raw_data/hashes", {"md5": ""}, "raw_data.hashes.md5", "value"),
    ("mds", "raw_data/hashes", {"md5": "abc"}, "raw_data.hashes.md5", "value"),
    ("mds", "raw_data/hashes", {"md5": "zz"}, "raw_data.hashes.md5", "value"),
    ("mds", "raw_data/hashes", {"md5": "ab\ncd"}, "raw_data.hashes.md5", "value"),
    ("mds", "raw_data/hashes", {"md5": "ab\n"}, "raw_data.hashes.md5", "value"),
    ("mds", "raw_data/hashes", {"a b": "zz"}, "raw_data.hashes['a b']", "value"),
    ("mds", "raw_data/hashes", {"": "ab"}, "raw_data.hashes['']", "value"),
    ("zip", "compression", None, "zip_data", "value"),
    ("zip", "compression", 3, "compression", "type"),
    ("zip", "compression", "", "compression", "value"),
    ("zip", "compression", "zstd:", "compression", "value"),
    ("zip", "compression", "zstd:x", "compression", "value"),
    ("zip", "compression", "zstd:7\n", "compression", "value"),
    ("zip", "compression", ":7", "compression", "value"),
    ("mds", "hashes", None, "hashes", "type"),
    ("mds", "hashes", "md5", "hashes", "type"),
    ("mds", "hashes", ["md5", 1], "hashes[1]", "type"),
    ("mds", "hashes", [""], "hashes[0]", "value"),
    ("mds", "size_limit", -1, "size_limit", "range"),
    ("mds", "size_limit", 2**63, "size_limit", "range"),
    ("mds", "size_limit", 1.5, "size_limit", "type"),
    ("mds", "size_limit", True, "size_limit", "type"),
    ("mds", "size_limit", [], "size_limit", "type"),
    ("mds", "size_limit", "many", "size_limit", "value"),
    ("mds", "size_limit", "9" * 5000, "size_limit", "value"),
    ("mds", "column_names", ["text", "id"], "column_names[1]", "value"),
    ("mds", "column_names", ["id", "id"], "column_names[1]", "duplicate"),
    ("mds", "column_names", ["id", 5], "column_names[1]", "type"),
    ("mds", "column_names", "ab", "column_names", "type"),
    ("mds", "column_encodings", ["int"], "column_encodings", "value"),
    ("mds", "column_encodings", ["int", ""], "column_encodings[1]", "value"),
    ("mds", "column_encodings", ["int", None], "column_encodings[1]", "type"),
    ("mds", "column_encodings", {}, "column_encodings", "type"),
    ("mds", "column_sizes", [8], "column_sizes", "value"),
    ("mds", "column_sizes", [8, 0], "column_sizes[1]", "range"),
    ("mds", "column_sizes", [8, -8], "column_sizes[1]", "range"),
    ("mds", "column_sizes", [8, 2**32], "column_sizes[1]", "range"),
    ("mds", "column_sizes", [8, True], "column_sizes[1]", "type"),
    ("mds", "column_sizes", [8, 2.0], "column_sizes[1]", "type"),
    ("mds", "column_sizes", None, "column_sizes", "type"),
    ("csv", "column_names", ["a", "b"], "column_encodings", "value"),
    ("json", "columns", ["a"], "columns", "type"),
    ("json", "columns", {"a": 1}, "columns.a", "type"),
    ("json", "columns", {"a b": ""}, "columns['a b']", "value"),
    ("json", "newline", None, "newline", "type"),
    ("json", "newline", "", "newline", "value"),
    ("tsv", "newline", 1, "newline", "type"),
    ("xsv", "separator", "", "separator", "value"),
    ("xsv", "separator", None, "separator", "type"),
]
HOSTILE_NAMES = [
    "../x", "a/../../x", "/etc/passwd", "..", ".", "a//b", "a/", "/", "a/./b", "C:x", "c:/x",
    "a\\b", "..\\x", "\\\\host\\x", "a\0b", "a\nb", "shard.00009.mds\nshard.00010.mds", "a\x7f",
    "a\x1b[2J", "x" * 256, "a/" * 600 + "b", "index.json",
]  # fmt: skip


def changed(entry: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return `entry` with the member at `key` replaced, or removed."""
    head, _, rest = key.partition("/")
    fresh = dict(entry)
    if rest:
        fresh[head] = changed(entry[head], rest, value)
    elif value is DELETE:
        del fresh[head]
    else:
        fresh[head] = value
    return fresh


@pytest.mark.parametrize(("kind", "key", "value", "path", "problem"), CASES)
def test_a_bad_entry_is_refused_with_its_path(
    kind: str, key: str, value: Any, path: str, problem: str
) -> None:
    """One wrong thing is one problem, with the path to it and its kind."""
    make = MAKERS[kind]
    bad = changed(make(1), key, value)
    found = [(each.path, each.kind) for each in problems_of(document(make(0), bad, make(2)))]
    assert found == [(f"{S}.{path}", problem)]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("role", ["raw_data", "zip_data"])
def test_names_that_leave_the_folder_are_refused(role: str, name: str) -> None:
    """No file may be named so that it is written elsewhere, or over the index."""
    bad = changed(mds_entry(1, zipped=True), f"{role}/basename", name)
    found = [(each.path, each.kind) for each in problems_of(document(mds_entry(0), bad))]
    assert found == [(f"{S}.{role}.basename", "name")]


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        ([], "$", "type"),
        ("x", "$", "type"),
        (3, "$", "type"),
        (None, "$", "type"),
        (False, "$", "type"),
        ({"version": 2}, "$.shards", "missing"),
        ({"shards": []}, "$.version", "missing"),
        ({"shards": [], "version": 1}, "$.version", "value"),
        ({"shards": [], "version": 3}, "$.version", "value"),
        ({"shards": [], "version": None}, "$.version", "type"),
        ({"shards": [], "version": 2.0}, "$.version", "type"),
        ({"shards": [], "version": True}, "$.version", "type"),
        ({"shards": {}, "version": 2}, "$.shards", "type"),
        ({"shards": None, "version": 2}, "$.shards", "type"),
        ({"shards": "x", "version": 2}, "$.shards", "type"),
        ({"shards": [None], "version": 2}, "$.shards[0]", "type"),
        ({"shards": [[]], "version": 2}, "$.shards[0]", "type"),
        ({"shards": ["x"], "version": 2}, "$.shards[0]", "type"),
    ],
)
def test_a_bad_document_is_refused_with_its_path(value: Any, path: str, kind: str) -> None:
    """What is no index at its top is said so."""
    assert [(each.path, each.kind) for each in problems_of(value)] == [(path, kind)]


def test_all_problems_are_reported_at_once() -> None:
    """A document with many wrongs needs one look, not one for each."""
    first = mds_entry(0) | {"samples": -1, "version": 1, "hashes": 3}
    first["raw_data"] = {"basename": "../x"}
    second = json_entry(1) | {"columns": None}
    value = document(first, mds_entry(2), second, [], mds_entry(2)) | {"version": 9}
    assert {(each.path, each.kind) for each in problems_of(value)} == {
        ("$.version", "value"),
        ("$.shards[0].samples", "range"),
        ("$.shards[0].version", "value"),
        ("$.shards[0].hashes", "type"),
        ("$.shards[0].raw_data.basename", "name"),
        ("$.shards[0].raw_data.bytes", "missing"),
        ("$.shards[0].raw_data.hashes", "missing"),
        ("$.shards[2].columns", "type"),
        ("$.shards[3]", "type"),
        ("$.shards[4].raw_data.basename", "duplicate"),
    }


def test_the_error_names_the_document_and_lists_the_problems() -> None:
    """The message can be acted on without a debugger."""
    data = dumped(document(mds_entry() | {"samples": "x"}))
    with pytest.raises(IndexInvalidError) as info:
        parse_index(data, "s3://bucket/train/index.json")
    assert str(info.value).splitlines() == [
        "s3://bucket/train/index.json: 1 problem(s) in the index",
        "  $.shards[0].samples: required an integer, came a text: 'x'",
    ]


def test_the_number_of_kept_problems_is_bounded() -> None:
    """A document that is wrong all over does not fill the memory with complaints."""
    entries = [mds_entry(i) | {"samples": -1} for i in range(1200)]
    problems = problems_of(document(*entries))
    assert len(problems) == 1001
    assert problems[-1].text.startswith("and 200 more")
    assert problems[999].path == "$.shards[999].samples"


@pytest.mark.parametrize(
    ("entries", "path"),
    [
        ([mds_entry(0), mds_entry(1), mds_entry(0)], "$.shards[2].raw_data.basename"),
        (
            [changed(mds_entry(0, zipped=True), "zip_data/basename", "shard.00000.mds")],
            "$.shards[0].zip_data.basename",
        ),
        (
            [json_entry(0), changed(mds_entry(1), "raw_data/basename", "shard.00000.json.meta")],
            "$.shards[1].raw_data.basename",
        ),
    ],
)
def test_two_files_never_share_a_name(entries: list[dict[str, Any]], path: str) -> None:
    """Within a shard, between shards and between roles, a name names one file."""
    assert [(each.path, each.kind) for each in problems_of(document(*entries))] == [
        (path, "duplicate")
    ]


def test_shared_names_are_found_far_apart_and_in_bad_entries() -> None:
    """A name is compared with all others, also with those of entries that are wrong."""
    entries = [mds_entry(i) for i in range(5000)]
    entries[4500] = mds_entry(3) | {"samples": -1}
    found = [(each.path, each.kind) for each in problems_of(document(*entries))]
    assert found == [
        ("$.shards[4500].samples", "range"),
        ("$.shards[4500].raw_data.basename", "duplicate"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('"samples": 3', '"samples": 3, "samples": 3', "$.shards[1].samples"),
        ('"bytes": 1001', '"bytes": 9, "bytes": 1001', "$.shards[1].raw_data.bytes"),
        ('"hashes": {}', '"hashes": {"a": "00", "a": "00"}', "$.shards[1].raw_data.hashes.a"),
        ('"format": "mds"', '"x": 1, "format": "mds", "x": 1', "$.shards[1].x"),
        ('"hashes": []', '"hashes": [], "h\\u0061shes": []', "$.shards[1].hashes"),
    ],
)
def test_a_key_that_comes_twice_is_refused(old: str, new: str, path: str) -> None:
    """Readers disagree on which of two values counts, so neither does."""
    entry = dumped(mds_entry(1)).decode()
    assert old in entry
    entry = entry.replace(old, new, 1) if old != '"hashes": {}' else entry.replace(old, new)
    data = f'{{"shards": [{dumped(mds_entry(0)).decode()}, {entry}], "version": 2}}'.encode()
    assert [(each.path, each.kind) for each in problems_of(data)] == [(path, "duplicate")]


def test_a_json_column_that_comes_twice_is_refused() -> None:
    """Columns are keys, so two of one name are a double key."""
    data = dumped(document(json_entry())).replace(b'{"a": "int"', b'{"b": "int"')
    assert [(each.path, each.kind) for each in problems_of(data)] == [
        ("$.shards[0].columns.b", "duplicate")
    ]


@pytest.mark.parametrize("double", [b'"version": 2', b'"shards": []', b'"note": {"a": 1, "a": 2}'])
def test_a_key_of_the_document_that_comes_twice_is_refused(double: bytes) -> None:
    """Two lists of shards, or two versions, are no document."""
    data = b'{"shards": [], "version": 2, %s}' % double
    problems = problems_of(data)
    assert problems
    assert {each.kind for each in problems} == {"duplicate"}
