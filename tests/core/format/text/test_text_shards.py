"""What opening text shards promises, for good files and for corrupt ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core._format._text import (
    JSONColumns,
    TextShard,
    XSVColumns,
    open_text_shard,
    shard_meta,
    text_columns,
)
from streaming_core._index import FileInfo, ShardInfo, ShardSchema
from streaming_core.errors import SchemaError, ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = {"s": "str", "a": "int"}
ROWS = [{"s": f"text {n}", "a": n} for n in range(5)]


def described(kind: JSONColumns | XSVColumns, data: bytes, meta: bytes, samples: int) -> ShardInfo:
    """Return what an index would say of a shard of these files."""
    schema = ShardSchema(
        "json" if isinstance(kind, JSONColumns) else kind.format,
        tuple(kind.columns),
        tuple(kind.columns.values()),
        newline=kind.newline,
        separator=kind.separator if isinstance(kind, XSVColumns) and kind.format == "xsv" else None,
    )
    raw = FileInfo(f"part-1/shard.00003.{kind.format}", len(data), {})
    raw_meta = FileInfo(f"{raw.basename}.meta", len(meta), {})
    return ShardInfo(3, samples, schema, raw, raw_meta=raw_meta)


def written(
    kind: JSONColumns | XSVColumns, rows: Sequence[dict[str, Any]]
) -> tuple[ShardInfo, bytes, bytes]:
    """Return the files of a shard of `rows`, and what the index says of it."""
    records = [kind.encode(row) for row in rows]
    config = kind.config(compression=None, hashes=(), size_limit=None)
    data = kind.header() + b"".join(records)
    meta = shard_meta([len(r) for r in records], start=len(kind.header()), config=config)
    return described(kind, data, meta, len(rows)), data, meta


KINDS: list[JSONColumns | XSVColumns] = [
    JSONColumns(COLUMNS),
    JSONColumns(COLUMNS, newline="\r\n"),
    XSVColumns(COLUMNS, format="csv"),
    XSVColumns(COLUMNS, format="tsv", newline="\u2028"),
    XSVColumns(COLUMNS, separator=" | "),
]
per_kind = pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: f"{kind.format}-{kind.newline!r}"
)


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_shards_of_the_reference_read_back(golden: Path, name: str) -> None:
    """Data sets that mosaicml-streaming wrote give its values, in order and one by one."""
    folder = golden / name
    values = json.loads((folder / "values.json").read_bytes())["samples"]
    rows: list[dict[str, Any]] = []
    for number, entry in enumerate(json.loads((folder / "index.json").read_bytes())["shards"]):
        columns = entry.get("columns") or dict(
            zip(entry["column_names"], entry["column_encodings"], strict=True)
        )
        schema = ShardSchema(
            entry["format"], tuple(columns), tuple(columns.values()), newline=entry["newline"]
        )
        raw, meta = (FileInfo(**entry[key]) for key in ("raw_data", "raw_meta"))
        info = ShardInfo(number, entry["samples"], schema, raw, raw_meta=meta)
        files = [(folder / file.basename).read_bytes() for file in (raw, meta)]
        shard = open_text_shard(info, *files)
        assert [shard.row(at) for at in range(len(shard))] == list(shard)
        rows += shard
    assert rows == values
    assert [list(map(type, row.values())) for row in rows[:1]] == [[int, float, str]]


@per_kind
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"a": st.integers(), "s": st.text(st.characters(codec="ascii", categories=["L", "N"]))}
        ),
        max_size=8,
    )
)
def test_what_was_written_reads_back(
    kind: JSONColumns | XSVColumns, rows: list[dict[str, Any]]
) -> None:
    """All rows come back, by number, from the end, by slice and in order; none is valid too."""
    shard = open_text_shard(*written(kind, rows))
    assert isinstance(shard, TextShard)
    assert len(shard) == len(rows)
    assert list(shard) == rows
    assert shard[1:4] == rows[1:4]
    assert [shard[-n] for n in range(1, len(rows) + 1)] == rows[::-1]


@per_kind
def test_rows_that_are_not_there_are_no_samples(kind: JSONColumns | XSVColumns) -> None:
    """Numbers beyond the shard raise IndexError, as sequences do."""
    shard = open_text_shard(*written(kind, ROWS))
    for row in (5, -1, 1 << 40):
        with pytest.raises(IndexError, match=r"shard\.00003.*no sample"):
            shard.row(row)
    with pytest.raises(IndexError):
        shard[-6]


@per_kind
def test_views_are_read_in_place(kind: JSONColumns | XSVColumns) -> None:
    """A mapped file can be given as it is."""
    info, data, meta = written(kind, ROWS)
    assert list(open_text_shard(info, memoryview(data), memoryview(meta))) == ROWS


def test_the_columns_of_a_schema_are_those_that_wrote_it() -> None:
    """What an index says is enough to write the same lines again."""
    for kind in KINDS:
        info, data, _ = written(kind, ROWS)
        again = text_columns(info.schema)
        assert again.header() + b"".join(map(again.encode, ROWS)) == data
    with pytest.raises(SchemaError, match="no text format"):
        text_columns(ShardSchema("mds", ("a",), ("int",), column_sizes=(8,)))


def words(meta: bytes, changes: dict[int, int]) -> bytes:
    """Return `meta` with some of its 32-bit words changed, counted from the count at 0."""
    changed = bytearray(meta)
    for at, value in changes.items():
        changed[4 * at : 4 * at + 4] = value.to_bytes(4, "little")
    return bytes(changed)


@per_kind
def test_corrupt_meta_files_are_refused_with_the_place(kind: JSONColumns | XSVColumns) -> None:
    """Each way in which counts and offsets can lie is found before a row is decoded."""
    info, data, meta = written(kind, ROWS)
    start = len(kind.header())
    cases = [
        (b"", 0, "at least 8 bytes"),
        (meta[:7], 0, "at least 8 bytes"),
        (words(meta, {0: 6}), 0, "counts 6 samples, the index 5"),
        (words(meta, {0: 0xFFFFFFFF}), 0, "counts 4294967295 samples, the index 5"),
        (meta[:24], 0, "5 samples need 28 bytes"),
        (words(meta, {1: start + 1}), 4, f"records start at byte {start + 1}"),
        (words(meta, {3: 0}), 12, "sample 1 ends at byte 0, before its start"),
        (words(meta, {3: 0xFFFFFFFF}), 16, "sample 2 ends at byte"),
        (words(meta, {6: len(data) - 1}), 24, f"ends at byte {len(data) - 1} of the data"),
        (words(meta, {6: 0xFFFFFFFF}), 24, "ends at byte 4294967295 of the data"),
        (meta[:-1], 28, "not JSON"),
        (meta[:28] + b"[" * 30_000, 28, "not JSON"),
        (meta[:28] + b"[" * 100_000, 28, "100000 bytes of settings"),
        (meta[:28] + b"[]", 28, "no object"),
        (meta[:28] + b"\xff", 28, "not JSON"),
        (meta.replace(b'"s"', b'"t"'), 28, "in the index"),
        (meta.replace(b'"int"', b'"str"'), 28, "in the index"),
    ]
    for bad, byte, text in cases:
        with pytest.raises(ShardCorruptError) as caught:
            open_text_shard(info, data, bad)
        where = f"part-1/shard.00003.{kind.format}.meta, byte {byte}: "
        assert str(caught.value).startswith(where)
        assert text in str(caught.value)


@per_kind
def test_a_count_that_the_index_shares_allocates_nothing(kind: JSONColumns | XSVColumns) -> None:
    """Index and meta file may lie together; the file's own size still stops them."""
    _, data, meta = written(kind, ROWS)
    most = 0xFFFFFFFF
    info = described(kind, data, meta, most)
    with pytest.raises(ShardCorruptError, match="need 17179869188 bytes of offsets"):
        open_text_shard(info, data, words(meta, {0: most}))


