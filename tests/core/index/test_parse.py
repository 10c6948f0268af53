"""What is accepted: documents of the format's first writer, and all that is like them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from tests.core.index.documents import (
    GOLDEN_NAMES,
    document,
    documents,
    dumped,
    golden,
    golden_bytes,
    json_entry,
    mds_entry,
    parse,
    problems_of,
    xsv_entry,
)
from tests.profiles import examples

from streaming_core._index import ShardSchema, dump_index, dump_table, parse_index


def test_there_are_golden_documents() -> None:
    """The golden documents are where the tests look for them."""
    assert len(GOLDEN_NAMES) >= 14


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_documents_come_back_byte_for_byte(name: str) -> None:
    """What the first writer wrote is written again from the table, to the byte."""
    assert dump_table(parse(golden_bytes(name))) == golden_bytes(name)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_entries_come_back_equal(name: str) -> None:
    """Every entry is the document's own entry."""
    table = parse_index(golden_bytes(name), name)
    assert list(table.entries()) == golden(name)["shards"]
    assert table.num_samples == sum(entry["samples"] for entry in golden(name)["shards"])


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_golden_data_set_has_one_schema(name: str) -> None:
    """Shards that one writer wrote share their schema."""
    table = parse_index(golden_bytes(name), name)
    assert len(table.schemas) == 1
    assert table.schema_ids.tolist() == [0] * table.num_shards


@given(documents())
def test_any_valid_document_comes_back_byte_for_byte(value: dict[str, Any]) -> None:
    """Unknown keys, odd texts and all formats survive."""
    assert dump_table(parse(value)) == dumped(value)


@settings(max_examples=examples(80))
@given(documents())
def test_spelling_does_not_matter(value: dict[str, Any]) -> None:
    """Order of keys, white space and escapes of a document leave no trace in the table."""

    def turned(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: turned(item[key]) for key in sorted(item, reverse=True)}
        return list(map(turned, item)) if isinstance(item, list) else item

    spelt = json.dumps(turned(value), ensure_ascii=False, indent=3).encode()
    table = parse(value)
    other = parse(spelt)
    if any("columns" in entry for entry in value["shards"]):
        assert other.fingerprint() == table.fingerprint()  # JSON columns keep their order
    else:
        assert other == table


def test_no_shards_are_an_empty_table() -> None:
    """A data set without any shard is valid and empty."""
    table = parse(document())
    assert (table.num_shards, table.num_samples, table.schemas) == (0, 0, ())
    assert dump_table(table) == b'{"shards": [], "version": 2}'


def test_an_empty_shard_is_valid() -> None:
    """The first writer puts an empty shard before a sample that alone exceeds the limit."""
    table = parse(document(mds_entry(0, 0), mds_entry(1, 4)))
    assert table.samples.tolist() == [0, 4]


@pytest.mark.parametrize("limit", ["64mb", "1.5gb", "100", 0, None, 2**40])
def test_a_size_limit_stays_as_it_is_written(limit: Any) -> None:
    """Texts, zero and null are kept as they come."""
    table = parse(document(mds_entry() | {"size_limit": limit}))
    assert table.schemas[0].size_limit == limit
    assert table.entry(0)["size_limit"] == limit


def test_unknown_keys_are_kept_where_they_are() -> None:
    """Keys of the document, of an entry and of a file come back in their place."""
    first = mds_entry(0) | {"future": {"a": [1, None]}, "newline": "\n", "raw_meta": None}
    first["raw_data"]["crc"] = "00"
    value = document(first, mds_entry(1), note="x")
    table = parse(value)
    assert table.extras == {"note": "x"}
    assert sorted(table.shard_extras) == [0]
    assert table.shard(0).raw_meta is None
    assert dump_table(table) == dumped(value)


def test_changing_an_entry_does_not_change_the_table() -> None:
    """Entries are fresh, down to unknown values."""
    table = parse(document(mds_entry() | {"future": {"a": [1]}}))
    entry = table.entry(0)
    entry["future"]["a"].append(2)
    entry["column_names"].append("x")
    entry["raw_data"]["hashes"]["md5"] = "00"
    assert table.entry(0) == mds_entry() | {"future": {"a": [1]}}


def test_unknown_encodings_are_left_to_the_format() -> None:
    """Users may register encodings of their own, so a name is no problem of the index."""
    entry = mds_entry() | {"column_encodings": ["mine", "ndarray:float32:3,4"]}
    assert parse(document(entry)).schemas[0].column_encodings == ("mine", "ndarray:float32:3,4")


def test_each_format_has_its_schema() -> None:
    """Formats mix in one document, and each keeps what only it has."""
    entries = [mds_entry(0), json_entry(1), xsv_entry(2), xsv_entry(3, "csv"), xsv_entry(4, "tsv")]
    table = parse(document(*entries, json_entry(5)))
    assert table.schema_ids.tolist() == [0, 1, 2, 3, 4, 1]
    assert table.schemas[1] == ShardSchema("json", ("a", "b"), ("int", "str"), newline="\n")
    assert (table.schemas[2].separator, table.schemas[3].separator) == ("|", None)
    assert [schema.has_meta for schema in table.schemas] == [False, True, True, True, True]


def test_json_columns_keep_their_order() -> None:
    """The order of the document's `columns` is the schema's."""
    data = json.dumps(document(json_entry())).encode()
    assert parse(data).schemas[0].column_names == ("b", "a")


def test_compressed_shards_have_both_files() -> None:
    """With compression each file is described plain and compressed."""
    table = parse(document(mds_entry(zipped=True), json_entry(1, zipped=True)))
    first, second = table.shard(0), table.shard(1)
    assert list(first.files()) == ["raw", "zip"]
    assert list(second.files()) == ["raw", "zip", "raw_meta", "zip_meta"]
    assert first.zip is not None
    assert (first.zip.basename, first.zip.bytes) == ("shard.00000.mds.zstd", 500)


def test_schemas_are_numbered_by_first_use_whichever_way_an_entry_took() -> None:
    """An entry that the fast way cannot read does not get its schema's number late."""
    odd = json_entry(0) | {"future": 1}
    table = parse(document(odd, mds_entry(1), json_entry(2)))
    assert [schema.format for schema in table.schemas] == ["json", "mds"]
    assert table.schema_ids.tolist() == [0, 1, 0]


def test_many_chunks_make_one_table() -> None:
    """Entries are checked some thousands at a time, which does not show."""
    entries = [mds_entry(i, i % 5) for i in range(9001)]
    entries[5000] |= {"future": True}
    entries[8999] = json_entry(8999)
    table = parse_index(dump_index(entries), "test")
    assert list(table.entries()) == entries
    assert table.shard(8999).schema.format == "json"
    assert table.shard_extras == {5000: {"future": True}}


@pytest.mark.parametrize(
    "name", ["shard.00000.mds", "a/b/c.mds", "ü.mds", "a b", "_x", "-x", ".hidden", "x" * 255]
)
def test_safe_names_are_accepted(name: str) -> None:
    """Whatever stays below the folder may be a name."""
    entry = mds_entry()
    entry["raw_data"]["basename"] = name
    assert parse(document(entry)).shard(0).raw.basename == name


def test_escaped_quotes_are_no_keys() -> None:
    """Quotes and backslashes inside of texts do not disturb the search for double keys."""
    texts = ['"', '\\"', "\\\\", 'a"b"c', "\\"]
    entry = mds_entry() | {
        "column_names": sorted(texts),
        "column_encodings": texts,
        "column_sizes": [None] * 5,
    }
    assert problems_of(document(entry, mds_entry(1), note='"\\"')) == ()
