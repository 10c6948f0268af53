"""Joining data sets in sub-folders by an index above them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from streaming_core import JSONWriter, MDSWriter, load_index, merge_index, open_store
from streaming_core._read import SUMS, iterate_samples, parse_sums
from streaming_core.errors import (
    IndexInvalidError,
    IndexMissingError,
    OutputBusyError,
    OutputNotEmptyError,
    ResumeError,
    SchemaError,
)
from streaming_core.testing import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_core._store import ObjectInfo


def _part(out: Any, *ids: int, **options: Any) -> None:
    with MDSWriter(out=out, columns={"id": "int"}, size_limit=300, **options) as writer:
        for number in ids:
            writer.write({"id": number})


def _ids(root: Any) -> list[int]:
    return [sample["id"] for sample in iterate_samples(open_store(root), load_index(root))]


def test_parts_are_joined_in_order_of_their_paths(tmp_path: Path) -> None:
    """At any depth, with names of spaces and letters of any alphabet, as plain text sorts."""
    for number, name in enumerate(["b", "a/deep/er", "part 0", "ünïcode", "p10", "p2"]):
        _part(tmp_path / name, number, checksums=True)
    merge_index(tmp_path)
    assert _ids(tmp_path) == [1, 0, 4, 5, 2, 3]
    document = json.loads((tmp_path / "index.json").read_text())
    assert list(document) == ["version", "shards"]
    sums = parse_sums((tmp_path / SUMS).read_bytes())
    assert set(sums) == {shard["raw_data"]["basename"] for shard in document["shards"]}


def test_a_folder_comes_before_those_whose_names_go_on_after_its_own(tmp_path: Path) -> None:
    """Although the sign they go on with sorts before the one that ends a folder's name."""
    for number, name in enumerate(["a-b", "a.b/c", "a/z", "a b"]):
        _part(tmp_path / name, number)
    merge_index(tmp_path)
    assert _ids(tmp_path) == [2, 3, 0, 1]


@pytest.mark.parametrize("form", ["index", "folder", "text", "url"])
def test_listed_parts_are_joined_in_the_order_given(tmp_path: Path, form: str) -> None:
    """Indexes may be named by file, by folder, as path, text or URL."""
    names = ["part 2", "part-ä", "a/b"]
    for number, name in enumerate(names):
        _part(tmp_path / name, number)
    listed: list[Any] = [tmp_path / name for name in names]
    if form == "index":
        listed = [path / "index.json" for path in listed]
    if form == "text":
        listed = [str(path) for path in listed]
    if form == "url":
        listed = [path.as_uri() for path in listed]
    merge_index(listed, tmp_path)
    assert _ids(tmp_path) == [0, 1, 2]


def test_a_bucket_is_merged_in_place() -> None:
    """Remote parts need no local folder."""
    for part in range(3):
        _part("memory://merge-bucket/data", part, part=part)
    merge_index("memory://merge-bucket/data")
    assert _ids("memory://merge-bucket/data") == [0, 1, 2]


@pytest.mark.parametrize("keep_local", [True, False])
def test_a_pair_gets_the_index_in_both_places(tmp_path: Path, keep_local: bool) -> None:
    """The folder's index is spared only if it is not to be kept."""
    root = (str(tmp_path / "here"), f"memory://merge-pair-{keep_local}")
    for part in range(2):
        _part(root, part, part=part, keep_local=True)
    merge_index(root, keep_local=keep_local)
    assert _ids(root[1]) == [0, 1]
    assert (tmp_path / "here/index.json").exists() is keep_local


def test_merging_again_takes_new_parts_in(tmp_path: Path) -> None:
    """An older merged index is replaced, and joined sub-folders are not counted twice."""
    _part(tmp_path / "x/a", 0)
    _part(tmp_path / "x/b", 1)
    merge_index(tmp_path / "x")
    merge_index(tmp_path)
    _part(tmp_path / "y", 2)
    merge_index(tmp_path)
    assert _ids(tmp_path) == [0, 1, 2]


