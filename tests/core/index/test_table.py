"""The table: columns, shards, samples, whole-table operations."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.index.documents import (
    GOLDEN_NAMES,
    document,
    documents,
    dumped,
    file,
    golden_bytes,
    json_entry,
    mds_entry,
    parse,
)
from tests.profiles import examples

from streaming_core._index import FileInfo, FileRole, ShardTable, dump_index, parse_index
from streaming_core.errors import IndexInvalidError


def sized(*samples: int) -> ShardTable:
    """Return a table whose shards have these numbers of samples."""
    return parse(document(*[mds_entry(i, count) for i, count in enumerate(samples)]))


# --- samples --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), max_size=8), st.data())
def test_samples_are_located_as_by_counting(counts: list[int], data: st.DataObject) -> None:
    """Shard and row of each sample are those that a walk over the shards finds."""
    table = sized(*counts)
    walk = [(shard, row) for shard, count in enumerate(counts) for row in range(count)]
    ids = data.draw(st.lists(st.integers(0, len(walk) - 1), max_size=10) if walk else st.just([]))
    shards, rows = table.locate(ids)
    found = list(zip(shards.tolist(), rows.tolist(), strict=True))
    assert found == [walk[sample] for sample in ids]
    assert table.sample_offsets.tolist() == [sum(counts[:i]) for i in range(len(counts) + 1)]


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint8])
def test_any_integer_type_locates(kind: type[np.integer[Any]]) -> None:
    """Ids of any integer type and shape are taken, the answers have their shape."""
    shards, rows = sized(2, 0, 3).locate(np.array([[0, 1], [2, 4]], kind))
    assert shards.tolist() == [[0, 0], [2, 2]]
    assert rows.tolist() == [[0, 1], [0, 2]]


@pytest.mark.parametrize("bad", [-1, 5, 2**40, 2**63])
def test_ids_outside_are_an_error_that_says_which(bad: int) -> None:
    """The message names the id and how many there are."""
    with pytest.raises(IndexError, match=rf"sample {bad} is out of range: there are 5 .*1 of 2 "):
        sized(2, 3).locate(np.array([0, bad], np.uint64 if bad > 0 else np.int64))


@pytest.mark.parametrize("ids", [[0.0], [True], ["a"], [None]])
def test_ids_that_are_no_integers_are_refused(ids: list[Any]) -> None:
    """A float or a boolean is no sample id."""
    with pytest.raises(TypeError, match="must be integers"):
        sized(2).locate(ids)


def test_no_ids_are_located_nowhere() -> None:
    """An empty batch is fine, whatever type NumPy gives it, even without any sample."""
    assert [part.tolist() for part in sized().locate([])] == [[], []]


def test_more_samples_than_32_bits_count() -> None:
    """Offsets of samples are 64 bits wide."""
    count = 2**29
    entries = [
        mds_entry(i, count) | {"raw_data": file(f"{i}.mds", 4 * count + 8)} for i in range(10)
    ]
    table = parse(document(*entries))
    assert table.num_samples == 10 * count
    assert [part.tolist() for part in table.locate([9 * count])] == [[9], [0]]


# --- columns and shards ---------------------------------------------------------------------------


def test_columns_say_what_the_entries_say() -> None:
    """Sizes are those of the document, -1 where a shard has no such file."""
    table = parse(document(mds_entry(0), json_entry(1, zipped=True), mds_entry(2, zipped=True)))
    assert table.raw_bytes.tolist() == [1000, 100, 1002]
    assert table.zip_bytes.tolist() == [-1, 90, 500]
    assert table.raw_meta_bytes.tolist() == [-1, 100, -1]
    assert table.zip_meta_bytes.tolist() == [-1, 90, -1]
    roles: list[FileRole] = ["raw", "zip", "raw_meta", "zip_meta"]
    assert [table.total_bytes(role) for role in roles] == [2102, 590, 100, 90]
    assert list(table.basenames("zip")) == ["", "shard.00001.json.gz", "shard.00002.mds.zstd"]


def test_a_role_that_no_shard_has_costs_nothing() -> None:
    """Columns of absent files are not stored."""
    table = sized(*[1] * 100)
    assert list(table.files) == ["raw"]
    assert table.zip_bytes.tolist() == [-1] * 100
    assert list(table.basenames("zip")) == [""] * 100
    assert table.total_bytes("zip") == 0
    assert table.nbytes < 100 * 60


def test_hashes_come_back_by_name() -> None:
    """Each file has its own hashes, or none."""
    first = mds_entry(0) | {"raw_data": file("a", 100, md5="00ff", sha1="AB")}
    table = parse(document(first, mds_entry(1)))
    assert table.shard(0).raw == FileInfo("a", 100, {"md5": "00ff", "sha1": "AB"})
    assert table.shard(1).raw.hashes == {}


@pytest.mark.parametrize("index", [-1, 2, 100])
def test_a_shard_outside_is_an_error(index: int) -> None:
    """Shards are counted from 0, not from the end."""
    with pytest.raises(IndexError, match=rf"shard {index} is out of range: there are 2"):
        sized(1, 1).shard(index)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_columns_are_read_only(name: str) -> None:
    """What several threads read, none can change."""
    table = parse_index(golden_bytes(name), name)
    table = pickle.loads(pickle.dumps(table))
    columns = [table.samples, table.sample_offsets, table.schema_ids, table.raw_bytes]
    for column in [*columns, table.zip_bytes, table.zip_meta_bytes]:
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 5


# --- whole tables ---------------------------------------------------------------------------------


@settings(max_examples=examples(80))
@given(documents())
def test_tables_pickle(value: dict[str, Any]) -> None:
    """A copy from another process is equal in all, unknown keys included."""
    table = parse_index(dumped(value), "test")
    copy = pickle.loads(pickle.dumps(table))
    assert copy == table
    assert copy.fingerprint() == table.fingerprint()
    assert list(copy.entries()) == list(table.entries())


def test_pickling_costs_the_columns_not_the_shards() -> None:
    """A table travels to workers as a few arrays."""
    table = parse_index(dump_index(mds_entry(i) for i in range(5000)), "test")
    assert len(pickle.dumps(table)) < 5000 * 60


def test_tables_of_other_documents_differ() -> None:
    """Each column takes part in equality."""
    base = json_entry(0, zipped=True) | {"x": 1}
    table = parse(document(base, y=1))
    others = [
        document(base | {"samples": 4}, y=1),
        document(base | {"size_limit": 9}, y=1),
        document(base | {"raw_meta": file("m", 100)}, y=1),
        document(base | {"zip_meta": file("shard.00000.json.meta.gz", 91)}, y=1),
        document(base | {"zip_data": file("shard.00000.json.gz", 90, md5="00")}, y=1),
        document(base | {"x": 2}, y=1),
        document(base, y=2),
        document(base, json_entry(1), y=1),
    ]
    assert table == parse(document(base, y=1))
    assert not any(table == parse(other) for other in others)
    assert table != "table"


def test_repr_is_short() -> None:
    """A table in a log line is a summary, not a dump."""
    assert repr(sized(200, 34)) == "ShardTable(2 shards, 234 samples, 2.0 KiB, mds)"


@settings(max_examples=examples(80))
@given(st.lists(documents(), max_size=3))
def test_concatenation_gives_the_entries_in_order(values: list[dict[str, Any]]) -> None:
    """The joined table has each part's entries, and schemas once each, in order of use."""
    parts = [document(*value["shards"]) for value in values]
    joined = ShardTable.concatenate([parse_index(dumped(part), "test") for part in parts])
    entries = [entry for part in parts for entry in part["shards"]]
    assert list(joined.entries()) == entries
    seen = list(dict.fromkeys(joined.schema_ids.tolist()))
    assert seen == list(range(len(joined.schemas)))
    assert len(set(joined.schemas)) == len(joined.schemas)


