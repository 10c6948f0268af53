"""One call to a loader: every argument reaches whom it is for, and what is wrong is said."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from streaming_core import Stream, StreamingDataset, World, create_dataloader
from streaming_core.errors import SchemaError
from streaming_reader._pipeline._config import SETTINGS
from streaming_reader._pipeline._names import (
    DATASET,
    LOADER,
    SOURCE,
    TRANSFORMS,
    WORLD,
    PipelineOptions,
)

if TYPE_CHECKING:
    from pathlib import Path


def _ids(loader: Any) -> list[int]:
    return [i for batch in loader for i in batch["id"].tolist()]


# --- names ----------------------------------------------------------------------------------------


def test_no_argument_of_the_classes_is_forgotten() -> None:
    """A new one of `Stream`, `StreamingDataset` or torch's loader is taken here as well."""
    assert set(inspect.signature(Stream).parameters) == SOURCE
    of_dataset = set(inspect.signature(StreamingDataset).parameters)
    elsewhere = SOURCE | {"streams", "batch_size", "world", "transforms"}
    replaced = {"stream_name", "stream_config"}
    assert of_dataset - elsewhere - replaced == DATASET
    of_loader = set(inspect.signature(DataLoader).parameters) | {"batch_format", "ragged"}
    not_taken = {"dataset", "batch_size", "shuffle", "sampler", "batch_sampler"}
    assert of_loader - not_taken == LOADER
    known = SOURCE | DATASET | LOADER | WORLD | TRANSFORMS | {"streams"}
    assert known == PipelineOptions.__annotations__.keys()
    said_in_code_only = {"world", "generator"}
    assert (known | {"path", "batch_size"}) - said_in_code_only == SETTINGS


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("batch_sise", "did you mean 'batch_size'"),
        ("output_format", "it is batch_format here"),
        ("split_bytes", "cut by themselves"),
        ("sampler", "order of its own|its own order"),
        ("qqqq", "takes no 'qqqq'. It takes .*batch_size, batch_transform"),
    ],
)
def test_unknown_names_are_refused(tmp_path: Path, option: str, said: str) -> None:
    """With what may have been meant, and the list."""
    options: dict[str, Any] = {option: 1}
    with pytest.raises(SchemaError, match=said):
        create_dataloader(tmp_path, batch_size=1, **options)


# --- places ---------------------------------------------------------------------------------------


def test_places_of_every_kind_are_read(parquet_folder: Path, ids_folder: Path) -> None:
    """A pattern, a file, a folder with its format, several, a URL; MDS in place."""
    whole = list(range(250))
    options: dict[str, Any] = {"batch_size": 20, "columns": ["id"]}
    for path in (f"{parquet_folder}/*.parquet", f"file://{parquet_folder}/**/*.parquet"):
        assert _ids(create_dataloader(path, **options)[0]) == whole
    assert _ids(create_dataloader(parquet_folder, format="parquet", **options)[0]) == whole
    parts = sorted(parquet_folder.glob("*.parquet"))
    assert _ids(create_dataloader(parts[1], **options)[0]) == list(range(84, 167))
    assert _ids(create_dataloader(parts, **options)[0]) == whole
    before = sorted(ids_folder.iterdir())
    assert _ids(create_dataloader(ids_folder, batch_size=20)[0]) == list(range(101))
    assert sorted(ids_folder.iterdir()) == before


def test_a_remote_is_kept_where_local_says(parquet_folder: Path, tmp_path: Path) -> None:
    """As with `Stream`, by its names or with `path`."""
    for name in ("path", "remote"):
        local = tmp_path / name
        place: dict[str, Any] = {name: f"{parquet_folder}/*.parquet"}
        loader, _ = create_dataloader(batch_size=20, columns=["id"], local=local, **place)
        assert _ids(loader) == list(range(250))
        assert list(local.rglob("*.arrow"))


def test_sources_are_mixed_in_proportions(parquet_folder: Path, ids_folder: Path) -> None:
    """Converted and other data, said as dicts; what they do not say is said for all."""
    loader, dataset = create_dataloader(
        streams=[
            {"path": f"{parquet_folder}/*.parquet", "proportion": 0.75, "columns": ["id", "text"]},
            {"path": ids_folder, "proportion": 0.25},
        ],
        batch_size=10,
        epoch_size=200,
        shuffle=True,
        batch_format="rows",
    )
    rows = [row for batch in loader for row in batch]
    counted = Counter("vector" in row for row in rows)
    assert counted == {False: 150, True: 50}
    assert len(dataset) == 200


def test_settings_outside_of_sources_hold_for_all(parquet_folder: Path) -> None:
    """Unless one says otherwise."""
    parts = [str(part) for part in sorted(parquet_folder.glob("*.parquet"))]
    loader, _ = create_dataloader(
        streams=[{"path": parts[0]}, {"path": parts[1], "columns": ["id", "x"]}],
        columns=["id"],
        batch_size=100,
        batch_format="rows",
    )
    names = {tuple(row) for batch in loader for row in batch}
    assert names == {("id",), ("id", "x")}


