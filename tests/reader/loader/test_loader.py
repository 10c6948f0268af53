"""The loader: torch's arguments and processes, finished batches, exact counts, typed errors."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reader.loader.standin import (
    Boom,
    Numbers,
    children,
    descriptors,
    first_column,
    shm,
    temp_files,
)
from torch.utils.data import DataLoader, TensorDataset, default_collate, get_worker_info

from streaming_core.errors import IndexInvalidError
from streaming_reader.loader import StreamingDataLoader

# Three workers on a machine of two cores are no reason to fail.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WAYS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 1},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "spawn"},
    {"num_workers": 2, "multiprocessing_context": "forkserver", "persistent_workers": True},
    {"num_workers": 3, "multiprocessing_context": "fork", "prefetch_factor": 5},
]


def _ids(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_kind_of_worker_gives_the_same_batches(way: dict[str, Any]) -> None:
    """Values, types, order and count are equal for any start method, twice in a row."""
    loader = StreamingDataLoader(Numbers(103), 10, **way)
    for _ in range(2):
        batches = list(loader)
        assert _ids(batches) == list(range(103))
        for batch in batches:
            assert list(batch) == ["id", "x", "text", "blob"]
            assert isinstance(batch["x"], torch.Tensor)
            assert batch["x"].eq(batch["id"][:, None]).all()
            assert batch["text"] == [str(int(i)) for i in batch["id"]]
            assert batch["blob"] == [bytes([int(i) % 256]) * 5000 for i in batch["id"]]
        assert loader.num_samples_yielded == 103


@pytest.mark.parametrize("workers", [0, 2])
def test_formats_and_drop_last_reach_the_data_set(workers: int) -> None:
    """`batch_format` says what a batch consists of, `drop_last` what becomes of a short one."""
    loader = StreamingDataLoader(
        Numbers(25), 10, batch_format="numpy", drop_last=True, num_workers=workers
    )
    batches = list(loader)
    assert _ids(batches) == list(range(20))
    assert all(type(batch["x"]) is np.ndarray for batch in batches)


def test_the_loader_stays_what_users_expect() -> None:
    """Attributes and length are torch's, however batches are made."""
    data = Numbers(103)
    loader = StreamingDataLoader(data, 10, num_workers=2)
    assert loader.dataset is data
    assert (loader.batch_size, loader.drop_last, len(loader)) == (10, False, 11)
    assert loader.collate_fn is default_collate
    assert isinstance(loader, DataLoader)
    assert len(list(loader)) == 11


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_collate_function_gets_lists_of_samples(workers: int, drop_last: bool) -> None:
    """What it returns arrives as torch's loader gives it, and samples are counted, not columns."""
    options: dict[str, Any] = {
        "batch_size": 4, "num_workers": workers, "collate_fn": first_column, "drop_last": drop_last
    }  # fmt: skip
    ours, theirs = StreamingDataLoader(Numbers(42), **options), DataLoader(Numbers(42), **options)
    for a, b in zip(ours, theirs, strict=True):
        assert a[0].equal(b[0])
    assert ours.num_samples_yielded == (40 if drop_last else 42)


def test_without_a_batch_size_samples_come_one_by_one() -> None:
    """As torch does it: converted, not collated; each is counted."""
    loader = StreamingDataLoader(Numbers(9), None, num_workers=2)
    samples = list(loader)
    assert sorted(sample["id"] for sample in samples) == list(range(9))
    assert isinstance(samples[0]["x"], torch.Tensor)
    assert loader.num_samples_yielded == 9


@pytest.mark.parametrize("workers", [0, 2])
def test_other_data_sets_are_loaded_as_torch_does_it(workers: int) -> None:
    """A map-style data set shuffles, has no state, and counts its samples."""
    data = TensorDataset(torch.arange(50), torch.arange(50))
    loader = StreamingDataLoader(data, 8, shuffle=True, num_workers=workers)
    seen = [int(i) for batch in loader for i in batch[0]]
    assert sorted(seen) == list(range(50)) != seen
    assert loader.num_samples_yielded == 50
    assert loader.state_dict() is None
    loader.load_state_dict(None)
    with pytest.raises(TypeError, match="TensorDataset is no streaming data set"):
        loader.load_state_dict({"epoch": 1})


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS[:4], ids=str)
def test_state_counts_what_the_trainer_received(way: dict[str, Any]) -> None:
    """Prefetched batches do not count, ranks do, replicas count once; a new iteration is at 0."""
    loader = StreamingDataLoader(Numbers(60, num_ranks=6, replication=2), 4, **way)
    assert loader.state_dict() == {"num_samples": 0, "from_beginning": False}
    for received, _ in enumerate(loader, 1):
        assert loader.num_samples_yielded == 4 * received
        assert loader.state_dict() == {"num_samples": 4 * received * 3, "from_beginning": False}
        if received == 7:
            break
    assert loader.num_samples_yielded == 28
    iterator = iter(loader)
    assert loader.num_samples_yielded == 0
    next(iterator)
    assert loader.num_samples_yielded == 4


