"""Which files a place means, and of which format they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from streaming_core._store import MemoryStore, open_store
from streaming_core._virtual._discover import (
    Place,
    find_files,
    guessed_kind,
    hive_constants,
    is_hidden,
    packed_hint,
    pattern_regex,
    place_of,
    published_name,
)
from streaming_core._virtual._patterns import listed_names, names_pattern
from streaming_core.errors import SchemaError, SourceFormatError, StoreError
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
        ("**", ["a", "b/c", "d\ne"], []),
        ("{a[,]b,c[}]}.csv", ["a,b.csv", "c}.csv"], ["a.csv", "c.csv"]),
    ],
)
def test_patterns(pattern: str, names: list[str], others: list[str]) -> None:
    """They mean what shells mean by them."""
    matches = pattern_regex(pattern).fullmatch
    assert [name for name in names + others if matches(name)] == names


def test_one_listing_finds_files_in_order_with_their_places_columns() -> None:
    """Hidden and other files left out."""
    store = _store("b=2/x.parquet", "b=10/y.parquet", "_SUCCESS", ".h/a.parquet", "note.txt")
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


def test_names_without_a_folder_are_in_the_one_we_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a pattern or a list of files alike; none of them is looked for in the root."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).touch()
    listed = names_pattern(["a.parquet", "b.parquet"])
    for remote, pattern in (("a.parquet", "a.parquet"), ("*.parquet", "*.parquet"), (listed, "")):
        place = place_of(remote)
        assert place.store.url == tmp_path.as_uri()
        assert place.pattern == (pattern or "{a.parquet,b.parquet}")
    assert place_of("/a.parquet").store.url == "file:///"


def _here(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def _found(place: Path | str, kind: str | None = "parquet") -> list[str]:
    return [file.key for file in find_files(place_of(str(place), kind=kind), kind).files]


@pytest.mark.parametrize("kind", ["parquet", "orc", "arrow", "avro", "webdataset", "json"])
def test_a_file_without_bytes_is_no_file_of_a_format(kind: str) -> None:
    """It is refused by name: perhaps its writer died."""
    store = _store("a.dat")
    store.put("sub/b.dat", [])
    with pytest.raises(SourceFormatError, match=r"'sub/b\.dat' has 0 bytes"):
        find_files(Place(store, "**/*.dat"), kind)


@pytest.mark.parametrize(("name", "kind"), [("b.csv", "csv"), ("b.jsonl", None), ("b.txt", None)])
def test_a_text_without_bytes_has_no_rows(name: str, kind: str | None) -> None:
    """It is left out; one that should be compressed is not whole."""
    store = _store(f"a{name}")
    store.put(name, [])
    assert [file.key for file in find_files(Place(store, "*"), kind).files] == [f"a{name}"]
    store.put(f"{name}.gz", [])
    with pytest.raises(SourceFormatError, match="0 bytes"):
        find_files(Place(store, "*"), kind)


def test_objects_that_stand_for_folders_are_none_of_the_data() -> None:
    """As consoles, Hadoop and some services make them."""
    store = _store("a/b/x.parquet")
    for mark in ("a", "a/b", "a/b_$folder$"):
        store.put(mark, [])
    assert [file.key for file in find_files(Place(store, "**"), "parquet").files] == [
        "a/b/x.parquet"
    ]


def test_what_is_meant_and_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    """Never left out without a word; what is not meant does not matter."""
    _here(tmp_path, "a.parquet", "x\\y.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "nowhere")
    (tmp_path / "_c.parquet").symlink_to(tmp_path / "nowhere")
    assert _found(tmp_path) == ["a.parquet"]
    with pytest.raises(SourceFormatError, match=r"'b\.csv': a link leads to .*'x\\\\y\.csv'"):
        _found(tmp_path, "csv")


def test_linked_folders_are_read_each_file_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it lies, if that is meant too; and that it came twice is said."""
    _here(tmp_path, "out/a.parquet", "in/v1/b.parquet", "in/v2/c.parquet")
    folder = tmp_path / "in"
    (folder / "more").symlink_to(tmp_path / "out")
    assert _found(folder) == ["more/a.parquet", "v1/b.parquet", "v2/c.parquet"]
    assert not caplog.records
    (folder / "again").symlink_to(tmp_path / "out")
    (folder / "latest").symlink_to(folder / "v2")
    assert _found(folder) == ["again/a.parquet", "v1/b.parquet", "v2/c.parquet"]
    assert "2 files are there a second time" in caplog.text
    assert _found(f"{folder}/latest/*.parquet") == ["c.parquet"]
    assert _found(f"{folder}/l*/*.parquet") == ["latest/c.parquet"]


def test_a_place_here_is_what_is_there_under_that_very_name(tmp_path: Path) -> None:
    """Brackets and braces are a pattern only where there is no such file or folder."""
    _here(tmp_path, "d[1]/a[1].parquet", "d[1]/b{2},}.parquet", "d1/a1.parquet")
    folder = tmp_path / "d[1]"
    assert _found(folder / "a[1].parquet") == ["a[1].parquet"]
    assert _found(folder) == ["a[1].parquet", "b{2},}.parquet"]
    assert _found(f"{folder}/a*.parquet") == ["a[1].parquet"]
    both = names_pattern([str(folder / name) for name in ("b{2},}.parquet", "a[1].parquet")])
    assert _found(both) == ["a[1].parquet", "b{2},}.parquet"]
    assert _found(tmp_path / "d1" / "a[1].parquet") == ["a1.parquet"]