def test_concatenation_keeps_what_parts_agree_on() -> None:
    """An unknown key of the documents is kept unless two of them contradict each other."""
    first, second = parse(document(a=1, b=1)), parse(document(b=2, c=3))
    assert ShardTable.concatenate([first, second]).extras == {"a": 1, "c": 3}


def test_a_prefix_moves_every_file() -> None:
    """All roles get the folder; files that are not there stay away; the rest is as before."""
    table = parse(document(mds_entry(0), json_entry(1, zipped=True)))
    moved = table.with_prefix("part-0/a")
    names = [info.basename for info in moved.shard(1).files().values()]
    assert names[0] == "part-0/a/shard.00001.json"
    assert all(name.startswith("part-0/a/shard.00001.json") for name in names)
    assert moved.entry(0)["raw_data"]["basename"] == "part-0/a/shard.00000.mds"
    assert moved.entry(0)["zip_data"] is None
    assert parse(document(*moved.entries())) == moved
    assert table.with_prefix("") is table


@pytest.mark.parametrize("prefix", ["..", "/a", "a/", "a//b", "a\\b", "C:", "a/" * 505 + "a"])
def test_an_unsafe_prefix_is_refused(prefix: str) -> None:
    """A merged index cannot lead out of its folder either."""
    with pytest.raises(IndexInvalidError) as info:
        sized(1).with_prefix(prefix)
    assert [each.kind for each in info.value.problems] == ["name"]