def test_a_data_set_below_another_is_not_forgotten(tmp_path: Path) -> None:
    """A folder with shards of its own and a data set beneath brings both."""
    _part(tmp_path / "x", 0)
    _part(tmp_path / "x/val", 1)
    merge_index(tmp_path)
    assert sorted(_ids(tmp_path)) == [0, 1]


def test_empty_parts_and_formats_may_mix(tmp_path: Path) -> None:
    """A part without samples adds none; a merged data set may hold several kinds of shard."""
    _part(tmp_path / "a")
    _part(tmp_path / "b", 1, compression="zstd")
    with JSONWriter(out=tmp_path / "c", columns={"id": "int"}) as writer:
        writer.write({"id": 2})
    merge_index(tmp_path)
    assert _ids(tmp_path) == [1, 2]


def test_parts_with_other_columns_are_refused(tmp_path: Path) -> None:
    """Before anything is written: the first batch across them would fail."""
    _part(tmp_path / "a", 1)
    with MDSWriter(out=tmp_path / "b", columns={"id": "int", "text": "str"}) as writer:
        writer.write({"id": 2, "text": "x"})
    with pytest.raises(SchemaError, match=r"b has the columns 'id', 'text', a has 'id'; convert"):
        merge_index(tmp_path)
    assert not (tmp_path / "index.json").exists()


def test_unfinished_parts_are_named(tmp_path: Path) -> None:
    """Their samples would be missing without a word; who lists the parts is not asked."""
    _part(tmp_path / "a", 1)
    _part(tmp_path / "b", *range(100))
    (tmp_path / "b/.writing").mkdir()
    (tmp_path / "b/index.json").rename(tmp_path / "b/.writing/settings.json")
    with pytest.raises(ResumeError, match=r"1 part\(s\) are not finished: b"):
        merge_index(tmp_path)
    assert not (tmp_path / "index.json").exists()
    merge_index([tmp_path / "a"], tmp_path)
    assert _ids(tmp_path) == [1]


@pytest.mark.parametrize("broken", [False, True])
def test_shards_beside_the_new_index_are_not_dropped(tmp_path: Path, broken: bool) -> None:
    """A root that is a data set itself is refused, also if its index cannot be read."""
    _part(tmp_path, 0)
    _part(tmp_path / "a", 1)
    if broken:
        (tmp_path / "index.json").write_text("{")
    before = (tmp_path / "index.json").read_bytes()
    error = IndexInvalidError if broken else OutputNotEmptyError
    with pytest.raises(error, match=r"index\.json"):
        merge_index(tmp_path)
    assert (tmp_path / "index.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("{root}",), IndexMissingError, "no data set"),
        ((["{root}/none"], "{root}"), IndexMissingError, "none"),
        ((["{root}/../else"], "{root}"), SchemaError, "below"),
        ((["{root}"], "{root}"), SchemaError, "below"),
        ((["{root}/a"],), SchemaError, "above all of them"),
    ],
)
def test_what_cannot_be_joined_says_why(
    tmp_path: Path, arguments: Any, error: type[Exception], told: str
) -> None:
    """Nothing there, not finished, or not below the root."""

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(item) for item in value]
        return value.format(root=tmp_path / "root")

    (tmp_path / "root").mkdir()
    with pytest.raises(error, match=told):
        merge_index(*map(filled, arguments))


def test_a_root_that_is_being_written_is_busy(tmp_path: Path) -> None:
    """The index of a folder is published by one at a time."""
    _part(tmp_path / "a", 1)
    with (
        open_store(tmp_path).lock(),  # type: ignore[attr-defined]
        pytest.raises(OutputBusyError),
    ):
        merge_index(tmp_path)


def test_a_part_that_died_before_its_first_shard_is_named(tmp_path: Path) -> None:
    """A small part leaves no shard when its process dies, but it is not forgotten."""
    for part in range(3):
        writer = MDSWriter(out=tmp_path, columns={"id": "int"}, part=part)
        writer.write({"id": part})
        if part == 1:
            writer.cancel_future_jobs()
        else:
            writer.finish()
    with pytest.raises(ResumeError, match="part-00001"):
        merge_index(tmp_path)


