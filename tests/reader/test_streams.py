"""Streams: used again, with other columns than others, without a home, behind links."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import (
    LocalDataset,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    create_dataloader,
    load_index,
)
from streaming_core._store import open_store
from streaming_core.errors import OutputNotEmptyError, SchemaError, StreamingError

# --- used again -----------------------------------------------------------------------------------


def test_a_stream_may_be_used_in_several_data_sets(ids_folder: Path, more_folder: Path) -> None:
    """It stays as it was given; what came out is in the data sets."""
    first, second = Stream(local=ids_folder), Stream(local=more_folder, proportion=1)
    said = repr(first), repr(second)
    alone = StreamingDataset(streams=[first], batch_size=4)
    assert alone.streams[0].choose == 101
    shared = [Stream(local=ids_folder, proportion=3), second]
    for size, chosen in ((40, [30, 10]), (80, [60, 20])):
        dataset = StreamingDataset(streams=shared, batch_size=4, epoch_size=size)
        assert [stream.choose for stream in dataset.streams] == chosen
        assert len(list(dataset)) == size
    assert StreamingDataset(streams=[first, first], batch_size=4).epoch_size == 202
    retrying = StreamingDataset(streams=[first], batch_size=4, download_retry=7)
    assert retrying.streams[0].download_retry == 7
    assert (repr(first), repr(second)) == said


# --- other columns --------------------------------------------------------------------------------


def _pair(tmp_path: Path, **options: Any) -> list[Stream]:
    for name in ("a", "b"):
        with MDSWriter(out=tmp_path / name, columns={"id": "int", name: "int"}) as writer:
            for value in range(16):
                writer.write({"id": value, name: value})
    return [Stream(local=tmp_path / name, **options) for name in ("a", "b")]


@pytest.mark.parametrize("method", ["random", "stratified"])
def test_streams_of_other_columns_are_refused_before_the_first_batch(
    tmp_path: Path, method: Any
) -> None:
    """With both columns, and what may be done."""
    streams = _pair(tmp_path)
    dataset = StreamingDataset(streams=streams, batch_size=4, batching_method=method)
    said = r"stream 1 \(.*b\) has the columns 'b', 'id', stream 0 \(.*a\) has 'a', 'id'; .*per_str"
    with pytest.raises(SchemaError, match=said):
        dataset.batches()
    with pytest.raises(SchemaError, match=said):
        StreamingDataLoader(dataset, 4)
    with pytest.raises(SchemaError, match=said):
        create_dataloader(streams=streams, batch_size=4, batching_method=method)


def test_streams_of_other_columns_are_mixed_where_that_can_be(tmp_path: Path) -> None:
    """As samples, as rows, by what makes them alike, where only one is used, and one by one."""

    def alike(row: dict[str, int]) -> dict[str, int]:
        return {"id": row["id"]}

    class Alike(StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            return alike(super().__getitem__(at))

    streams = _pair(tmp_path)
    dataset = StreamingDataset(streams=streams, batch_size=4)
    assert len(list(dataset)) == 32
    assert len(list(dataset.batches(batch_format="rows"))) == 8
    assert len(list(StreamingDataLoader(dataset, 4, collate_fn=list))) == 8
    assert len(list(Alike(streams=streams, batch_size=4).batches())) == 8
    assert len(list(create_dataloader(streams=streams, batch_size=4, transform=alike)[0])) == 8
    alone = [streams[0], Stream(local=tmp_path / "b", repeat=0)]
    assert len(list(StreamingDataset(streams=alone, batch_size=4).batches())) == 4
    by_stream = StreamingDataset(streams=streams, batch_size=4, batching_method="per_stream")
    assert len(list(StreamingDataLoader(by_stream, 4))) == 8


# --- without a home -------------------------------------------------------------------------------


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have neither HOME nor an entry in the list of users; return the folder of temporary files."""

    def unknown(user: int) -> Any:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "STREAMING_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_data_is_read_and_written_without_a_home(
    homeless: Path, ids_folder: Path, tmp_path: Path
) -> None:
    """In place, copied and decoded; what is kept is for this user alone."""
    for given in ({"local": ids_folder}, {"remote": ids_folder}):
        dataset = StreamingDataset(**given, batch_size=4)  # type: ignore[arg-type]
        assert len(list(dataset)) == 101
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    loader, _ = create_dataloader(tmp_path / "a.parquet", batch_size=2, batch_format="rows")
    assert list(loader) == [[{"x": 1}, {"x": 2}]]
    (kept,) = homeless.glob("streaming-core-*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    for _ in range(2):
        with MDSWriter(out=tmp_path / "out", columns={"x": "int"}, exist_ok=True) as writer:
            writer.write({"x": 1})


@pytest.mark.usefixtures("homeless")
def test_what_needs_a_home_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path below one is an error; a file of a service's credentials in it is not there."""
    with pytest.raises(SchemaError, match="no home folder; give the whole path"):
        open_store("~/data")
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "DATABRICKS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StreamingError):
        open_store("dbfs:/Volumes/a/b/c").get("key")
    with pytest.raises(StreamingError):
        open_store("hf://datasets/a/b", {"endpoint_url": "http://127.0.0.1:9"}).get("key")


def test_a_folder_of_others_is_not_used_instead_of_a_home(homeless: Path, ids_folder: Path) -> None:
    """Who can write there could put anything into the cache."""
    open_to_all = homeless / f"streaming-core-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(SchemaError, match=r"only this user can.*STREAMING_CACHE_DIR"):
        StreamingDataset(remote=ids_folder, batch_size=4)


# --- links ----------------------------------------------------------------------------------------


def test_links_that_form_a_loop_are_reported(ids_folder: Path, tmp_path: Path) -> None:
    """By the store's error, wherever they are given."""
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    (tmp_path / "l.parquet").symlink_to("l.parquet")
    for given in (
        {"local": loop},
        {"local": loop / "below"},
        {"local": tmp_path, "split": "loop"},
        {"remote": loop, "local": tmp_path / "c"},
        {"remote": loop},
        {"remote": f"file://{loop}"},
        {"remote": ids_folder, "local": loop},
        {"local": f"{loop}/*.parquet"},
        {"local": tmp_path / "l.parquet"},
    ):
        with pytest.raises(StreamingError, match=r"ELOOP|ENOTDIR"):
            StreamingDataset(**given, batch_size=4)
    for open_it in (LocalDataset, load_index):
        with pytest.raises(StreamingError, match="ELOOP"):
            open_it(loop)
    with pytest.raises(StreamingError, match="loop"):
        MDSWriter(out=loop, columns={"x": "int"}, exist_ok=True)
    with pytest.raises(OutputNotEmptyError, match="your home"):
        MDSWriter(out=Path.cwd(), columns={"x": "int"}, exist_ok=True)