# --- fingerprint ----------------------------------------------------------------------------------


def test_the_fingerprint_is_stable() -> None:
    """Checkpoints hold it, so it must not change between versions."""
    assert sized(3, 4).fingerprint() == "d8b33e464f2366ca639616e63bf88691"
    assert parse(document(json_entry())).fingerprint() == "d5b547574d9261151142e57a69d57f06"
    assert parse(document()).fingerprint() == "1bbcd0dba8bace5c111a89303b899b42"


def test_golden_data_sets_have_different_fingerprints() -> None:
    """Different data are told apart."""
    prints = {parse_index(golden_bytes(name), name).fingerprint() for name in GOLDEN_NAMES}
    assert len(prints) == len(GOLDEN_NAMES)


def test_the_fingerprint_ignores_what_is_not_data() -> None:
    """Order of keys, compressed files, hashes, size limit and unknown keys do not count."""
    base = json_entry(0)
    table = parse(document(base))
    same = [
        document(json_entry(0, zipped=True)),
        document(base | {"size_limit": "1mb", "hashes": ["md5"], "x": 1}, y=2),
        document(base | {"raw_data": file("shard.00000.json", 100, md5="00")}),
    ]
    assert {parse(value).fingerprint() for value in same} == {table.fingerprint()}
    turned = json.dumps(document(base)).encode()
    assert parse(turned).schemas != table.schemas
    assert parse(turned).fingerprint() == table.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 4},
        {"raw_data": file("shard.00000.json", 101)},
        {"raw_data": file("other.json", 100)},
        {"raw_meta": file("shard.00000.json.meta", 101)},
        {"raw_meta": file("other.meta", 100)},
        {"columns": {"a": "int", "c": "str"}},
        {"columns": {"a": "str", "b": "str"}},
        {"newline": "\r\n"},
    ],
)
def test_the_fingerprint_sees_every_change_of_the_data(change: dict[str, Any]) -> None:
    """Names, sizes, samples and columns count."""
    base = document(json_entry(0), json_entry(1))
    other = document(json_entry(0) | change, json_entry(1))
    assert parse(other).fingerprint() != parse(base).fingerprint()


def test_the_fingerprint_sees_the_order_of_shards() -> None:
    """The same shards in another order give other sample ids."""
    first, second = mds_entry(0), mds_entry(1)
    one, two = parse(document(first, second)), parse(document(second, first))
    assert one.fingerprint() != two.fingerprint()


# --- cost -----------------------------------------------------------------------------------------

SHARDS = 20_000


@pytest.mark.parametrize("zipped", [False, True])
def test_a_shard_costs_few_bytes(zipped: bool) -> None:
    """The table stays small however it is compressed."""
    data = dump_index(mds_entry(i, zipped=zipped) for i in range(SHARDS))
    assert parse_index(data, "test").nbytes < SHARDS * (100 if zipped else 60)


def test_parsing_takes_little_more_memory_than_the_table() -> None:
    """At no time does the whole document exist as Python objects."""
    data = dump_index(mds_entry(i, zipped=True) for i in range(SHARDS))
    tracemalloc.start()
    try:
        table = parse_index(data, "test")
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.num_shards == SHARDS
    assert kept < SHARDS * 150
    assert peak < SHARDS * 500
