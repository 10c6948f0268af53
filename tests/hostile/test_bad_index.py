"""Indexes that point elsewhere: refused before anything is read, each way to leave a folder."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.format.mds.making import make_shard

from streaming_core._index import FileInfo, load_index, parse_index
from streaming_core._read import fetch_shard
from streaming_core._store import LocalStore, MemoryStore
from streaming_core.errors import (
    DecompressionError,
    IndexInvalidError,
    ObjectNotFoundError,
    SchemaError,
    ShardCorruptError,
    StoreError,
    UnsafeKeyError,
)

if TYPE_CHECKING:
    from pathlib import Path

INFO, RAW = make_shard({"a": "int"}, [{"a": 5}])

NAMES = {
    "the parent": "../secret.mds",
    "the parent from below": "a/../../secret.mds",
    "a part that goes nowhere": "a/./secret.mds",
    "absolute": "/etc/passwd",
    "a doubled slash": "//host/share",
    "a backslash": "..\\secret.mds",
    "a drive": "C:/secret.mds",
    "a drive without slash": "c:secret.mds",
    "a NUL": "secret.mds\0.png",
    "a line feed": "secret\n.mds",
    "a delete": "secret\x7f.mds",
    "an empty part": "a//secret.mds",
    "a slash at the end": "secret.mds/",
    "nothing": "",
    "a dot": ".",
    "two dots": "..",
    "a long part": "x" * 256,
    "a long name": "/".join(["x" * 100] * 11),
}
names = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def entry(**changes: Any) -> dict[str, Any]:
    """Return the entry of the shard, changed."""
    raw = {"basename": INFO.raw.basename, "bytes": len(RAW), "hashes": {}}
    document = {**INFO.schema.document(), "samples": 1, "raw_data": raw, "zip_data": None}
    return {**document, **changes}


def indexed(*entries: dict[str, Any]) -> bytes:
    """Return the bytes of an index."""
    return json.dumps({"shards": entries, "version": 2}).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data set's folder, with something beside it that nobody may read."""
    (tmp_path / "secret.mds").write_bytes(RAW)
    inside = tmp_path / "data"
    inside.mkdir()
    (inside / INFO.raw.basename).write_bytes(RAW)
    return inside


def test_the_index_that_is_made_bad_is_good(folder: Path) -> None:
    """Without the change, the sample comes back."""
    table = parse_index(indexed(entry()), "test")
    assert list(fetch_shard(LocalStore(folder), table.shard(0))) == [{"a": 5}]


@names
@pytest.mark.parametrize("role", ["raw_data", "zip_data"])
def test_names_that_leave_the_folder_make_an_index_invalid(name: str, role: str) -> None:
    """The whole index is refused, and the problem says where the name is."""
    raw = {"basename": "shard.00008.mds", "bytes": len(RAW), "hashes": {}}
    changes = {"raw_data": raw, "compression": "zstd" if role == "zip_data" else None}
    changes[role] = {"basename": name, "bytes": len(RAW), "hashes": {}}
    with pytest.raises(IndexInvalidError) as caught:
        parse_index(indexed(entry(), entry(**changes)), "s3://bucket/index.json")
    (problem,) = caught.value.problems
    assert problem.path == f"$.shards[1].{role}.basename"
    assert str(caught.value).startswith("s3://bucket/index.json: ")


@names
def test_a_bad_name_is_refused_before_any_shard_is_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad name in the last entry is enough: nothing but the index was read."""
    bad = entry(raw_data={"basename": name, "bytes": len(RAW), "hashes": {}})
    MemoryStore("hostile").put("index.json", [indexed(entry(), bad)])
    asked: list[str] = []
    for method in ("get", "get_ranges", "head", "list"):
        original = getattr(MemoryStore, method)

        def logged(
            self: MemoryStore, key: str, *args: Any, _of: Any = original, **options: Any
        ) -> Any:
            asked.append(key)
            return _of(self, key, *args, **options)

        monkeypatch.setattr(MemoryStore, method, logged)
    with pytest.raises(IndexInvalidError):
        load_index("memory://hostile")
    assert set(asked) == {"index.json"}


def test_a_name_that_is_no_unicode_is_refused() -> None:
    """Half a character cannot stand in a file's name."""
    file = {"basename": "a\ud800", "bytes": len(RAW), "hashes": {}}
    with pytest.raises(IndexInvalidError):
        parse_index(indexed(entry(raw_data=file)), "test")
    with pytest.raises(UnsafeKeyError):
        fetch_shard(MemoryStore(), replace(INFO, raw=FileInfo("a\ud800", len(RAW), {})))