@pytest.mark.parametrize("names", [["a[1].csv"], ["b,c.csv", "{d}.csv", "x/y*.csv"], ["a", "b?"]])
def test_a_list_means_its_names_whatever_is_in_them(names: list[str]) -> None:
    """In a store, too."""
    pattern = names_pattern([f"s3://b/[r]/{name}" for name in names])
    assert pattern.startswith("s3://b/{")
    found = listed_names(pattern.removeprefix("s3://b/"))
    assert found == [f"[r]/{name}" for name in names]
    matches = pattern_regex(pattern.removeprefix("s3://b/")).fullmatch
    assert all(matches(name) for name in found)


def test_one_file_whose_name_tells_nothing_is_read_if_the_format_is_said(tmp_path: Path) -> None:
    """On this machine any, in a store one that has an ending."""
    _here(tmp_path, "part-0.c000", "plain", "folder.v2/a.parquet")
    assert _found(tmp_path / "part-0.c000") == ["part-0.c000"]
    assert _found(tmp_path / "plain") == ["plain"]
    assert _found(tmp_path / "folder.v2") == ["a.parquet"]
    store = open_store("memory://named/x")
    store.put("part-0.c000", [b"x"])
    store.put("folder.v2/a.parquet", [b"x"])
    assert _found("memory://named/x/part-0.c000") == ["part-0.c000"]
    assert _found("memory://named/x/folder.v2") == ["a.parquet"]


def test_an_error_counts_what_is_there() -> None:
    """Not only what begins like the name that was looked for."""
    store = _store("a.csv", "b.csv", "_hidden")
    for pattern in ("gone.parquet", "x*.parquet", ""):
        with pytest.raises(SchemaError, match=r"2 other file\(s\) are there, such as 'a\.csv'"):
            find_files(Place(store, pattern), "parquet")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x.tar.bz2", "webdataset"),
        ("x.txz", "webdataset"),
        ("a.parquet.gz", "parquet"),
        ("a.ORC.ZST", "orc"),
        ("a.csv.gz", None),
        ("x.tar.gz", None),
        ("a.gz", None),
        ("gz", None),
    ],
)
def test_what_cannot_be_read_compressed_is_said(name: str, says: str | None) -> None:
    """With what to do."""
    hint = packed_hint(name)
    assert hint == says or (hint is not None and f"as {says} files cannot" in hint)
    if says is not None:
        with pytest.raises(SchemaError, match="unpack it"):
            find_files(Place(_store(name), ""), says)


@pytest.mark.parametrize(
    ("names", "table"),
    [
        (["_delta_log/00.json", "a.parquet"], "delta"),
        (["t/_delta_log/00.json", "t/x=1/a.parquet"], "delta"),
        (["metadata/v1.metadata.json", "data/a.parquet"], "iceberg"),
        (["t/metadata/v1.metadata.json", "t/data/a.parquet"], "iceberg"),
        (["t/_delta_log/00.json", "a.parquet"], None),
        (["metadata/notes.json", "a.parquet"], None),
        (["x_delta_log/00.json", "a.parquet"], None),
    ],
)
@pytest.mark.parametrize("pattern", ["", "**/*.parquet"])
def test_files_of_a_table_are_read_with_a_warning(
    names: list[str], table: str | None, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As rows that were deleted are among them."""
    assert len(find_files(Place(_store(*names), pattern), "parquet").files) == 1
    assert (f"format='{table}'" in caplog.text) == (table is not None)
    assert len(caplog.records) == (table is not None)


def test_a_table_is_seen_from_a_part_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From its folders of data, and by a pattern that begins with a name."""
    _here(tmp_path, "d/_delta_log/00.json", "d/x=1/a.parquet", "d/b.parquet")
    _here(tmp_path, "i/metadata/1.metadata.json", "i/data/y=2/a.parquet", "i/other/b.parquet")
    for place, table in {
        "d/x=1": "delta",
        "d/b*.parquet": "delta",
        "i/data": "iceberg",
        "i/data/y=2/*.parquet": "iceberg",
        "i/other": None,
    }.items():
        caplog.clear()
        assert _found(f"{tmp_path}/{place}")
        assert (f"format='{table}'" in caplog.text) == (table is not None)
    caplog.clear()
    store = _store("_delta_log/00.json", "part-1.parquet")
    assert find_files(Place(store, "part-*.parquet")).files
    assert "format='delta'" in caplog.text


@pytest.mark.parametrize("names", [[], ["/a.csv", "/b.csv"], ["s3://x/a.csv", "s3://y/b.csv"]])
def test_lists_of_files_that_lie_nowhere_together_are_refused(names: list[str]) -> None:
    """At once, those of nothing too."""
    with pytest.raises(SchemaError, match="list of files"):
        names_pattern(names)
