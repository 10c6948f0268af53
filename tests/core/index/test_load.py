"""Loading an index, and the help for those who look in the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.index.documents import golden_bytes
from tests.golden import GOLDEN

from streaming_core._index import _load, load_index, parse_index
from streaming_core._store import MemoryStore, ObjectInfo
from streaming_core.errors import IndexInvalidError, IndexMissingError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INDEX = golden_bytes("ids_one")


def place(folder: Path, *names: str) -> str:
    """Write files of these names below `folder` and return it."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(INDEX)
    return str(folder)


def advice(place_to_load: str | Path) -> str:
    """Return what the error says when there is no index."""
    with pytest.raises(IndexMissingError) as info:
        load_index(place_to_load)
    assert isinstance(info.value, FileNotFoundError)
    return str(info.value)


def test_a_golden_folder_loads_however_it_is_named() -> None:
    """Path, text, trailing slash, URL and the index file itself give the same table."""
    folder = GOLDEN / "mds_zstd"
    table = parse_index(golden_bytes("mds_zstd"), "test")
    assert load_index(folder) == table
    assert load_index(str(folder)) == table
    assert load_index(f"{folder}/") == table
    assert load_index(folder.as_uri()) == table
    assert load_index(folder / "index.json") == table
    assert load_index(f"{folder.as_uri()}/index.json") == table


def test_a_relative_name_of_the_index_alone_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of the folder one stands in needs no folder."""
    place(tmp_path, "index.json")
    monkeypatch.chdir(tmp_path)
    assert load_index("index.json").num_shards == load_index(".").num_shards == 1


def test_an_index_under_another_name_loads(tmp_path: Path) -> None:
    """Any name in .json is taken for the index file."""
    assert load_index(place(tmp_path, "old.json") + "/old.json").num_shards == 1


def test_an_invalid_index_is_named_in_the_error(tmp_path: Path) -> None:
    """The error says which document is wrong."""
    (tmp_path / "index.json").write_bytes(b"<html>")
    with pytest.raises(IndexInvalidError, match=r"file://.*/index\.json: 1 problem"):
        load_index(tmp_path)


def test_a_split_is_suggested(tmp_path: Path) -> None:
    """One who names the data set in place of its split learns of the splits."""
    text = advice(place(tmp_path, "train/index.json", "val/index.json", "train/shard.00000.mds"))
    assert "did you mean" in text
    assert "'train', 'val'" in text


def test_a_long_list_of_splits_is_cut(tmp_path: Path) -> None:
    """A thousand parts are not a thousand lines."""
    text = advice(place(tmp_path, *[f"{i:03}/index.json" for i in range(50)]))
    assert "'007', …" in text
    assert "'008'" not in text


def test_an_unfinished_conversion_is_recognised(tmp_path: Path) -> None:
    """The journal shows that a writer has not finished, and how to go on."""
    text = advice(place(tmp_path, ".writing/config.json", "shard.00000.mds"))
    assert "an unfinished conversion is here" in text
    assert "resume=True" in text


def test_shards_without_index_lead_to_the_repair(tmp_path: Path) -> None:
    """Shards alone can be given a new index."""
    assert "streaming-core verify --fix" in advice(place(tmp_path, "shard.00000.mds"))


def test_other_files_are_named(tmp_path: Path) -> None:
    """What is there helps to see the wrong path."""
    assert "'readme.txt'" in advice(place(tmp_path, "readme.txt"))


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_nothing_at_all_is_said_so(tmp_path: Path, name: str) -> None:
    """An empty folder and a missing one have nothing to suggest."""
    text = advice(tmp_path / name)
    assert "nothing at all is there" in text
    assert tmp_path.name in text


def test_a_store_that_cannot_list_still_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The missing index is the error, not the failed attempt to help."""

    class Closed(MemoryStore):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            raise StoreError(f"no permission to list {prefix!r}")

    monkeypatch.setattr(_load, "open_store", lambda *_: Closed())
    assert "no permission to list" in advice("memory://closed")