@names
def test_stores_refuse_such_names_themselves(folder: Path, name: str) -> None:
    """Whoever goes around the index meets the same refusal, and reads nothing."""
    info = replace(INFO, raw=FileInfo(name, len(RAW), {}))
    with pytest.raises(UnsafeKeyError):
        fetch_shard(LocalStore(folder), info)


@pytest.mark.parametrize("how", ["file", "folder", "parent"])
def test_links_that_lead_out_of_the_folder_are_not_followed(folder: Path, how: str) -> None:
    """A safe name behind which a link points elsewhere is no way out."""
    targets = {"file": "../secret.mds", "folder": str(folder.parent), "parent": ".."}
    (folder / "link.mds").symlink_to(targets[how])
    name = "link.mds" if how == "file" else "link.mds/secret.mds"
    with pytest.raises(StoreError) as caught:
        fetch_shard(LocalStore(folder), replace(INFO, raw=FileInfo(name, len(RAW), {})))
    assert isinstance(caught.value, UnsafeKeyError)


# --- what the index promises and the files do not keep --------------------------------------------


def fetched(document: dict[str, Any], files: dict[str, bytes]) -> list[dict[str, Any]]:
    """Read the only shard of an index from a store of these files."""
    store = MemoryStore()
    for name, data in files.items():
        store.put(name, [data])
    return list(fetch_shard(store, parse_index(indexed(document), "test").shard(0)))


NAME = INFO.raw.basename


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"samples": 0}, ShardCorruptError, "the shard counts 1 samples, the index 0"),
        ({"samples": 2}, ShardCorruptError, "the shard counts 1 samples, the index 2"),
        ({"column_names": ["b"]}, ShardCorruptError, "column_names"),
        ({"column_encodings": ["int64"]}, ShardCorruptError, "column_encodings"),
        ({"column_sizes": [4]}, ShardCorruptError, "column sizes"),
        ({"column_sizes": [None]}, ShardCorruptError, "column sizes"),
        ({"column_encodings": ["what"]}, SchemaError, "column 'a': unknown encoding 'what'"),
        (
            {"column_encodings": ["ndarray:int64:" + "9" * 400], "column_sizes": [8]},
            ShardCorruptError,
            "column sizes",
        ),
        (
            {"raw_data": {"basename": NAME, "bytes": len(RAW) + 1, "hashes": {}}},
            ShardCorruptError,
            "the index says",
        ),
        (
            {"raw_data": {"basename": NAME, "bytes": 2**32 - 1, "hashes": {}}},
            ShardCorruptError,
            "the index says 4294967295",
        ),
        (
            {"raw_data": {"basename": "gone.mds", "bytes": len(RAW), "hashes": {}}},
            ObjectNotFoundError,
            "gone.mds",
        ),
        (
            {"raw_data": {"basename": NAME, "bytes": len(RAW), "hashes": {"md5": "00" * 16}}},
            ShardCorruptError,
            "the md5 in .* is .*, the index says 0000",
        ),
        (
            {
                "compression": "zstd",
                "zip_data": {"basename": "packed", "bytes": len(RAW), "hashes": {}},
            },
            DecompressionError,
            "packed: the zstd data",
        ),
        (
            {
                "compression": "zip",
                "zip_data": {"basename": "packed", "bytes": len(RAW), "hashes": {}},
            },
            SchemaError,
            "no compression 'zip'",
        ),
    ],
)
def test_an_index_that_differs_from_its_shard_is_refused(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Counts, columns, sizes, hashes and compression must fit the file."""
    with pytest.raises(error, match=text):
        fetched(entry(**changes), {NAME: RAW, "packed": RAW})
