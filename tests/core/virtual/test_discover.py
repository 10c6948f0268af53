"""Which files a place means, and of which format they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from streaming_core._store import MemoryStore
from streaming_core._virtual._discover import (
    Place,
    find_files,
    guessed_kind,
    hive_constants,
    is_hidden,
    pattern_regex,
    place_of,
    published_name,
)
from streaming_core.errors import SchemaError, StoreError
from streaming_core.testing import LatencyStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_core._store import ObjectInfo


def _store(*names: str) -> MemoryStore:
    store = MemoryStore()
    for name in names:
        store.put(name, [b"x"])
    return store


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("*.parquet", ["a.parquet"], ["b/a.parquet", "a.parquet.tmp", "aparquet"]),
        ("**/*.parquet", ["a.parquet", "b/c/a.parquet"], ["a.csv"]),
        (
            "year=*/[ab]?.csv",
            ["year=1/a1.csv", "year=/b2.csv"],
            ["year=1/c1.csv", "year=1/x/a1.csv"],
        ),
        ("[!ab].csv", ["c.csv"], ["a.csv"]),
        ("[^a].csv", ["^.csv", "b.csv"], ["a.csv"]),
        ("{a,b/*}.csv", ["a.csv", "b/x.csv"], ["b.csv", "c.csv"]),
        ("a.c+v(1)|$", ["a.c+v(1)|$"], ["aXc+v(1)|$"]),
        ("x[[]1].csv", ["x[1].csv"], ["x1.csv"]),
        ("**", ["a", "b/c"], []),
    ],
)
def test_patterns(pattern: str, names: list[str], others: list[str]) -> None:
    """They mean what shells mean by them."""
    matches = pattern_regex(pattern).fullmatch
    assert [name for name in names + others if matches(name)] == names


def test_one_listing_finds_files_in_order_with_their_places_columns() -> None:
    """Hidden, empty and other files left out."""
    store = _store("b=2/x.parquet", "b=10/y.parquet", "_SUCCESS", ".h/a.parquet", "note.txt")
    store.put("empty.parquet", [])
    found = find_files(Place(store, ""), "parquet")
    assert found.kind == "parquet"
    assert [(file.key, file.constants) for file in found.files] == [
        ("b=10/y.parquet", (("b", "10"),)),
        ("b=2/x.parquet", (("b", "2"),)),
    ]


class _Unlisted(LatencyStore):
    """Lists nothing, as a web server; or notes what it was asked to list."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        if not prefix:
            msg = "no listing"
            raise StoreError(msg)
        return super().list(prefix)


@pytest.mark.parametrize("name", ["a.parquet", "x[1]*?{a}.parquet"])
def test_one_file_is_found_where_nothing_is_listed(name: str) -> None:
    """Whatever is in its name."""
    store = _Unlisted(_store(name, "b.parquet"), 0)
    pattern = re.sub(r"([*?\[{])", r"[\1]", name)
    assert [file.key for file in find_files(Place(store, pattern)).files] == [name]
    with pytest.raises(SchemaError, match="no parquet files"):
        find_files(Place(store, "gone.parquet"))


def test_only_names_that_begin_right_are_listed() -> None:
    """So that a pattern costs what its files cost."""
    store = _Unlisted(_store("a/1.csv", "a/2.csv", "b/1.csv"), 0)
    assert [file.key for file in find_files(Place(store, "a/*.csv")).files] == [
        "a/1.csv",
        "a/2.csv",
    ]


def test_names_tell_the_format() -> None:
    """Those of the pattern before those of files, and of files those that are meant."""
    store = _store("a.parquet", "b.csv")
    assert find_files(Place(store, "*.csv")).kind == "csv"
    assert find_files(Place(store, "a*")).kind == "parquet"
    assert guessed_kind(Place(_store(), "*.parquet"), []) == "parquet"


@pytest.mark.parametrize(
    ("names", "says"),
    [(["a.parquet", "b.csv"], "several formats"), (["a.dat"], "no known format"), ([], "no known")],
)
def test_what_names_do_not_tell_is_asked_for(names: list[str], says: str) -> None:
    """With an error that lists what there is."""
    with pytest.raises(SchemaError, match=says):
        find_files(Place(_store(*names), ""))


def test_no_files_say_what_there_is() -> None:
    """How many others, and what was looked for."""
    with pytest.raises(SchemaError, match=r"no parquet files that match '\*\.parquet'.*1 other"):
        find_files(Place(_store("a.csv"), "*.parquet"))
    with pytest.raises(SchemaError, match=r"no parquet files that end with \.parquet"):
        find_files(Place(_store("a.csv"), ""), "parquet")


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("year=2024/lang=de%2Fat/a", (("year", "2024"), ("lang", "de/at"))),
        ("year=__HIVE_DEFAULT_PARTITION__/a", (("year", None),)),
        ("x=/=y/a=b=c/a", (("x", ""), ("a", "b=c"))),
        ("plain/a=b", ()),
    ],
)
def test_folders_give_columns(key: str, wanted: tuple[tuple[str, str | None], ...]) -> None:
    """Names and values as Hive writes them."""
    assert hive_constants(key) == wanted


def test_the_index_beside_the_data_is_none_of_it() -> None:
    """It is hidden, and each pattern has its own."""
    assert is_hidden(published_name(""))
    assert is_hidden(published_name("*.csv"))
    assert len({published_name(pattern) for pattern in ("", "*.csv", "**/*.csv")}) == 3


def test_a_path_is_a_folder_a_file_or_a_pattern(tmp_path: Path) -> None:
    """Whichever it is there."""
    (tmp_path / "set.parquet").mkdir()
    (tmp_path / "a.parquet").touch()
    assert place_of(str(tmp_path)).pattern == ""
    assert place_of(f"{tmp_path}/set.parquet").pattern == ""
    one = place_of(f"{tmp_path}/a.parquet")
    assert (one.store.url, one.pattern) == (tmp_path.as_uri(), "a.parquet")
    deep = place_of(f"{tmp_path}/x/*/b.csv")
    assert (deep.store.url, deep.pattern) == ((tmp_path / "x").as_uri(), "*/b.csv")
