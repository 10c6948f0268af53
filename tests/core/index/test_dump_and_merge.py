"""Writing documents, and one document over several data sets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from tests.core.index.documents import (
    GOLDEN_NAMES,
    document,
    documents,
    golden,
    golden_bytes,
    json_entry,
    mds_entry,
    parse,
)

from streaming_core._index import ShardTable, dump_index, dump_table, merge_tables, parse_index
from streaming_core.errors import IndexInvalidError


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_entries_are_dumped_as_the_first_writer_does(name: str) -> None:
    """The same entries, with keys in any order, give the same bytes."""
    entries = [dict(reversed(entry.items())) for entry in golden(name)["shards"]]
    assert dump_index(entries) == golden_bytes(name)


@given(documents())
def test_the_standard_encoder_gives_the_same_bytes(value: dict[str, Any]) -> None:
    """Piece by piece is the same as all at once."""
    extras = {key: item for key, item in value.items() if key not in {"shards", "version"}}
    whole = json.dumps(value, sort_keys=True).encode()
    assert dump_index(value["shards"], extras=extras) == whole


def test_a_merged_document_keeps_the_order_of_keys() -> None:
    """The version comes first, then the shards, and entries are not sorted anew."""
    entries = [{"b": 1, "a": 2}]
    expected = b'{"version": 2, "shards": [{"b": 1, "a": 2}], "x": 1}'
    assert dump_index(entries, merged=True, extras={"x": 1}) == expected


def test_entries_may_come_from_a_generator() -> None:
    """Entries are taken one at a time."""
    assert dump_index(iter([{}, {}])) == b'{"shards": [{}, {}], "version": 2}'


def test_numbers_that_are_no_json_are_refused() -> None:
    """A reader would refuse the document, so the writer does."""
    with pytest.raises(ValueError, match="JSON"):
        dump_index([{"a": float("nan")}])


def test_merging_golden_data_sets_gives_their_entries_below_their_folders() -> None:
    """The merged document is that of the parts with a folder before each name."""
    parts = [(f"p/{name}", parse_index(golden_bytes(name), name)) for name in GOLDEN_NAMES]
    merged = merge_tables(parts)
    expected: list[dict[str, Any]] = []
    for name in GOLDEN_NAMES:
        for entry in golden(name)["shards"]:
            for key in ("raw_data", "zip_data", "raw_meta", "zip_meta"):
                if entry.get(key):
                    entry[key]["basename"] = f"p/{name}/{entry[key]['basename']}"
            expected.append(entry)
    data = json.dumps({"version": 2, "shards": expected}).encode()
    assert dump_table(merged, merged=True) == data
    assert parse(data) == merged


def test_empty_parts_and_shards_are_fine() -> None:
    """A worker that had nothing to write does no harm."""
    empty, some = parse(document()), parse(document(mds_entry(0, 0), mds_entry(1, 2)))
    merged = merge_tables([("0", empty), ("1", some), ("2", empty), ("3", some)])
    assert merged.samples.tolist() == [0, 2, 0, 2]
    assert merge_tables([]) == merge_tables([("0", empty)]) == empty


def test_a_part_may_lie_beside_the_merged_index() -> None:
    """An empty prefix leaves names as they are."""
    table = parse(document(mds_entry()))
    assert merge_tables([("", table)]) == table


@pytest.mark.parametrize("prefixes", [("", ""), ("a", "a"), ("a/b", "a/b")])
def test_parts_that_collide_are_refused(prefixes: tuple[str, str]) -> None:
    """Two files of one name cannot both be there."""
    table: ShardTable = parse(document(mds_entry(0), json_entry(1)))
    with pytest.raises(IndexInvalidError) as info:
        merge_tables([(prefix, table) for prefix in prefixes])
    assert [(each.path, each.kind) for each in info.value.problems] == [
        ("$.shards[2].raw_data.basename", "duplicate"),
        ("$.shards[3].raw_data.basename", "duplicate"),
        ("$.shards[3].raw_meta.basename", "duplicate"),
    ]


def test_a_part_that_reaches_into_another_is_refused() -> None:
    """Names are compared whole, however prefix and name are divided."""
    inner = parse(document(mds_entry(0)))
    with pytest.raises(IndexInvalidError, match="different prefixes"):
        merge_tables([("", inner.with_prefix("a/b")), ("a", inner.with_prefix("b"))])