def test_a_state_goes_to_the_data_set() -> None:
    """Loading is the data set's business."""
    data = Numbers(4)
    StreamingDataLoader(data).load_state_dict({"epoch": 3})
    assert data.loaded == {"epoch": 3}


def test_two_loaders_at_once_do_not_disturb_each_other() -> None:
    """Batches and counts of two data sets, and of two iterations of one, stay apart."""
    one = StreamingDataLoader(Numbers(40, 700), 4, num_workers=2)
    two = StreamingDataLoader(Numbers(80, 800), 8, num_workers=1)
    again = iter(one)
    got = [[], [], []]  # type: ignore[var-annotated]
    for a, b, c in zip(again, two, one, strict=True):
        for kept, batch in zip(got, (a, b, c), strict=True):
            kept.append(batch)
    assert [_ids(batches) for batches in got] == [list(range(40)), list(range(80)), list(range(40))]
    assert (one.num_samples_yielded, two.num_samples_yielded) == (40, 80)


def test_kept_batches_never_change() -> None:
    """Whoever keeps all batches of an epoch gets them whole, though slots run out."""
    batches = list(StreamingDataLoader(Numbers(2000), 10, num_workers=2, prefetch_factor=2))
    assert _ids(batches) == list(range(2000))
    assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in batches)


def test_out_of_order_delivery_loses_nothing() -> None:
    """With `in_order=False` all batches come, in whatever order."""
    loader = StreamingDataLoader(Numbers(200), 4, num_workers=3, in_order=False)
    assert sorted(_ids(loader)) == list(range(200))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS[:5], ids=str)
def test_an_error_arrives_with_type_and_attributes(way: dict[str, Any]) -> None:
    """After the batches before it, once and for all; a new iteration begins anew."""
    loader = StreamingDataLoader(Numbers(100, fail_at_batch=6), 4, **way)
    for _ in range(2):
        iterator = iter(loader)
        got = []
        with pytest.raises(Boom) as caught:
            got.extend(iterator)
        assert _ids(got) == list(range(24))
        assert (caught.value.shard, caught.value.url) == (6, "s3://bucket/shard")
        if way["num_workers"]:
            assert "in DataLoader worker process" in caught.value.__notes__[0]
            assert "_disturb" in caught.value.__notes__[0]
            with pytest.raises(Boom):
                next(iterator)


def test_errors_with_structure_survive() -> None:
    """An error of ours keeps what a handler looks at."""
    loader = StreamingDataLoader(Numbers(100, index_error_at_batch=1), 4, num_workers=2)
    with pytest.raises(IndexInvalidError) as caught:
        list(loader)
    assert caught.value.problems[0].path == "$.a"


@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_at_the_beginning_of_an_epoch_is_raised(persistent: bool) -> None:
    """Also in a worker that is used again, and the iteration after that may succeed."""
    data = Numbers(20, fail_at_begin=2 if persistent else 1)
    loader = StreamingDataLoader(data, 4, num_workers=2, persistent_workers=persistent)
    if persistent:
        assert _ids(loader) == list(range(20))
    with pytest.raises(Boom):
        list(loader)
    data.plan.clear()
    assert _ids(loader) == list(range(20))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stray_stop_iteration_is_no_end(workers: int) -> None:
    """No fault yields a short epoch."""
    loader = StreamingDataLoader(Numbers(40, stop_at_batch=3), 4, num_workers=workers)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


# torch raises the death of a worker from a signal handler: wherever the trainer is just then.
_anywhere = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@_anywhere
@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_an_error_at_once(persistent: bool) -> None:
    """No hang, and no batch that was not finished."""
    data = Numbers(400, 20_000, kill_at_batch=13)
    loader = StreamingDataLoader(data, 4, num_workers=2, persistent_workers=persistent)
    began = time.monotonic()
    got: list[Any] = []
    with pytest.raises(RuntimeError, match=r"worker.*(killed|exited)"):
        got.extend(loader)
    assert time.monotonic() - began < 30
    assert _ids(got) == list(range(len(got) * 4))
    assert len(got) <= 13
    data.plan.clear()
    assert _ids(loader) == list(range(400))  # with new workers
    assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in got)


