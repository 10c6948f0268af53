"""What a user may name, and what becomes of a place that is not what it should be."""

from __future__ import annotations

import functools
import gzip
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.web import Asked, Said, WebServer

from streaming_core import MDSWriter, Stream, StreamingDataset, create_dataloader
from streaming_core.cli import main
from streaming_core.errors import (
    IndexInvalidError,
    IndexMissingError,
    MissingColumnError,
    SchemaError,
    SourceChangedError,
    SourceFormatError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder of its own, with a cache that nobody else has."""
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def _write(path: str, *ids: int) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids)}), path)


def _ids(place: Any, **given: Any) -> list[int]:
    """Return the ids in a place, as both ways of opening it give them."""
    dataset = StreamingDataset(streams=[Stream(remote=place, **given)], batch_size=2)
    found = [int(row["id"]) for batch in dataset.batches(batch_format="rows") for row in batch]
    loader, _ = create_dataloader(place, batch_size=1, num_workers=0, **given)
    loaded = [int(batch["id"][0]) for batch in loader]
    # It reads a list as several streams, the other in order of the names.
    assert (sorted(loaded) if isinstance(place, list) else loaded) == found
    return found


def test_bare_names_are_of_the_folder_we_are_in() -> None:
    """A file, a folder, a pattern, a list, and what begins with `./`."""
    _write("a.parquet", 1, 2)
    _write("b/c.parquet", 3)
    for place in ("a.parquet", "./a.parquet", "*.parquet", ["a.parquet"], Path("a.parquet")):
        assert _ids(place) == [1, 2]
    assert _ids(["a.parquet", "b/c.parquet"]) == [1, 2, 3]
    assert _ids("b", format="parquet") == [3]


def test_files_with_brackets_in_their_names_are_read() -> None:
    """Alone, and in a list."""
    _write("a[1].parquet", 1)
    _write("b{2}.parquet", 2)
    _write("a1.parquet", 3)
    assert _ids("a[1].parquet") == [1]
    assert _ids(["b{2}.parquet", "a[1].parquet"]) == [1, 2]
    assert _ids("a[0-9].parquet") == [3]


@pytest.mark.parametrize("left", [0, 100])
def test_an_index_of_files_that_was_cut_is_made_again(tmp_path: Path, left: int) -> None:
    """Who has it mapped gets an error: reading what is gone would end the process."""
    _write("a.parquet", 1, 2)
    dataset = StreamingDataset(streams=[Stream(remote="a.parquet")], batch_size=1)
    (kept,) = (tmp_path / "cache").rglob("source-*.index")
    data = kept.read_bytes()
    os.truncate(kept, left)
    with pytest.raises(IndexInvalidError, match="was cut while it was in use"):
        list(dataset)
    assert _ids("a.parquet") == [1, 2]
    assert kept.read_bytes() == data


def test_a_file_whose_name_tells_nothing_is_read_if_its_format_is_said() -> None:
    """And else the error says that it has to be."""
    _write("part-0.c000", 1)
    _write("plain", 2)
    assert _ids("part-0.c000", format="parquet") == [1]
    assert _ids("plain", format="parquet") == [2]
    for name in ("part-0.c000", "plain"):
        with pytest.raises(IndexMissingError, match=r"is a file.*format='parquet'"):
            create_dataloader(name, batch_size=1)


def test_a_folder_of_files_says_that_its_format_is_missing() -> None:
    """That of shards without an index says that this is missing."""
    _write("set/a.parquet", 1)
    with pytest.raises(IndexMissingError, match=r"'a\.parquet'.*format='parquet'"):
        create_dataloader("set", batch_size=1)
    with MDSWriter(out="shards", columns={"id": "int"}) as out:
        out.write({"id": 1})
    Path("shards/index.json").unlink()
    with pytest.raises(IndexMissingError, match=r"the index was not copied"):
        create_dataloader("shards", batch_size=1)


@pytest.mark.parametrize("name", ["a.parquet.gz", "a.tar.bz2", "a.tar.xz"])
def test_files_that_cannot_be_read_compressed_say_so(name: str) -> None:
    """By their own name, and in a folder."""
    _write("a.parquet", 1)
    Path("d").mkdir()
    Path("d", name).write_bytes(gzip.compress(Path("a.parquet").read_bytes()))
    with pytest.raises(SchemaError, match="unpack it"):
        create_dataloader(f"d/{name}", batch_size=1)
    kind = "parquet" if "parquet" in name else "webdataset"
    with pytest.raises(SchemaError, match="unpack it"):
        create_dataloader("d", batch_size=1, format=kind)


def test_links_are_followed_and_failed_uploads_refused() -> None:
    """A linked folder and file are data; an empty file and a link to nothing are errors."""
    _write("out/b.parquet", 2)
    _write("set/a.parquet", 1)
    Path("set/linked").symlink_to(Path("out").resolve())
    Path("set/one.parquet").symlink_to(Path("out/b.parquet").resolve())
    for place, given in (("set/**/*.parquet", {}), ("set", {"format": "parquet"})):
        assert sorted(_ids(place, **given)) == [1, 2, 2]
    Path("set/zero.parquet").touch()
    with pytest.raises(SourceFormatError, match=r"'zero\.parquet' has 0 bytes"):
        _ids("set/*.parquet")
    Path("set/zero.parquet").unlink()
    Path("set/gone.parquet").symlink_to("nowhere")
    with pytest.raises(SourceFormatError, match=r"'gone\.parquet': a link leads to nowhere"):
        _ids("set/*.parquet")


@pytest.mark.parametrize("name", [b"q\\r", b"o\np", b"v:w", b"\xff"])
def test_names_that_cannot_be_read_are_refused(here: Path, name: bytes) -> None:
    """Such a file is never left out without a word."""
    _write("a.parquet", 1)
    shutil.copy(b"a.parquet", os.fsencode(here) + b"/" + name + b".parquet")
    with pytest.raises(SourceFormatError, match="files that cannot be read"):
        _ids("*.parquet")
    assert _ids("a*.parquet") == [1]


@pytest.mark.parametrize(
    ("format", "option", "known"),
    [
        ("hf", "splt", "config, split"),
        ("delta", "versoin", "version"),
        ("iceberg", "snapshot", "snapshot_id"),
        ("csv", "delimeter", "delimiter"),
        ("parquet", "x", "none"),
    ],
)
def test_options_that_a_format_does_not_take_are_refused(
    format: str, option: str, known: str
) -> None:
    """With those it takes, before anything is looked for."""
    with pytest.raises(SchemaError, match=f"(?s){option}.*{known}"):
        create_dataloader("nowhere", batch_size=1, format=format, format_options={option: 1})


def test_a_split_of_the_hub_is_an_option() -> None:
    """As `split=` is a folder."""
    for split, number in (("train", 1), ("test", 2)):
        _write(f"data/{split}-00000-of-00001.parquet", number)
    assert _ids(".", format="hf", format_options={"split": "test"}) == [2]
    with pytest.raises(SchemaError, match=r"format_options=\{'split': 'test'\}"):
        create_dataloader(".", batch_size=1, format="hf", split="test")


# --- an index that moves with its data ------------------------------------------------------------


def _index(*arguments: str) -> int:
    """Return the exit code of the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["streaming-core", "index", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


@pytest.fixture
def served(here: Path) -> Iterator[str]:
    """Return the URL of a web server of that folder: it says `Last-Modified`, and lists nothing."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    handler = functools.partial(Quiet, directory=str(here))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_index_is_good_for_copies_that_keep_times(served: str) -> None:
    """Also where they are served, by a server that lists nothing; changed ones are refused."""
    _write("set/a.parquet", 1, 2)
    _write("set/b.parquet", 3)
    assert _index("set/*.parquet") == 0
    shutil.copytree("set", "copy")  # with times
    for place in ("copy/*.parquet", f"{served}/copy/*.parquet"):
        assert _ids(place) == [1, 2, 3]
    size = Path("copy/b.parquet").stat().st_size
    _write("copy/b.parquet", 4)
    assert Path("copy/b.parquet").stat().st_size == size
    os.utime("copy/b.parquet", (1, 1))
    for place in ("./copy/*.parquet", f"{served}/./copy/*.parquet"):
        with pytest.raises(SourceChangedError, match=r"streaming-core index .*copy"):
            _ids(place, columns=["id"])


def test_an_index_that_was_copied_is_checked_by_times() -> None:
    """By the command, too: it does not call files replaced that are not."""
    _write("set/a.parquet", 1)
    assert _index("set/*.parquet") == 0
    shutil.copytree("set", "copy")
    assert _index("--check", "copy/*.parquet") == 0
    os.utime("copy/a.parquet", (1, 1))
    assert _index("--check", "copy/*.parquet") != 0


# --- files that differ ----------------------------------------------------------------------------


def test_files_whose_columns_are_decoded_alike_go_together() -> None:
    """Encoded or not; and columns that nobody wants may differ, or come twice."""
    arrays = [pa.array(["a"]).dictionary_encode(), pa.array(["b"])]
    for at, array in enumerate(arrays):
        wild = pa.array([1]) if at else pa.array([[1]])
        table = pa.Table.from_arrays([pa.array([at]), array, wild, wild], ["id", "c", "w", "w"])
        pq.write_table(table, f"{at}.parquet")
    dataset = StreamingDataset(
        streams=[Stream(remote="*.parquet", columns=["id", "c"])], batch_size=2
    )
    assert [dataset[at]["c"] for at in range(2)] == ["a", "b"]
    with pytest.raises(SchemaError, match=r"here/0\.parquet: several columns are called 'w'"):
        _ids("*.parquet")
    with pytest.raises(
        MissingColumnError, match=r"no column 'x' in file:.*/\*\.parquet; there are 'id'"
    ):
        _ids("*.parquet", columns=["x"])


def test_categories_that_polars_writes_are_texts() -> None:
    """In Arrow files, where they are views."""
    polars = pytest.importorskip("polars")
    column = polars.Series(["a", None, "b"])
    kinds = {"c": polars.Categorical, "e": polars.Enum(["a", "b"]), "s": polars.String}
    frame = polars.DataFrame({name: column.cast(kind) for name, kind in kinds.items()})
    frame = frame.with_columns(l=polars.concat_list("c"))
    frame.write_ipc("x.arrow")
    dataset = StreamingDataset(streams=[Stream(remote="x.arrow")], batch_size=3)
    (rows,) = dataset.batches(batch_format="arrow")
    assert rows.to_pylist() == frame.to_dicts()


def test_rows_without_columns_say_that_there_is_nothing_to_read() -> None:
    """As lines of `{}`."""
    Path("a.jsonl").write_text("{}\n{}\n", encoding="utf-8")
    with pytest.raises(SchemaError, match=r"a\.jsonl: the rows have no columns"):
        create_dataloader("a.jsonl", batch_size=1)


def test_a_rule_for_what_is_missing_is_checked_at_opening() -> None:
    """By the columns that are there."""
    pq.write_table(pa.table({"id": [1, None], "id.valid": [5, 6]}), "a.parquet")
    for nulls, says in (
        ("mask", "'id.valid'"),
        ({"x": 1}, "'x'"),
        ({"id": "text"}, "'id'"),
        (["id"], "nulls must be"),
    ):
        with pytest.raises((SchemaError, MissingColumnError), match=says):
            create_dataloader("a.parquet", batch_size=1, nulls=nulls)
    assert _ids("a.parquet", nulls={"id": 7}) == [1, 7]


def test_arguments_of_a_wrong_kind_are_refused_at_once() -> None:
    """And what a filter raises is said to come from it."""
    _write("a.parquet", 1)
    with pytest.raises(ValueError, match="shuffle: expected True or False, got 'yes'"):
        create_dataloader("a.parquet", batch_size=1, shuffle="yes")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(SchemaError, match="collate_fn: expected a function, got 5"):
        create_dataloader("a.parquet", batch_size=1, collate_fn=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    def wrong(row: Any) -> bool:
        return bool(row["nothing"])

    loader, _ = create_dataloader("a.parquet", batch_size=1, num_workers=0, filter=wrong)
    with pytest.raises(KeyError) as caught:
        list(loader)
    assert "raised by the filter" in caught.value.__notes__[0]


def test_a_store_that_falls_silent_while_files_are_looked_for_is_told(tmp_path: Path) -> None:
    """After `download_timeout`, as later while they are read."""
    pq.write_table(pa.table({"x": range(10)}), tmp_path / "a.parquet")
    silent = threading.Event()

    def answer(asked: Asked) -> Said | None:
        del asked
        silent.wait(120)  # after that it would answer, and the test find no error
        return None

    with WebServer(tmp_path, answer=answer) as server:
        stream = Stream(remote=[f"{server.url}/a.parquet"], format="parquet")
        try:
            with pytest.raises(StreamingError):
                StreamingDataset(
                    streams=[stream], batch_size=2, download_timeout=1.0, download_retry=0
                )
        finally:
            silent.set()
