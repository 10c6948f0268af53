"""What a loader says of its speed: figures that agree with what was done, and what to do."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.reader.pipeline.making import write_parquet
from tests.reader.waiting import until

from streaming_core import (
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
    create_dataloader,
    register_store,
)
from streaming_core._store import LocalStore
from streaming_core.testing import LatencyStore
from streaming_reader._metrics import Clock, Figures, diagnosed, log_end, metrics_of

if TYPE_CHECKING:
    from pathlib import Path

IDLE = Figures(
    steady=10, wait=0, shards=0, order=0, decode=0, format=0, transform=0, fill=0, make=0, pace=0
)


def _slowly(batch: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.2)
    return batch


def _finish(loader: Any) -> dict[str, Any]:
    for _ in loader:
        pass
    found: dict[str, Any] = loader.metrics()
    return found


class _Stopped:
    """A clock of this process that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def spend(self, seconds: float, given: Any = None) -> Any:
        """Let time pass, and return what was given."""
        self.now += int(seconds * 1e9)
        return given


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Stopped:
    """Measure durations with a clock that stands still."""
    found = _Stopped()
    monkeypatch.setattr(time, "perf_counter_ns", found)
    return found


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "bound"),
    [
        ({"wait": 0.9}, "trainer"),
        ({"wait": 9, "shards": 15, "decode": 2, "fill": 30, "make": 10}, "network"),
        ({"wait": 9, "shards": 15, "decode": 2, "fill": 30, "make": 20}, "source"),
        ({"wait": 9, "shards": 15, "decode": 2, "fill": 30, "pace": 20}, "busy"),
        ({"wait": 9, "order": 12, "decode": 2}, "order"),
        ({"wait": 9, "decode": 12, "shards": 2, "fill": 30}, "decode"),
        ({"wait": 9, "format": 12, "decode": 2}, "format"),
        ({"wait": 9, "transform": 12, "decode": 2}, "transform"),
        ({"wait": 9, "decode": 2}, "other"),
    ],
)
def test_what_takes_most_of_the_workers_time_is_named(spent: dict[str, float], bound: str) -> None:
    """But only where the trainer waits for them, and after some batches."""
    figures = IDLE._replace(**spent)
    assert diagnosed(100, 2, figures) == bound
    assert diagnosed(3, 2, figures) == "start"


def test_nothing_is_said_of_an_iteration_without_batches() -> None:
    """And nothing is divided by nothing."""
    found = metrics_of(Clock())
    assert (found["bound"], found["samples"], found["wait_share"]) == ("start", 0, 0)
    assert {type(value) for value in found.values()} <= {int, float, str}


# --- what was done --------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_figures_are_of_one_iteration(tmp_path: Path, workers: int) -> None:
    """The first one fetches and decodes, the second finds all in the cache; both begin at 0."""
    folder = write_parquet(tmp_path / "table", 250)
    loader, dataset = create_dataloader(
        f"{folder}/*.parquet",
        batch_size=16,
        columns=["id", "text"],
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    assert loader.metrics()["batches"] == 0
    first, second = _finish(loader), _finish(loader)
    for found in (first, second):
        assert (found["samples"], found["batches"]) == (250, 16)
        assert found["bytes_used"] > 250 * 8
        assert 0 < found["first_batch_seconds"] < found["seconds"]
        assert 0 <= found["wait_seconds"] <= found["seconds"] - found["first_batch_seconds"]
        assert 0 <= found["wait_share"] <= 1
        assert found["worker_format_seconds"] > 0
        assert found["worker_transform_seconds"] < found["worker_format_seconds"]
    assert first["shards_opened"] >= first["shards_fetched"] == dataset.num_shards
    assert first["bytes_on_wire"] > 0
    assert first["thread_make_seconds"] > 0
    assert (second["shards_fetched"], second["bytes_on_wire"]) == (0, 0)
    # Some are open from before.
    assert second["cache_hit_share"] == 1
    assert first["cache_hit_share"] == 1 - dataset.num_shards / first["shards_opened"]
    assert dataset.stats()["samples"] == 500


def test_an_iteration_that_was_left_counts_what_it_gave(parquet_folder: Path) -> None:
    """And the next one begins anew."""
    loader, _ = create_dataloader(f"{parquet_folder}/*.parquet", columns=["id"], batch_size=16)
    for at, _ in enumerate(loader, 1):
        assert loader.metrics()["batches"] == at
        if at == 5:
            break
    next(iter(loader))
    assert loader.metrics()["samples"] == 16


@pytest.mark.parametrize("way", ["transform", "batch_transform", "collate_fn"])
def test_slow_functions_of_the_user_are_told(
    parquet_folder: Path, clock: _Stopped, way: str
) -> None:
    """Those for rows, for batches, and a collate function beside a filter."""
    ways: dict[str, dict[str, Any]] = {
        "transform": {"transform": lambda row: clock.spend(0.001, row)},
        "batch_transform": {"batch_transform": lambda batch: clock.spend(0.02, batch)},
        "collate_fn": {"collate_fn": lambda rows: clock.spend(0.02, rows), "filter": bool},
    }
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet", columns=["id"], batch_size=16, **ways[way]
    )
    found = _finish(loader)
    assert found["bound"] == "transform"
    spent = 0.25 if way == "transform" else 16 * 0.02
    assert found["worker_transform_seconds"] == pytest.approx(spent)
    assert "save the result with MDSWriter" in found["hint"]