@_anywhere
def test_workers_killed_at_random_never_deliver_a_torn_batch() -> None:
    """Whenever the kill comes, each batch that arrives is whole, and then there is an error."""
    for delay in np.random.default_rng(3).uniform(0.0, 0.05, 6):
        loader = StreamingDataLoader(Numbers(40_000, 20_000), 8, num_workers=2)
        iterator = iter(loader)
        next(iterator)
        pid = iterator._workers[1].pid
        timer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(RuntimeError, match=r"worker.*(killed|exited)"):
            assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in iterator)
        timer.join()


# --- what else torch's loader can do --------------------------------------------------------------


def _tell_data_set(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.width = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_init_sees_the_users_data_set(method: str) -> None:
    """Worker info of torch names the data set that the loader was made with."""
    loader = StreamingDataLoader(
        Numbers(8), 4, num_workers=1, worker_init_fn=_tell_data_set, multiprocessing_context=method
    )
    assert [tuple(batch["x"].shape) for batch in loader] == [(4, 3), (4, 3)]


def test_generator_and_timeout_are_torchs() -> None:
    """The base seed comes from the generator, and a slow worker is an error after the timeout."""
    seeds = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(5)
        iterator = iter(StreamingDataLoader(Numbers(8), 4, generator=generator, num_workers=1))
        seeds.append(iterator._base_seed)
    assert seeds[0] == seeds[1]
    loader = StreamingDataLoader(_Never(8), 4, num_workers=1, timeout=0.3)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        list(loader)


class _Never(Numbers):
    """A data set whose batches do not come."""

    def batches(self, **_: Any) -> Any:
        """Wait for what never happens, until the test has ended."""
        threading.Event().wait(20)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
@pytest.mark.parametrize("workers", [0, 2])
def test_pinning_gives_the_same_batches(workers: int) -> None:
    """Without an accelerator nothing happens; with one, tensors are page-locked."""
    loader = StreamingDataLoader(Numbers(40), 4, num_workers=workers, pin_memory=True)
    batches = list(loader)
    assert _ids(batches) == list(range(40))
    assert all(batch["x"].is_pinned() == torch.accelerator.is_available() for batch in batches)
    assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in batches)
    assert loader.num_samples_yielded == 40


# --- nothing left behind --------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
def test_breaking_off_leaves_nothing(persistent: bool, tmp_path: Path) -> None:
    """Open files, processes, shared memory and temp dir are afterwards as they were before."""

    def some_batches() -> None:
        loader = StreamingDataLoader(
            Numbers(400), 4, num_workers=2, persistent_workers=persistent, prefetch_factor=4
        )
        for _ in range(2):
            for k, _batch in enumerate(loader):
                if k == 5:
                    break

    def settle() -> None:
        gc.collect()
        for thread in threading.enumerate():  # they close what they were writing to
            if thread.name == "QueueFeederThread":
                thread.join(20)

    some_batches()  # whatever is started once per process
    settle()
    opened, before = descriptors(), (children(), shm(), temp_files(tmp_path))
    for _ in range(3):
        some_batches()
    settle()
    assert (children(), shm(), temp_files(tmp_path)) == before
    assert descriptors() <= opened  # what another test left open may be closed meanwhile


_ORPHANS = """
import os, signal, sys
from streaming_reader.loader import StreamingDataLoader
from tests.reader.loader.standin import Numbers

if __name__ == "__main__":
    iterator = iter(StreamingDataLoader(Numbers(10**6), 4, num_workers=2,
                                        multiprocessing_context=sys.argv[1]))
    next(iterator)
    print(*(worker.pid for worker in iterator._workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_trainer_leaves_nothing(method: str, tmp_path: Path) -> None:
    """Its workers end on their own, and no name is left in shared memory or the temp dir."""
    before = shm()
    script = tmp_path / "train.py"
    script.write_text(_ORPHANS, "utf-8")
    root = str(Path(__file__).parents[3])
    (tmp_path / "tmp").mkdir()
    run = subprocess.run(
        [sys.executable, str(script), method],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path / "tmp")},
    )
    # The pipe is at its end only when the workers, which inherited it, have ended as well.
    assert run.returncode == -signal.SIGKILL
    workers = run.stdout.split()
    assert len(workers) == 2
    assert shm() <= before
    assert not list((tmp_path / "tmp").glob("*stream*"))