def test_stream_objects_are_taken_as_they_are(parquet_folder: Path) -> None:
    """And what is said beside them would be lost, so it is refused."""
    stream = Stream(remote=f"{parquet_folder}/*.parquet", columns=["id"])
    assert len(_ids(create_dataloader(streams=[stream], batch_size=9)[0])) == 250
    with pytest.raises(SchemaError, match=r"columns: streams\[0\] is a Stream"):
        create_dataloader(streams=[stream], batch_size=9, columns=["x"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "came none"),
        ({"path": "a", "streams": [{"path": "b"}]}, "came path and streams"),
        ({"path": "a", "remote": "b"}, "came path and remote or local"),
        ({"path": []}, "empty list"),
        ({"path": ["a", "b"], "local": "c"}, "with several, give streams"),
        ({"path": 3}, "came 3"),
        ({"streams": []}, "at least one, came"),
        ({"streams": "a"}, "must be a list"),
        ({"streams": [3]}, r"streams\[0\] must be a Stream or a dict"),
        ({"streams": [{"path": "a", "colums": ["x"]}]}, r"streams\[0\] takes no .*'columns'"),
        ({"streams": [{"columns": ["x"]}]}, "give remote"),
        ({"path": "a", "batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"path": "a", "batch_size": True}, "got True"),
        ({"path": "a", "rank": 1}, "rank and num_ranks together"),
        ({"path": "a", "rank": 0, "num_ranks": 1, "world": World()}, "and world"),
        ({"path": "a", "rank": "0", "num_ranks": 2}, "rank: expected a whole number"),
        ({"path": "a", "rank": 2, "num_ranks": 2}, "rank: expected a number from 0 to 1"),
    ],
)
def test_contradictions_are_said(options: dict[str, Any], said: str) -> None:
    """Before anything is read."""
    with pytest.raises(SchemaError, match=said):
        create_dataloader(**{"batch_size": 4, **options})


def test_an_unknown_format_lists_those_there_are(parquet_folder: Path) -> None:
    """Of files, and of batches."""
    with pytest.raises(SchemaError, match="parquet"):
        create_dataloader(parquet_folder, batch_size=4, format="parkett")
    pattern = f"{parquet_folder}/*.parquet"
    formats: Any = "pandas"
    with pytest.raises(SchemaError, match="one of torch, numpy, jax"):
        create_dataloader(pattern, batch_size=4, batch_format=formats)


# --- what reaches whom ----------------------------------------------------------------------------


@pytest.mark.process
def test_arguments_reach_data_set_and_loader(parquet_folder: Path) -> None:
    """Those of each, by name."""
    loader, dataset = create_dataloader(
        f"{parquet_folder}/*.parquet",
        batch_size=16,
        columns=["id"],
        num_workers=2,
        prefetch_factor=3,
        persistent_workers=True,
        multiprocessing_context="fork",
        pin_memory=False,
        drop_last=True,
        timeout=50,
        shuffle=True,
        shuffle_seed=5,
        shuffle_algo="windowed",
        epoch_size=96,
        predownload=40,
        world=World(1, 2, 2),
    )
    assert loader.dataset is dataset
    assert (loader.num_workers, loader.prefetch_factor, loader.timeout) == (2, 3, 50)
    assert loader.persistent_workers
    assert dataset.predownload == 40
    assert dataset.world == World(1, 2, 2)
    assert len(_ids(loader)) == 48
    assert len(loader) == 3
    state = loader.state_dict()
    assert state is not None
    assert state["shuffle_seed"] == 5


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_ranks_share_an_epoch_and_its_number(parquet_folder: Path, workers: int) -> None:
    """Given by number, shuffled, in other orders each epoch."""
    orders = []
    for epoch in (0, 1):
        found: list[int] = []
        for rank in (0, 1):
            loader, _ = create_dataloader(
                f"{parquet_folder}/*.parquet",
                batch_size=25,
                columns=["id"],
                shuffle=True,
                rank=rank,
                num_ranks=2,
                ranks_per_node=2,
                num_workers=workers,
            )
            loader.set_epoch(epoch)
            found += _ids(loader)
        assert Counter(found) == Counter(range(250))
        orders.append(found)
    assert orders[0] != orders[1]


def test_resumed_in_another_world(parquet_folder: Path) -> None:
    """A state of two ranks goes on with one, and the rest of the samples comes once."""
    taken: list[int] = []
    state: Any = None
    for rank in (0, 1):
        loader, _ = create_dataloader(
            f"{parquet_folder}/*.parquet",
            batch_size=5,
            columns=["id"],
            shuffle=True,
            rank=rank,
            num_ranks=2,
            ranks_per_node=2,
        )
        for number, batch in enumerate(loader, 1):
            taken += batch["id"].tolist()
            if number == 10:
                state = loader.state_dict()
                break
    alone, _ = create_dataloader(
        f"{parquet_folder}/*.parquet", batch_size=10, columns=["id"], shuffle=True
    )
    alone.load_state_dict(state)
    assert Counter(taken + _ids(alone)) == Counter(range(250))


@pytest.mark.process
def test_many_rows_come_once_each(tmp_path: Path) -> None:
    """Some ten thousand of several files, shuffled, with workers, by column."""
    for part in range(4):
        ids = pa.array(range(part * 10_000, (part + 1) * 10_000))
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{part}.parquet", row_group_size=3000)
    loader, _ = create_dataloader(
        f"{tmp_path}/*.parquet", batch_size=777, shuffle=True, num_workers=2, batch_format="numpy"
    )
    found = _ids(loader)
    assert sorted(found) == list(range(40_000))
    assert found != sorted(found)
