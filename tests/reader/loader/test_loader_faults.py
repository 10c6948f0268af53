"""The loader when something fails: typed errors, no torn batch, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reader.loader.standin import (
    Boom,
    Numbers,
    children,
    descriptors,
    shm,
    temp_files,
    until_gone,
    until_reaped,
)
from tests.reader.loader.ways import (
    FORKED,
    HERE,
    IN_PROCESS_AND_FORKED,
    PERSISTENT,
    SPAWNED,
    ids_of,
)

from streaming_core.errors import IndexInvalidError
from streaming_reader.loader import StreamingDataLoader

# Three workers on two cores must not fail the test.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

_process = pytest.mark.process
_essential = pytest.mark.essential


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(HERE, id="in process"),
        pytest.param(FORKED, id="fork", marks=[_process, _essential]),
        pytest.param(PERSISTENT, id="fork, persistent", marks=_process),
        pytest.param(SPAWNED, id="spawn", marks=_process),
    ],
)
def test_an_error_arrives_with_type_and_attributes(way: dict[str, Any]) -> None:
    """After the batches before it, once and for all; a new iteration starts over."""
    loader = StreamingDataLoader(Numbers(100, fail_at_batch=6), 4, **way)
    for _ in range(2):
        iterator = iter(loader)
        got = []
        with pytest.raises(Boom) as caught:
            got.extend(iterator)
        assert ids_of(got) == list(range(24))
        assert (caught.value.shard, caught.value.url) == (6, "s3://bucket/shard")
        if way["num_workers"]:
            assert "in DataLoader worker process" in caught.value.__notes__[0]
            assert "_disturb" in caught.value.__notes__[0]
            with pytest.raises(Boom):
                next(iterator)


@_process
def test_errors_with_structure_survive() -> None:
    """An error of ours keeps what a handler looks at."""
    loader = StreamingDataLoader(Numbers(100, index_error_at_batch=1), 4, num_workers=2)
    with pytest.raises(IndexInvalidError) as caught:
        list(loader)
    assert caught.value.problems[0].path == "$.a"


@_process
@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_at_the_beginning_of_an_epoch_is_raised(persistent: bool) -> None:
    """Also in a worker that is used again, and the iteration after that may succeed."""
    data = Numbers(20, fail_at_begin=2 if persistent else 1)
    loader = StreamingDataLoader(data, 4, num_workers=2, persistent_workers=persistent)
    if persistent:
        assert ids_of(loader) == list(range(20))
    with pytest.raises(Boom):
        list(loader)
    data.plan.clear()
    assert ids_of(loader) == list(range(20))


@pytest.mark.parametrize("workers", IN_PROCESS_AND_FORKED)
def test_a_stray_stop_iteration_is_no_end(workers: int) -> None:
    """No fault yields a short epoch."""
    loader = StreamingDataLoader(Numbers(40, stop_at_batch=3), 4, num_workers=workers)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


# torch raises the death of a worker from a signal handler: wherever the trainer is just then.
_anywhere = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@_anywhere
@pytest.mark.kill
@pytest.mark.timeout(120)  # no hang
@pytest.mark.parametrize("persistent", [pytest.param(False, marks=_essential), pytest.param(True)])
def test_a_killed_worker_is_an_error_at_once(persistent: bool) -> None:
    """No hang, and no batch that was not finished."""
    data = Numbers(400, 20_000, kill_at_batch=13)
    loader = StreamingDataLoader(data, 4, num_workers=2, persistent_workers=persistent)
    got: list[Any] = []
    with pytest.raises(RuntimeError, match=r"worker.*(killed|exited)"):
        got.extend(loader)
    assert ids_of(got) == list(range(len(got) * 4))
    assert len(got) <= 13
    data.plan.clear()
    assert ids_of(loader) == list(range(400))  # with new workers
    assert all(batch["x"].eq(batch["id"][:, None]).all() for batch in got)


@_anywhere
@pytest.mark.kill
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


# --- nothing left behind --------------------------------------------------------------------------


@_process
@pytest.mark.parametrize("persistent", [pytest.param(False, marks=_essential), True])
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

    workers = set(multiprocessing.active_children())

    def settle() -> None:
        until_reaped(
            lambda: set(multiprocessing.active_children()) <= workers, "workers have ended"
        )
        for thread in threading.enumerate():  # they close what they were writing to
            if thread.name == "QueueFeederThread":
                thread.join(90)

    some_batches()  # starts what is started once per process
    settle()
    opened, started, shared, files = descriptors(), children(), shm(), temp_files(tmp_path)
    for _ in range(3):
        some_batches()
    settle()
    until_gone(lambda: children() - started, "processes")
    until_gone(lambda: shm() - shared, "shared memory")
    assert temp_files(tmp_path) == files
    # What another test left open may be closed meanwhile.
    until_reaped(lambda: descriptors() <= opened, "its files are closed")


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


@pytest.mark.kill
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
        timeout=240,
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path / "tmp")},
    )
    # The pipe is at its end only when the workers, which inherited it, have ended as well.
    assert run.returncode == -signal.SIGKILL
    workers = run.stdout.split()
    assert len(workers) == 2
    until_gone(lambda: shm() - before, "shared memory")
    assert not list((tmp_path / "tmp").glob("*stream*"))
