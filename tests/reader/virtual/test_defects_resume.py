"""Checkpoints: what torch-dataloader-utils and EasyData lose or repeat, and we do not.

What both do here was seen by running them: see `docs/comparison-any-format.md`.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.frameworks.launching import quiet_environment
from tests.reader.virtual.defects import ids_of, made, none_lost, ranks_of, write_files
from tests.servers.web import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_ROWS = 10_000
_DEADLINE_SECONDS = 120.0


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return ten files of a thousand rows, ten row groups each."""
    return write_files(tmp_path_factory.mktemp("rows") / "rows", [1000] * 10)


class _Noted:
    """A batch transform that leaves a file for each batch that a worker has made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def __call__(self, batch: Any) -> Any:
        (self._folder / str(int(batch["id"][0]))).touch()
        return batch

    def wait(self, count: int) -> None:
        """Return once so many batches were made."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while len(list(self._folder.iterdir())) < count:
            assert time.monotonic() < deadline, f"no {count} batches were made"
            time.sleep(0.01)


@pytest.mark.process
@pytest.mark.parametrize("stop", [1, 9, 16, 17, 19])
def test_no_row_is_lost_while_workers_are_ahead(folder: Path, tmp_path: Path, stop: int) -> None:
    """The checkpoint counts what the trainer was given, not what workers have finished.

    torch-dataloader-utils counts a worker's whole part once that has made its last batch: stopped
    after 17 of 20 batches it loses the 1,500 rows that were on their way.
    """
    noted = _Noted(tmp_path / "noted")
    options = {"batch_size": 500, "num_workers": 2, "prefetch_factor": 4, "shuffle": True}
    loader = made(folder, **options, batch_transform=noted)
    running = iter(loader)
    before = ids_of(running, stop)
    noted.wait(min(20, stop + 6))
    state = json.loads(json.dumps(loader.state_dict()))
    del running
    again = made(folder, **options)
    again.load_state_dict(state)
    none_lost(before + ids_of(again), range(_ROWS))


def test_a_stop_without_workers_counts_what_was_given(folder: Path) -> None:
    """After any of ten batches.

    torch-dataloader-utils without workers calls the epoch complete after the first: 9,000 lost.
    """
    for stop in range(1, 10):
        loader = made(folder, batch_size=1000, shuffle=True)
        before = ids_of(loader, stop)
        state = loader.state_dict()
        assert state["sample_in_epoch"] == stop * 1000
        again = made(folder, batch_size=1000, shuffle=True)
        again.load_state_dict(state)
        none_lost(before + ids_of(again), range(_ROWS))


@pytest.mark.parametrize(
    ("before", "after", "shuffle"),
    [
        ((2, 0), (1, 0), False),
        ((2, 0), (1, 0), True),
        ((1, 0), (4, 0), True),
        pytest.param((1, 2), (1, 1), True, marks=pytest.mark.process),
        pytest.param((1, 2), (2, 0), False, marks=pytest.mark.process),
        pytest.param((4, 1), (1, 2), False, marks=pytest.mark.process),
        pytest.param((1, 0), (4, 2), True, marks=pytest.mark.process),
    ],
    ids=str,
)
def test_an_epoch_goes_on_with_other_workers_and_ranks(
    folder: Path,
    before: tuple[int, int],
    after: tuple[int, int],
    shuffle: bool,
) -> None:
    """The state of one rank is that of all; ranks and workers may be others afterwards.

    torch-dataloader-utils refuses: its state lists what each worker of each rank had been given.
    EasyData's loader has no state.
    """

    def loaders(ranks: int, workers: int) -> list[Any]:
        return ranks_of(
            folder, ranks, batch_size=100 // ranks, num_workers=workers, shuffle=shuffle
        )

    first = loaders(*before)
    ids = [number for loader in first for number in ids_of(loader, 37)]
    states = [loader.state_dict() for loader in first]
    assert states == [states[0]] * len(states)
    second = loaders(*after)
    for loader in second:
        loader.load_state_dict(states[0])
    none_lost(ids + [number for loader in second for number in ids_of(loader)], range(_ROWS))


@pytest.mark.parametrize(
    ("epoch", "workers"), [(0, 0), (3, 0), pytest.param(3, 2, marks=pytest.mark.process)]
)
def test_setting_the_epoch_does_not_undo_a_checkpoint(
    folder: Path, epoch: int, workers: int
) -> None:
    """A loop that says which epoch it is in goes on within it.

    torch-dataloader-utils begins it anew without a word: 10,000 rows after 8,000 of 10,000.
    """

    def loader() -> Any:
        return made(folder, shuffle=True, num_workers=workers)

    first = loader()
    first.set_epoch(epoch)
    ids = ids_of(first, 80)
    second = loader()
    second.load_state_dict(first.state_dict())
    second.set_epoch(epoch)
    none_lost(ids + ids_of(second), range(_ROWS))