@per_kind
def test_data_of_another_length_are_refused(kind: JSONColumns | XSVColumns) -> None:
    """A cut or grown data file is found from its size."""
    info, data, meta = written(kind, ROWS)
    for bad in (data[:-1], data + b"x"):
        with pytest.raises(ShardCorruptError, match=rf"\.meta, byte 24: .* end at {len(bad)}"):
            open_text_shard(info, bad, meta)
    with pytest.raises(ShardCorruptError):
        open_text_shard(info, b"", meta)


def test_another_header_line_is_refused() -> None:
    """A file of other columns under this name is not read by position."""
    info, data, meta = written(XSVColumns(COLUMNS, format="csv"), ROWS)
    with pytest.raises(ShardCorruptError, match=r"\.csv, byte 0: the header line is b'b,s"):
        open_text_shard(info, b"b" + data[1:], meta)


def outcome(info: ShardInfo, data: bytes, meta: bytes) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows that are read, or none and the message of the refusal."""
    try:
        return list(open_text_shard(info, data, meta)), None
    except ShardCorruptError as error:
        return [], str(error)


@per_kind
def test_every_changed_byte_of_the_data_gives_rows_or_one_error(
    kind: JSONColumns | XSVColumns,
) -> None:
    """Damage is a row of the declared types, or an error that names shard, byte and sample."""
    info, data, meta = written(kind, ROWS)
    start = len(kind.header())
    refused = 0
    for at in range(start, len(data)):
        for flip in (0x01, 0x20, 0x80):
            changed = bytearray(data)
            changed[at] ^= flip
            rows, message = outcome(info, bytes(changed), meta)
            assert all(type(row["a"]) is int and type(row["s"]) is str for row in rows)
            if message is not None:
                refused += 1
                assert message.startswith(f"part-1/shard.00003.{kind.format}, byte ")
                assert ": sample " in message
    assert refused > len(data) // 2
