"""Index documents to test with: golden ones, small ones, random ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from tests.golden import GOLDEN

from streaming_core._index import ShardTable, parse_index
from streaming_core._index._parse import MAX_INDEX_BYTES, _parse
from streaming_core.errors import IndexInvalidError, Problem

__all__ = [
    "GOLDEN_NAMES",
    "document",
    "documents",
    "dumped",
    "file",
    "golden",
    "golden_bytes",
    "json_entry",
    "mds_entry",
    "parse",
    "problems_of",
    "xsv_entry",
]

GOLDEN_NAMES = sorted(path.parent.name for path in GOLDEN.glob("*/index.json"))


def golden_bytes(name: str) -> bytes:
    """Return the bytes of a golden index."""
    return (GOLDEN / name / "index.json").read_bytes()


def golden(name: str) -> dict[str, Any]:
    """Return a golden index as a fresh document."""
    loaded: dict[str, Any] = json.loads(golden_bytes(name))
    return loaded


def file(basename: str, size: int, **hashes: str) -> dict[str, Any]:
    """Return a file's object."""
    return {"basename": basename, "bytes": size, "hashes": hashes}


def mds_entry(index: int = 0, samples: int = 3, *, zipped: bool = False) -> dict[str, Any]:
    """Return the entry of an MDS shard."""
    name = f"shard.{index:05d}.mds"
    return {
        "column_encodings": ["int", "str"],
        "column_names": ["id", "text"],
        "column_sizes": [8, None],
        "compression": "zstd:7" if zipped else None,
        "format": "mds",
        "hashes": [],
        "raw_data": file(name, 1000 + index),
        "samples": samples,
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": file(f"{name}.zstd", 500) if zipped else None,
    }


def json_entry(index: int = 0, samples: int = 3, *, zipped: bool = False) -> dict[str, Any]:
    """Return the entry of a JSON shard."""
    name = f"shard.{index:05d}.json"
    return {
        "columns": {"b": "str", "a": "int"},
        "compression": "gz" if zipped else None,
        "format": "json",
        "hashes": [],
        "newline": "\n",
        "raw_data": file(name, 100),
        "raw_meta": file(f"{name}.meta", 100),
        "samples": samples,
        "size_limit": None,
        "version": 2,
        "zip_data": file(f"{name}.gz", 90) if zipped else None,
        "zip_meta": file(f"{name}.meta.gz", 90) if zipped else None,
    }


def xsv_entry(index: int = 0, kind: str = "xsv") -> dict[str, Any]:
    """Return the entry of a shard of separated values."""
    entry = json_entry(index) | {"format": kind, "column_names": ["a"], "column_encodings": ["int"]}
    del entry["columns"]
    return entry | {"separator": "|"} if kind == "xsv" else entry


def document(*entries: Any, **more: Any) -> dict[str, Any]:
    """Return a whole document."""
    return {"shards": list(entries), "version": 2, **more}


def dumped(value: Any) -> bytes:
    """Return `value` as the bytes of a document."""
    return json.dumps(value, sort_keys=True).encode()


def parse(value: Any) -> ShardTable:
    """Parse a document given as bytes or value, by the fast way and by the judge, which agree."""
    data = value if isinstance(value, bytes) else dumped(value)
    fast = _outcome(data, fast=True)
    slow = _outcome(data, fast=False)
    if isinstance(fast, IndexInvalidError) and isinstance(slow, IndexInvalidError):
        assert set(fast.problems) == set(slow.problems) != set()
        raise fast
    assert fast == slow
    assert isinstance(fast, ShardTable)
    return fast


def _outcome(data: bytes, *, fast: bool) -> ShardTable | IndexInvalidError:
    try:
        if fast:
            return parse_index(data, "test")
        return _parse(data, "test", max_bytes=MAX_INDEX_BYTES, fast=False)
    except IndexInvalidError as error:
        return error


def problems_of(value: Any) -> tuple[Problem, ...]:
    """Return what is wrong with a document, nothing if it parses."""
    try:
        parse(value)
    except IndexInvalidError as error:
        return error.problems
    return ()


# --- random documents -----------------------------------------------------------------------------

_hex = st.binary(min_size=1, max_size=16).map(bytes.hex)
_hashes = st.dictionaries(st.sampled_from(["md5", "sha1", "xxh64", "é"]), _hex, max_size=2)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_extras = st.dictionaries(st.text(max_size=6).map("x".__add__), _values, max_size=2)
_text = st.text(min_size=1, max_size=6)


@st.composite
def _entries(draw: st.DrawFn, index: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(["mds", "json", "xsv", "csv", "tsv"]))
    samples = draw(st.integers(0, 5))
    folder = draw(st.sampled_from(["", "part-0/", "ü/ß x/"]))
    name = f"{folder}shard.{index:05d}.{kind}"
    compression = draw(st.sampled_from([None, "zstd:7", "br", "own-one:-3"]))
    names = sorted(draw(st.sets(st.text(max_size=6), max_size=4)))
    encodings = [draw(_text) for _ in names]
    entry: dict[str, Any] = {
        "compression": compression,
        "format": kind,
        "hashes": draw(st.lists(_text, max_size=2)),
        "samples": samples,
        "size_limit": draw(st.none() | st.integers(0, 2**63 - 1) | st.just("64mb")),
        "version": 2,
    }
    roles = ["data"] if kind == "mds" else ["data", "meta"]
    for role in roles:
        base = name if role == "data" else f"{name}.meta"
        size = draw(st.integers(8 + 4 * samples, 2**32 - 1))
        entry[f"raw_{role}"] = file(base, size, **draw(_hashes)) | draw(_extras)
        packed = file(f"{base}.z", draw(st.integers(0, 2**63 - 1)), **draw(_hashes))
        entry[f"zip_{role}"] = packed if compression else None
    if kind == "json":
        entry["columns"] = dict(zip(names, encodings, strict=True))
    else:
        entry |= {"column_names": names, "column_encodings": encodings}
    if kind == "mds":
        sizes = st.none() | st.integers(1, 2**32 - 1)
        entry["column_sizes"] = [draw(sizes) for _ in names]
    else:
        entry["newline"] = draw(_text)
    if kind == "xsv":
        entry["separator"] = draw(_text)
    return entry | draw(_extras)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw valid documents with all that is allowed, unknown keys included."""
    count = draw(st.integers(0, 4))
    return document(*[draw(_entries(index)) for index in range(count)]) | draw(_extras)