_LINES: dict[str, Callable[[list[str]], str]] = {
    "blank between": lambda lines: "\n\n".join([*lines, ""]),
    "blank at both ends": lambda lines: "\n\n\n" + "\n".join(lines) + "\n\n \n\t\n",
    "carriage returns": lambda lines: "\r\n".join([*lines, ""]),
    "blank with carriage returns": "\r\n\r\n".join,
    "no end": "\n".join,
    "byte order mark": lambda lines: "\ufeff" + "\n".join(lines) + "\n",
}


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        *((kind, 0) for kind in _LINES),
        pytest.param("blank between", 2, marks=pytest.mark.process),
        pytest.param("byte order mark", 2, marks=pytest.mark.process),
    ],
)
def test_lines_resume_exactly_whatever_ends_them(tmp_path: Path, kind: str, workers: int) -> None:
    """After every batch, as `json` reads the lines.

    EasyData counts blank lines when it looks for the row to go on from, though it gives none for
    them: of 200 rows with a blank line after each tenth, four come twice.
    """
    lines = [json.dumps({"id": number, "text": f"ö {number}"}) for number in range(120)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(_LINES[kind](lines).encode())
    whole = ids_of(made(path, format="jsonl", batch_size=10))
    assert whole == list(range(120))
    for stop in (0, 3, 8, 11) if workers else range(12):
        loader = made(path, format="jsonl", batch_size=10, num_workers=workers)
        before = ids_of(loader, stop)
        again = made(path, format="jsonl", batch_size=10, num_workers=workers)
        again.load_state_dict(loader.state_dict())
        assert before + ids_of(again) == whole, stop


@pytest.mark.parametrize(
    ("form", "workers"),
    [
        ("parquet", 0),
        ("jsonl", 0),
        pytest.param("parquet", 2, marks=pytest.mark.process),
    ],
)
def test_at_the_end_of_an_epoch_nothing_is_left(
    folder: Path, tmp_path: Path, form: str, workers: int
) -> None:
    """What comes after a state of the end is the next epoch, as it would have without a stop.

    EasyData, asked to go on at the end of a file of ten row groups, gives nine of them again.
    """
    path = folder / "part-00.parquet"
    if form == "jsonl":
        path = tmp_path / "a.jsonl"
        path.write_text("".join(f'{{"id": {number}}}\n' for number in range(1000)))

    def loader() -> Any:
        return made(path, format=form, shuffle=True, num_workers=workers)

    first = loader()
    orders = [ids_of(first)]
    state = first.state_dict()
    orders += [ids_of(first) for _ in range(2)]
    second = loader()
    second.load_state_dict(state)
    assert [ids_of(second) for _ in range(2)] == orders[1:]
    assert len({tuple(order) for order in orders}) == 3
    for order in orders:
        none_lost(order, range(1000))


_TRAINER = """
import json, os, signal, sys
from pathlib import Path
from streaming_core import create_dataloader

url, out, kill_at = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

def main():
    loader, _ = create_dataloader(
        f"{url}/part-00.parquet", local=out / "cache", batch_size=20, shuffle=True,
        num_workers=2, multiprocessing_context="fork",
    )
    saved = out / "saved.json"
    seen = []
    if saved.exists():
        seen, state = json.loads(saved.read_text())
        loader.load_state_dict(state)
    for step, batch in enumerate(loader, 1):
        seen += batch["id"].tolist()
        (out / "saving.json").write_text(json.dumps([seen, loader.state_dict()]))
        (out / "saving.json").replace(saved)
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    main()
"""


@pytest.mark.kill
@pytest.mark.timeout(1200)  # twelve processes that each import torch
def test_a_killed_trainer_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    """With `kill -9`, again and again, over a web server: each row comes once.

    torch-dataloader-utils gives what a worker had under way once more from its beginning.
    """
    script = tmp_path / "trainer.py"
    script.write_text(_TRAINER)
    statuses = []
    with WebServer(folder) as server:
        for kill_at in (3, 1, 17, 0):
            done = subprocess.run(
                [sys.executable, str(script), server.url, str(tmp_path), str(kill_at)],
                env=quiet_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            statuses.append(done.returncode)
            assert done.returncode in {0, -signal.SIGKILL}, done.stderr[-3000:]
    assert statuses == [*itertools.repeat(-signal.SIGKILL, 3), 0]
    none_lost(json.loads((tmp_path / "saved.json").read_text())[0], range(1000))
