"""What users are told: of mistakes, of what went wrong, and of objects that they look at."""

from __future__ import annotations

import html.parser
import json
import logging
import os
import pickle
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from streaming_core import (
    LocalDataset,
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    Transforms,
    World,
    create_dataloader,
    load_index,
)
from streaming_core.errors import (
    CheckpointError,
    IndexMissingError,
    SampleError,
    SchemaError,
    ShardCorruptError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


# --- what is given --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jpeg", "png", "pil"])
@pytest.mark.parametrize("as_path", [str, Path])
def test_a_path_is_no_image(tmp_path: Path, kind: str, as_path: Callable[[str], Any]) -> None:
    """It is said how to get one from it."""
    with (
        pytest.raises(SampleError, match=r"PIL\.Image\.open\(path\), or give the bytes"),
        MDSWriter(out=tmp_path, columns={"image": kind}) as out,
    ):
        out.write({"image": as_path("a.jpg")})


def test_images_are_no_batch(tmp_path: Path) -> None:
    """The default collate says what to do with them, and rows have them."""
    with MDSWriter(out=tmp_path, columns={"image": "png"}) as out:
        for size in (2, 3):
            out.write({"image": Image.new("RGB", (size, size))})
    dataset = StreamingDataset(local=tmp_path, batch_size=2)
    with pytest.raises(SchemaError, match="column 'image' has images") as caught:
        list(StreamingDataLoader(dataset))
    for advice in ("transform=", "__getitem__", "batch_format='rows'", "collate_fn"):
        assert advice in str(caught.value)
    (rows,) = StreamingDataLoader(dataset, batch_format="rows")
    assert [row["image"].size for row in rows] == [(2, 2), (3, 3)]


def test_single_images_are_no_data_set(tmp_path: Path) -> None:
    """A pattern of them is answered with what to make of them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.jpg").write_bytes(b"")
    with pytest.raises(SchemaError, match="MDSWriter, or pack them into tar files or Parquet"):
        StreamingDataset(remote=f"{tmp_path}/**/*.jpg", local=tmp_path / "cache")


@pytest.mark.parametrize("given", [{"filters": [("id", ">", 3)]}, {"columns": ["id"]}])
def test_shards_are_read_whole(ids_folder: Path, given: dict[str, Any]) -> None:
    """Who wants part of an MDS data set is told what leaves out the rest."""
    with pytest.raises(SchemaError, match=r"MDS data set.*filter= and transform="):
        StreamingDataset(streams=[Stream(remote=ids_folder, local="unused", **given)])


def test_a_weight_is_refused_with_its_stream(ids_folder: Path) -> None:
    """Among many it could be any of them."""
    with pytest.raises(SchemaError, match=rf"{ids_folder}.*proportion: expected at least 0"):
        Stream(local=ids_folder, proportion=-1)


@pytest.mark.parametrize("name", ["tensor", "", 3])
def test_a_batch_format_is_refused_at_once(ids_folder: Path, name: Any) -> None:
    """By whatever takes one, before anything is read."""
    dataset = StreamingDataset(local=ids_folder, batch_size=4)
    makers: list[Callable[[], object]] = [
        lambda: StreamingDataLoader(dataset, batch_format=name),
        lambda: dataset.batches(batch_format=name),
        lambda: create_dataloader(ids_folder, batch_size=4, batch_format=name),
    ]
    for make in makers:
        with pytest.raises(SchemaError, match="batch_format: expected one of torch, numpy"):
            make()


def test_worlds_and_transforms_are_misspelled_too() -> None:
    """As every public class, they say what may be meant."""
    with pytest.raises(TypeError, match="did you mean 'rank'"):
        World(rnak=1)  # type: ignore[call-arg]
    assert World(1, 2).num_ranks == 2
    with pytest.raises(TypeError, match="did you mean 'keep'"):
        Transforms(kep=bool)  # type: ignore[call-arg]
    assert Transforms(bool).keep is bool


@pytest.mark.parametrize("place", ["", "/a/x.jpg"])
def test_a_folder_of_images_is_no_dataset(tmp_path: Path, place: str) -> None:
    """And it is said how to make one of them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(b"x")
    with pytest.raises(IndexMissingError, match=r"single images.*write them with MDSWriter"):
        StreamingDataset(local=f"{tmp_path}{place}", batch_size=1)


def test_few_samples_ahead_are_a_warning(
    ids_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fewer than a batch has mean that each batch waits."""
    with caplog.at_level(logging.WARNING, "streaming_core.reader"):
        StreamingDataset(local=ids_folder, batch_size=8, predownload=8)
        StreamingDataset(local=ids_folder, predownload=3)
        assert not caplog.records
        StreamingDataset(local=ids_folder, batch_size=8, predownload=7)
    assert "predownload=7 is less than batch_size=8" in caplog.text


def test_an_epoch_without_batches_is_a_warning(
    ids_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As training would end at once without a word."""
    dataset = StreamingDataset(local=ids_folder, batch_size=102)
    with caplog.at_level(logging.WARNING, "streaming_core.reader"):
        assert len(list(StreamingDataLoader(dataset))) == 1
        assert not caplog.records
        for given in StreamingDataLoader(dataset, drop_last=True), None:
            assert not list(given or dataset.batches(drop_last=True))
            assert "no batch: the epoch has 101 samples for this rank, a batch 102" in caplog.text
            caplog.clear()


def test_a_checkpoint_of_other_data_says_where_that_was(
    ids_folder: Path, more_folder: Path
) -> None:
    """Both places, and what else differs."""
    dataset = StreamingDataset(local=ids_folder, batch_size=4)
    state = json.loads(json.dumps(dataset.state_dict(8)))
    with pytest.raises(CheckpointError) as caught:
        StreamingDataset(local=more_folder, batch_size=4).load_state_dict(state)
    assert f"what lay at {ids_folder} and is what lies at {more_folder}" in str(caught.value)
    for places in ({"a": 1}, [1, 2], "x" * 10**6, None):
        state["streaming_core"]["places"] = places
        with pytest.raises(CheckpointError) as caught:
            StreamingDataset(local=more_folder, batch_size=4).load_state_dict(state)
        assert len(str(caught.value)) < 1000
    # Data may be moved: places are shown, and not compared.
    state["streaming_core"]["places"] = ["elsewhere"]
    dataset.load_state_dict(state)


# --- what goes wrong ------------------------------------------------------------------------------


def _odd(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Leave even rows out, and fail at one."""
    if row["id"] == 57:
        raise LookupError
    return [row] if row["id"] % 2 else []


class _Fails(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return _odd(sample)[0] if sample["id"] == 57 else sample


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=[pytest.mark.process, pytest.mark.essential])]
)
@pytest.mark.parametrize("how", ["transform", "subclass"])
def test_an_error_of_a_user_names_the_sample(ids_folder: Path, how: str, workers: int) -> None:
    """Its number, and the shard that it is in."""
    settings: dict[str, Any] = {"batch_size": 8, "shuffle": True}
    if how == "subclass":
        loader = StreamingDataLoader(_Fails(local=ids_folder, **settings), num_workers=workers)
    else:
        loader, _ = create_dataloader(
            ids_folder, transform=[lambda row: row, _odd], num_workers=workers, **settings
        )
    with pytest.raises(LookupError) as caught:
        list(loader)
    shard, row = LocalDataset(ids_folder)._streaming_catalogue.find(57)
    name = load_index(ids_folder).shard(shard).raw.basename
    assert f"sample 57: row {row} of shard {shard}, {name}, from {ids_folder}" in _notes(
        caught.value
    )


class _Dies(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        if at == 57:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(at)


@pytest.mark.process
def test_a_killed_worker_is_told_to_be_one(ids_folder: Path) -> None:
    """With the usual cause, and what helps."""
    loader = StreamingDataLoader(_Dies(local=ids_folder, batch_size=4), num_workers=1)
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        list(loader)
    assert "killed by SIGKILL" in _notes(caught.value)
    assert "fewer workers" in _notes(caught.value)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_functions_that_cannot_be_sent_to_workers_are_explained(ids_folder: Path) -> None:
    """Where these are not forked."""
    loader, _ = create_dataloader(
        ids_folder,
        batch_size=4,
        transform=lambda row: row,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)) as caught:
        list(loader)
    assert "top level of a module" in _notes(caught.value)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_broken_file_is_answered_with_what_looks_for_more(tmp_path: Path, damage: str) -> None:
    """Where there is nothing to fetch it from."""
    with MDSWriter(out=tmp_path, columns={"id": "int"}) as out:
        for number in range(9):
            out.write({"id": number})
    file = tmp_path / "shard.00000.mds"
    data = file.read_bytes()
    file.write_bytes(data[:-1] if damage == "cut" else bytes(4) + data[4:])
    with pytest.raises(ShardCorruptError) as caught:
        list(StreamingDataset(local=tmp_path, batch_size=1))
    assert f"streaming-core verify {tmp_path}" in _notes(caught.value)


# --- what is shown --------------------------------------------------------------------------------


class _Table(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Keep it."""
        del attrs
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        """Keep it."""
        self.text += f"{data} "


def test_objects_say_what_they_are(ids_folder: Path, more_folder: Path, tmp_path: Path) -> None:
    """In a line, and as a table in notebooks."""
    streams = [Stream(local=ids_folder), Stream(local=more_folder)]
    dataset = StreamingDataset(streams=streams, batch_size=4, shuffle=True, cache_limit="1gb")
    writer = MDSWriter(out=tmp_path / "<b>", columns={"x": "int"})
    shown = {
        dataset: ["samples 161", "shuffle py1e", "batch_size 4", str(more_folder)],
        streams[0]: [f"local {ids_folder}"],
        StreamingDataLoader(dataset, num_workers=2): ["num_workers 2", "samples=161"],
        LocalDataset(ids_folder): ["samples 101", str(ids_folder)],
        writer: ["state open", "safe_samples 0"],
    }
    for thing, facts in shown.items():
        line, table = repr(thing), _Table(thing._repr_html_())
        assert line.startswith(f"{type(thing).__name__}(")
        assert "\n" not in line
        assert set(table.tags) == {"table", "caption", "tr", "th", "td"}
        for fact in facts:
            assert fact in table.text
            assert fact.split(" ")[-1] in line
    index = load_index(ids_folder)
    assert (
        "columns id: int, text: str, vector: ndarray:float32:4" in _Table(index._repr_html_()).text
    )
    writer.finish()
    assert "state='finished'" in repr(writer)
    stopped = MDSWriter(out=tmp_path / "c", columns={"x": "int"})
    stopped.cancel_future_jobs()
    assert "state='stopped'" in repr(stopped)


def test_objects_that_are_not_set_up_are_shown_as_well() -> None:
    """As debuggers look at them."""

    class Early(StreamingDataset):
        def __init__(self) -> None:
            self.shown = repr(self)

    assert "Early" in Early().shown
