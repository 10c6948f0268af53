"""Ranks of torch jobs: killed and started anew, alone, before and after there is a group."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.reader.conftest import write_ids
from tests.reader.frameworks.launching import launch, quiet_environment, torchrun
from tests.reader.frameworks.rank_jobs import BATCH, EPOCHS, KILLED_AT

from streaming_core import StreamingDataset

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

_JOBS = "tests.reader.frameworks.rank_jobs"


@pytest.mark.framework
@pytest.mark.kill
def test_a_job_whose_ranks_are_killed_trains_on_every_sample_once(tmp_path: Path) -> None:
    """Torchrun starts it anew twice, and each time it goes on from the state that was saved last.

    Steps after that state are done again with the same samples.
    """
    write_ids(tmp_path / "data", 0, 80, shard=9)
    torchrun(2, _JOBS, "resumable", tmp_path, restarts=len(KILLED_AT))
    for attempt in KILLED_AT:
        assert (tmp_path / f"killed.{attempt}").exists()
    found: dict[int, list[list[int]]] = {0: [], 1: []}
    notes = list(tmp_path.glob("step.*.json"))
    assert len(notes) == EPOCHS * 80 // BATCH
    for note in notes:
        epoch, given = json.loads(note.read_text())
        found[epoch].append(given)
    for batches in found.values():
        assert Counter(i for batch in batches for i in batch) == Counter(range(80))
    assert sorted(found[0]) != sorted(found[1])


@pytest.mark.framework
def test_ranks_never_wait_for_each_other(tmp_path: Path) -> None:
    """One iterates while the other does not, without a group and with one; none is made for it."""
    write_ids(tmp_path / "data", 0, 40, shard=9)
    idle, busy = launch(2, _JOBS, "alone", tmp_path)
    assert idle == [[], [], []]
    assert len(busy[0]) == 20
    assert busy[0] == busy[1] == busy[2]


_QUIET = """
import sys
from streaming_core import StreamingDataLoader, StreamingDataset

def check(method):
    dataset = StreamingDataset(local=sys.argv[1], batch_size=4, shuffle=True)
    wanted = [sample["id"] for sample in dataset]
    second = [sample["id"] for sample in dataset]
    dataset.next_epoch = 0
    loader = StreamingDataLoader(
        dataset, batch_size=4, num_workers=2 - (method == "spawn"), multiprocessing_context=method
    )
    assert [int(i) for batch in loader for i in batch["id"]] == wanted
    assert [int(i) for batch in loader for i in batch["id"]] == second
    import torch
    assert not torch.cuda.is_initialized()

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        check(method)
"""


@pytest.mark.process
def test_workers_of_any_kind_go_on_with_what_the_main_process_began(tmp_path: Path) -> None:
    """The data set is iterated where it was made and then in workers, with warnings as errors."""
    script = tmp_path / "script.py"
    script.write_text(_QUIET)
    write_ids(tmp_path / "data", 0, 40, shard=9)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(tmp_path / "data")],
        env=quiet_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not done.stderr


_NOTEBOOK = """
import sys
import streaming_core as streaming

assert "torch" not in sys.modules
dataset = streaming.StreamingDataset(local=sys.argv[1], batch_size=4)
assert "torch" not in sys.modules
loader = streaming.StreamingDataLoader(
    dataset, batch_size=4, num_workers=1, multiprocessing_context="spawn"
)
assert sorted(int(i) for batch in loader for i in batch["id"]) == list(range(40))
"""


@pytest.mark.process
def test_it_works_where_there_is_no_main_module(tmp_path: Path) -> None:
    """As in a notebook, whose cells no spawned worker can import."""
    write_ids(tmp_path / "data", 0, 40, shard=9)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _NOTEBOOK, str(tmp_path / "data")],
        env=quiet_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.process
def test_a_seed_that_is_set_anew_does_not_repeat_an_epoch(ids_folder: Path) -> None:
    """Torch then names every run of workers alike, and they still begin the next one together."""
    import torch

    from streaming_core import StreamingDataLoader

    def ids(loader: StreamingDataLoader) -> list[int]:
        torch.manual_seed(7)
        return [int(i) for batch in loader for i in batch["id"]]

    loaders = [
        StreamingDataLoader(
            StreamingDataset(local=ids_folder, batch_size=4, shuffle=True),
            batch_size=4,
            num_workers=number,
            multiprocessing_context="fork" if number else None,
        )
        for number in (0, 2)
    ]
    epochs = [[ids(loader) for _ in range(3)] for loader in loaders]
    assert epochs[0] == epochs[1]
    assert epochs[0][0] != epochs[0][1] != epochs[0][2]