@pytest.mark.process
def test_slow_functions_in_workers_are_told(parquet_folder: Path) -> None:
    """As workers measure them by their own clocks."""
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet",
        columns=["id"],
        batch_size=16,
        num_workers=2,
        batch_transform=_slowly,
    )
    found = _finish(loader)
    assert found["bound"] == "transform"
    assert found["worker_transform_seconds"] > 16 * 0.19


@pytest.mark.process
def test_a_slow_trainer_is_told_and_finds_batches_ready(
    parquet_folder: Path, clock: _Stopped
) -> None:
    """As many as its workers may prefetch."""
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet", columns=["id"], batch_size=16, num_workers=2
    )
    batches: Any = iter(loader)
    end = time.monotonic() + 60
    for number, _ in enumerate(batches, 1):
        clock.spend(0.03)
        while batches._num_ready() < min(4, 16 - number):  # the trainer works on it
            assert time.monotonic() < end
            time.sleep(0.001)
    found = loader.metrics()
    assert found["bound"] == "trainer"
    assert 3 < found["ready_batches"] <= 4
    assert "Loading keeps up" in found["hint"]


def test_a_slow_disk_is_not_taken_for_a_network(
    tmp_path: Path, clock: _Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all sources are folders of this machine, nothing came through one."""
    ways: list[dict[str, Any]] = []
    for name in ("a", "b"):
        folder = write_parquet(tmp_path / name, 120, group=8)
        ways.append(
            {"path": f"{folder}/*.parquet", "columns": ["id"], "local": tmp_path / f"{name}c"}
        )
    read = LocalStore.get_ranges
    main = threading.main_thread().ident or 0

    def slowly(*given: Any, **options: Any) -> Any:
        # All threads have one clock: the time passes while the trainer waits for what is read.
        if threading.get_ident() != main:
            until(lambda: sys._current_frames()[main].f_code.co_name == "wait")
        clock.spend(1)
        return read(*given, **options)

    monkeypatch.setattr(LocalStore, "get_ranges", slowly)
    register_store("slowdisk", lambda url: LocalStore(str(tmp_path / url.rpartition("/")[2])))
    found = _finish(create_dataloader(streams=ways, batch_size=8, predownload=8)[0])
    assert found["bound"] == "disk"
    assert "disk" in found["hint"]
    ways[0] = {"path": "slowdisk://a", "format": "parquet", "columns": ["id"]}
    far = {**ways[0], "local": tmp_path / "far"}
    found = _finish(create_dataloader(streams=[far, ways[1]], batch_size=8, predownload=8)[0])
    assert found["bound"] == "network"


class _Own(StreamingDataset):
    """Makes samples of its own."""

    def __getitem__(self, at: Any) -> Any:
        return {**super().__getitem__(at), "own": 1}


class _OwnRows(StreamingDataset):
    """Makes them in the other way."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        return {"id": super().get_item(sample_id, retry)["id"]}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_the_bytes_that_a_subclass_reads_are_counted(tmp_path: Path, workers: int) -> None:
    """Those of the stored values, whatever it makes of them; nothing else that is read counts."""
    columns = {"id": "int", "small": "int8", "real": "float32", "text": "str", "raw": "bytes"}
    with MDSWriter(out=tmp_path, columns={**columns, "many": "ndarray:int16"}) as writer:
        for number in range(50):
            text, many = "\xfc" * number, np.zeros(number, np.int16)
            row = {"id": number, "small": np.int8(1), "real": np.float32(1), "text": text}
            writer.write({**row, "raw": b"1" * number, "many": many})
    for kind in (StreamingDataset, _Own, _OwnRows):
        dataset = kind(local=tmp_path, batch_size=4)
        assert dataset[7]["id"] == 7
        for epoch in (1, 2):
            loader = StreamingDataLoader(
                dataset, 4, num_workers=workers, batch_format="rows", collate_fn=list
            )
            assert sum(map(len, loader)) == 50
            assert loader.metrics()["bytes_used"] == 50 * 13 + 5 * sum(range(50))
            assert dataset.stats()["bytes_used"] == epoch * loader.metrics()["bytes_used"]


@pytest.mark.parametrize(
    ("workers", "batches"),
    [(0, None), (0, 4), pytest.param(2, None, marks=pytest.mark.process)],
)
def test_what_a_subclass_reads_is_counted(
    ids_folder: Path, tmp_path: Path, workers: int, batches: int | None
) -> None:
    """As what the data set itself reads."""
    found: list[dict[str, Any]] = []
    for kind in (StreamingDataset, _Own):
        dataset = kind(remote=ids_folder, local=tmp_path / kind.__name__, batch_size=4)
        loader = StreamingDataLoader(dataset, 4, num_workers=workers)
        for _ in itertools.islice(loader, batches):
            pass
        found.append(loader.metrics())
    names = ["shards_fetched", "bytes_on_wire", "shards_opened"]
    if workers:  # what one has just fetched, another opens again, or finds open
        assert found[1][names.pop()] >= dataset.num_shards
    if batches is None:
        assert [found[1][name] for name in names] == [found[0][name] for name in names]
        assert found[1]["shards_fetched"] == dataset.num_shards
        assert found[1]["bytes_on_wire"] > 0
    else:
        assert all(found[1][name] > 0 for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
def test_a_slow_store_is_told(tmp_path: Path, workers: int) -> None:
    """By the time that threads wait for its bytes."""
    with MDSWriter(out=str(tmp_path / "set"), columns={"x": "int"}, size_limit=2000) as out:
        for x in range(1000):
            out.write({"x": x})
    register_store("slowly", lambda _: LatencyStore(LocalStore(str(tmp_path / "set")), 0.4))
    loader, _ = create_dataloader(
        remote="slowly://set",
        local=tmp_path / "local",
        batch_size=50,
        num_workers=workers,
        predownload=50,
    )
    found = _finish(loader)
    assert found["samples"] == 1000
    assert found["bound"] == "network"
    assert found["worker_wait_shard_seconds"] > found["worker_decode_seconds"]


# --- where it is said -----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
def test_a_finished_iteration_is_logged_once(
    parquet_folder: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    """With all figures in the record, those that the loader says."""
    loader, _ = create_dataloader(
        f"{parquet_folder}/*.parquet", columns=["id"], batch_size=16, num_workers=workers
    )
    with caplog.at_level(logging.INFO, "streaming_core.reader"):
        batches = iter(loader)
        for _ in range(16):
            next(batches)
        assert not [record for record in caplog.records if hasattr(record, "metrics")]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)
    (record,) = [record for record in caplog.records if hasattr(record, "metrics")]
    figures: Any = record.__dict__["metrics"]
    assert figures == loader.metrics()
    assert figures["hint"] in record.getMessage()


def test_nothing_is_made_for_a_log_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures cost a little."""

    def never(clock: Clock) -> dict[str, int]:
        pytest.fail(f"{clock} was counted")

    monkeypatch.setattr(Clock, "counted", never)
    log_end(Clock())
