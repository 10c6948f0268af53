"""Transforms: rows and batches on their way, left out or multiplied, resumed at every batch."""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.reader.pipeline.making import double, halves, is_wanted, nothing_or_many

from streaming_core import (
    StreamingDataLoader,
    StreamingDataset,
    Transforms,
    create_dataloader,
)
from streaming_core.errors import CheckpointError, SchemaError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

CASES: dict[str, dict[str, Any]] = {
    "a row for a row": {"transform": double},
    "left out": {"filter": is_wanted},
    "multiplied": {"transform": halves},
    "all of it": {"filter": is_wanted, "transform": [double, nothing_or_many]},
    "none or many": {"transform": nothing_or_many},
}
BATCH = 12

_process = pytest.mark.process
_HERE_AND_FORKED = [0, pytest.param(2, marks=_process)]


def _made(folder: Path, **options: Any) -> Any:
    settings = {"batch_size": BATCH, "columns": ["id"], "shuffle": True, "batch_format": "rows"}
    return create_dataloader(f"{folder}/*.parquet", **{**settings, **options})[0]


def _applied(case: dict[str, Any], rows: list[Any]) -> list[Any]:
    """Do what a case says in the plainest way."""
    keep, steps = case.get("filter"), case.get("transform", [])
    rows = [row for row in rows if keep is None or keep(row)]
    for step in steps if isinstance(steps, list) else [steps]:
        made = [step(row) for row in rows]
        rows = [r for m in made for r in ([m] if isinstance(m, dict) else m)]
    return rows


@pytest.mark.parametrize(
    ("case", "ranks", "workers"),
    [
        ("all of it", 1, 0),
        *(
            pytest.param(case, 1, 0, marks=pytest.mark.slow)
            for case in CASES
            if case != "all of it"
        ),
        ("all of it", 2, 0),
        pytest.param("all of it", 1, 2, marks=[_process, pytest.mark.essential]),
        pytest.param("left out", 2, 2, marks=_process),
        pytest.param("none or many", 2, 2, marks=_process),
    ],
)
def test_resumed_at_every_batch_exactly_the_rest_follows(
    parquet_folder: Path, case: str, ranks: int, workers: int
) -> None:
    """Each batch holds what became of as many samples; stopped anywhere, none is lost or twice.

    The state is that of the data set without transforms, and goes on in another world as well.
    """
    functions = CASES[case]
    world = {"num_ranks": ranks, "ranks_per_node": ranks, "num_workers": workers}
    whole: list[list[list[Any]]] = []
    for rank in range(ranks):
        plain = list(_made(parquet_folder, rank=rank, **world))
        found = list(_made(parquet_folder, rank=rank, **world, **functions))
        assert found == [_applied(functions, batch) for batch in plain]
        whole.append(found)
    assert len({len(batches) for batches in whole}) == 1
    stops = range(len(whole[0]) + 1) if not workers else (1, 4, len(whole[0]) - 1)
    for stop in stops:
        rank = stop % ranks
        loader = _made(parquet_folder, rank=rank, **world, **functions)
        running = iter(loader)
        first = list(itertools.islice(running, stop))
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["sample_in_epoch"] == min(ranks * BATCH * stop, ranks * (250 // ranks))
        if stop == len(whole[0]):
            continue
        resumed = _made(parquet_folder, rank=rank, **{**world, "num_workers": 0}, **functions)
        resumed.load_state_dict(state)
        assert first + list(resumed) == whole[rank], stop


@settings(max_examples=examples(15))
@given(counts=st.lists(st.integers(0, 4), min_size=250, max_size=250), stop=st.integers(0, 30))
def test_any_numbers_of_rows_resume_exactly(
    parquet_folder: Path, tmp_path_factory: pytest.TempPathFactory, counts: list[int], stop: int
) -> None:
    """However many rows each sample becomes, none at all included."""

    def step(row: dict[str, Any]) -> list[tuple[int, int]]:
        return [(row["id"], part) for part in range(counts[row["id"]])]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMING_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "shared"))
        loader = _made(parquet_folder, transform=step, batch_size=9)
        running = iter(loader)
        first = list(itertools.islice(running, stop))
        state = loader.state_dict()
        resumed = _made(parquet_folder, transform=step, batch_size=9)
        resumed.load_state_dict(state)
        rest = list(resumed) if stop < 28 else []
    wanted = sorted((i, part) for i, count in enumerate(counts) for part in range(count))
    assert sorted(row for batch in first + rest for row in batch) == wanted