def test_a_part_without_columns_that_died_is_named_too(tmp_path: Path) -> None:
    """Also before its columns were found."""
    _part(tmp_path / "a", 0)
    with pytest.raises(KeyError), MDSWriter(out=tmp_path / "b"):
        raise KeyError
    with pytest.raises(ResumeError, match="finished: b"):
        merge_index(tmp_path)


def test_a_part_written_anew_counts_as_it_is_now(tmp_path: Path) -> None:
    """An index in between that still tells of the old files is not believed."""
    _part(tmp_path / "x/a", *range(100))
    _part(tmp_path / "x/b", 100)
    merge_index(tmp_path / "x")
    _part(tmp_path / "x/a", *range(50), exist_ok=True)
    merge_index(tmp_path)
    assert _ids(tmp_path) == [*range(50), 100]


@pytest.mark.parametrize("samples", [1, 100], ids=["no shard yet", "some shards"])
def test_a_part_that_finishes_during_the_listing_is_joined(
    monkeypatch: pytest.MonkeyPatch, samples: int
) -> None:
    """Its journal is gone when the listing gets there, and its index came too late for it."""
    url = f"memory://merge-finishing-{samples}"
    _part(f"{url}/b", 0)
    writer = MDSWriter(out=f"{url}/a", columns={"id": "int"}, size_limit=300)
    for number in range(samples):
        writer.write({"id": number + 1})
    listed = MemoryStore.list
    finish = [writer.finish]

    def list_while_it_finishes(store: MemoryStore, prefix: str = "") -> Iterator[ObjectInfo]:
        if prefix or not finish:
            return listed(store, prefix)
        before = list(listed(store))
        finish.pop()()
        there = {info.key for info in listed(store)}
        return iter([info for info in before if info.key in there])

    monkeypatch.setattr(MemoryStore, "list", list_while_it_finishes)
    merge_index(url)
    assert not finish
    assert sorted(_ids(url)) == list(range(samples + 1))


def test_a_place_that_never_rests_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then which parts there are."""
    url = "memory://merge-restless"
    _part(f"{url}/a", 0)
    listed = MemoryStore.list
    names = count()

    def list_and_add(store: MemoryStore, prefix: str = "") -> Iterator[ObjectInfo]:
        found = list(listed(store, prefix))
        if not prefix:
            monkeypatch.setattr(MemoryStore, "list", listed)
            _part(f"{url}/b{next(names)}", 1)
            monkeypatch.setattr(MemoryStore, "list", list_and_add)
        return iter(found)

    monkeypatch.setattr(MemoryStore, "list", list_and_add)
    with pytest.raises(ResumeError, match="changed during each"):
        merge_index(url)


@pytest.mark.slow
def test_parts_that_finish_at_any_moment_are_joined_or_refused(tmp_path: Path) -> None:
    """Real writers in threads, and merges among them: never fewer samples than were begun."""
    for turn in range(20):
        root = tmp_path / str(turn)
        _part(root / "m", 0)
        writers = [
            MDSWriter(out=root / name, columns={"id": "int"}, size_limit=300) for name in "abyz"
        ]
        for number, writer in enumerate(writers):
            for _ in range(turn + 1):
                writer.write({"id": number + 1})
        with ThreadPoolExecutor(len(writers)) as pool:
            finishing = [pool.submit(writer.finish) for writer in writers]
            while True:
                with suppress(ResumeError):
                    merge_index(root)
                    break
            for future in finishing:
                future.result()
        assert len(_ids(root)) == 1 + len(writers) * (turn + 1)


def test_shards_without_an_index_are_an_unfinished_part(tmp_path: Path) -> None:
    """Also where no journal tells of it; what an index above names is not meant."""
    _part(tmp_path / "a", 0)
    _part(tmp_path / "x/b", 1)
    _part(tmp_path / "x/c", 2)
    merge_index(tmp_path / "x")
    (tmp_path / "x/b/index.json").unlink()
    (tmp_path / "x/c/index.json").unlink()
    merge_index(tmp_path)
    assert _ids(tmp_path) == [0, 1, 2]
    (tmp_path / "a/index.json").unlink()
    with pytest.raises(ResumeError, match=r"1 part\(s\) are not finished: a\."):
        merge_index(tmp_path)