def test_a_batch_with_nothing_left_is_an_empty_one(parquet_folder: Path) -> None:
    """So that all ranks go on in step, in every format."""
    for batch_format, empty in (("torch", {}), ("numpy", {}), ("dict", {}), ("rows", [])):
        loader = _made(parquet_folder, filter=lambda row: row["id"] == 7, batch_format=batch_format)
        batches = list(loader)
        assert len(batches) == 21
        assert batches.count(empty) == 20
    arrow = list(_made(parquet_folder, filter=lambda _: False, batch_format="arrow"))
    assert [len(table) for table in arrow] == [0] * 21


def _rescaled(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**batch, "y": batch["x"] * 2 + 1, "pid": torch.tensor([os.getpid()])}


@pytest.mark.parametrize("workers", _HERE_AND_FORKED)
def test_a_batch_transform_gets_finished_batches_where_they_are_made(
    parquet_folder: Path, workers: int
) -> None:
    """In the worker, with what single rows became; its result goes to the trainer as it is."""
    loader = _made(
        parquet_folder,
        columns=["id", "x"],
        batch_format="torch",
        batch_transform=_rescaled,
        num_workers=workers,
    )
    batches = list(loader)
    for batch in batches:
        assert torch.equal(batch["y"], batch["id"].double() + 1)
    processes = {int(batch["pid"]) for batch in batches}
    assert len(processes) == max(1, workers)
    assert (os.getpid() in processes) is (not workers)
    assert loader.num_samples_yielded == 250


def test_rows_become_what_columns_would_have_become(parquet_folder: Path) -> None:
    """A transform that changes nothing changes no batch: types, shapes and values."""
    columns = ["id", "x", "even", "text", "vector", "list"]
    for batch_format in ("torch", "numpy", "jax", "dict"):
        options: dict[str, Any] = {"columns": columns, "batch_format": batch_format}
        if batch_format == "torch":
            options["ragged"] = "offsets"
        plain = next(iter(_made(parquet_folder, **options)))
        made = next(iter(_made(parquet_folder, transform=dict, **options)))
        assert list(plain) == list(made)
        for name in columns:
            assert type(plain[name]) is type(made[name]), (batch_format, name)
            if hasattr(plain[name], "dtype"):
                assert plain[name].dtype == made[name].dtype
                assert plain[name].shape == made[name].shape
            for a, b in zip(plain[name], made[name], strict=True):
                assert np.array_equal(np.asarray(a), np.asarray(b)), (batch_format, name)
    table = next(iter(_made(parquet_folder, columns=columns, batch_format="arrow")))
    made = next(iter(_made(parquet_folder, columns=columns, batch_format="arrow", transform=dict)))
    assert made.to_pylist() == table.to_pylist()


def test_a_collate_function_gets_what_rows_became(parquet_folder: Path) -> None:
    """And samples are counted, not rows."""

    def collate(rows: list[dict[str, Any]]) -> list[int]:
        return [row["id"] for row in rows]

    loader = _made(parquet_folder, transform=halves, collate_fn=collate, shuffle=False)
    batches = list(loader)
    assert list(itertools.chain(*batches)) == [i for i in range(250) for _ in range(2)]
    assert loader.num_samples_yielded == 250


@_process
def test_transforms_travel_to_workers_that_are_started(parquet_folder: Path) -> None:
    """With the same rows as where they were made."""
    here = list(_made(parquet_folder, **CASES["all of it"]))
    there = _made(
        parquet_folder, **CASES["all of it"], num_workers=1, multiprocessing_context="spawn"
    )
    assert list(there) == here


def test_iterating_gives_transformed_rows_and_brackets_the_samples(ids_folder: Path) -> None:
    """MDS is transformed as other data is."""
    dataset = StreamingDataset(
        local=ids_folder, batch_size=4, transforms=Transforms.of(filter=is_wanted, transform=halves)
    )
    rows = list(dataset)
    assert [row["id"] for row in rows] == [i for i in range(0, 101, 3) for _ in range(2)]
    assert dataset[4]["id"] == 4
    assert dataset.take([1, 2])["id"].tolist() == [1, 2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", _HERE_AND_FORKED)
def test_torchdatas_loader_resumes_within_the_rows_of_a_sample(
    ids_folder: Path, workers: int
) -> None:
    """Its batches are of rows, and a sample may become more than fit into one."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    def made() -> Any:
        dataset = StreamingDataset(
            local=ids_folder,
            batch_size=4,
            shuffle=True,
            transforms=Transforms.of(transform=nothing_or_many),
        )
        way = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
        return StatefulDataLoader(dataset, batch_size=4, collate_fn=list, **way)

    whole = list(made())
    assert sum(map(len, whole)) == sum(i % 7 for i in range(101))
    for stop in range(1, len(whole), 1 if not workers else 17):
        stopped = made()
        first = list(itertools.islice(stopped, stop))
        resumed = made()
        resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
        assert first + list(resumed) == whole, stop


# --- errors ---------------------------------------------------------------------------------------


def test_a_transform_that_returns_nothing_is_refused(parquet_folder: Path) -> None:
    """It is more likely a forgotten `return` than a wish to train on nothing."""
    with pytest.raises(SchemaError, match=r"returned None for a row.*filter="):
        next(iter(_made(parquet_folder, transform=lambda row: row.update(y=1))))


def _broken(row: dict[str, Any]) -> Any:
    if row["id"] == 100:
        raise ZeroDivisionError("of one hundred")
    return row


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=_process)])
def test_an_error_keeps_its_type_and_says_where(parquet_folder: Path, workers: int) -> None:
    """Raised in the trainer's process, with the transform's name and the row's columns."""
    loader = _made(parquet_folder, transform=_broken, num_workers=workers)
    with pytest.raises(ZeroDivisionError, match="of one hundred") as found:
        list(loader)
    notes = "".join(getattr(found.value, "__notes__", []))
    assert "_broken" in notes
    assert "id" in notes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"transform": 3}, "transform: expected a function or a list"),
        ({"transform": [double, "double"]}, r"transform\[1\]: expected a function, got 'double'"),
        ({"filter": 0}, "filter: expected a function"),
        ({"batch_transform": "x"}, "batch_transform: expected a function"),
    ],
)
def test_what_is_no_function_is_refused(
    parquet_folder: Path, options: dict[str, Any], said: str
) -> None:
    """At once, by name."""
    with pytest.raises(SchemaError, match=said):
        _made(parquet_folder, **options)


def test_rows_that_are_no_dicts_need_a_format_that_takes_them(parquet_folder: Path) -> None:
    """Tensors and rows do; columns have no names there."""

    def pair(row: dict[str, Any]) -> tuple[int, float]:
        return row["id"], 0.5

    batch = next(iter(_made(parquet_folder, transform=pair, batch_format="torch")))
    assert batch[0].dtype == torch.int64
    assert len(batch[1]) == BATCH
    with pytest.raises(SchemaError, match="returned a tuple"):
        next(iter(_made(parquet_folder, transform=pair, batch_format="numpy")))


def test_rows_of_different_columns_are_named(parquet_folder: Path) -> None:
    """As everywhere."""
    with pytest.raises(SchemaError, match="the first has"):
        list(
            _made(
                parquet_folder,
                transform=lambda row: {f"c{row['id'] % 2}": 1},
                batch_format="torch",
            )
        )


def test_single_samples_cannot_be_counted(ids_folder: Path) -> None:
    """So a loader without batches is refused."""
    dataset = StreamingDataset(
        local=ids_folder, batch_size=4, transforms=Transforms.of(transform=halves)
    )
    with pytest.raises(SchemaError, match="batch_size=None"):
        StreamingDataLoader(dataset, None)


class _Own(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        return {"id": super().__getitem__(at)["id"], "own": True}


class _Iterates(StreamingDataset):
    def __iter__(self) -> Any:
        yield {"id": 1}


def test_a_subclasss_samples_are_transformed(ids_folder: Path) -> None:
    """Where it makes single ones; one that iterates itself is refused."""
    transforms = Transforms.of(transform=lambda row: {**row, "twice": 2 * row["id"]})
    own = _Own(local=ids_folder, batch_size=8, transforms=transforms)
    batches = list(StreamingDataLoader(own, 8))
    assert batches[1]["twice"].tolist() == list(range(16, 32, 2))
    assert batches[0]["own"].all()
    itself = _Iterates(local=ids_folder, batch_size=8, transforms=transforms)
    with pytest.raises(SchemaError, match="__iter__ of its own"):
        next(itself.batches())


def test_a_state_of_other_rows_is_refused(ids_folder: Path) -> None:
    """Where a sample becomes fewer rows than were given of it."""
    import torchdata.stateful_dataloader  # noqa: F401 - loaded, it may ask

    def rows(transform: Any) -> Any:
        dataset = StreamingDataset(
            local=ids_folder, batch_size=4, transforms=Transforms.of(transform=transform)
        )
        return iter(dataset)

    given_rows = rows(halves)
    for _ in range(4):
        next(given_rows)
    state = given_rows.state_dict()
    with pytest.raises(CheckpointError, match="transforms are others"):
        rows(double).load_state_dict(state)
