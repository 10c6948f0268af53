"""A signal handler that raises, as Ctrl-C does: no lock stays behind, and the process can go on."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.signals import interrupted, num_moments

from streaming_core import MDSWriter, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",  # files that the collector closes
)

_SAMPLES = 40


def _locked_files(folder: Path) -> list[Path]:
    """Return which files and folders below `folder` somebody holds a lock on, this process too."""
    locked = []
    for path in [folder, *folder.rglob("*")] if folder.exists() else ():
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked.append(path)
        finally:
            os.close(handle)
    return locked


def _write(out: Path, *, resume: bool = False) -> None:
    with MDSWriter(
        out=out, columns={"id": "int", "x": "bytes"}, size_limit=900, resume=resume
    ) as w:
        for number in range(w.num_safe_samples, _SAMPLES):
            w.write({"id": number, "x": bytes(80)})


def _moments(act: Callable[[int], object], most: int) -> Iterator[tuple[int, BaseException]]:
    """Interrupt `act`, given a number that counts up, at so many moments all over it."""
    act(0)  # imports what it needs
    total = num_moments(lambda: act(1))
    rng = random.Random(most)  # noqa: S311

    for turn, at in enumerate(sorted(rng.sample(range(1, total), min(most, total - 1))), 2):
        error = interrupted(lambda turn=turn: act(turn), at)  # type: ignore[misc]
        if error is None:  # it took a shorter way than before
            return
        yield turn, error


def _is_between_calls(error: BaseException) -> bool:
    """Tell whether the `with` statement has not yet got the writer, or is about to let it end.

    There no code of the writer can see the error, whose traceback then keeps the writer.
    """
    frame, line = list(traceback.walk_tb(error.__traceback__))[-2]  # the last one is the tracer
    code = frame.f_code
    begins = code.co_name in {"__enter__", "__exit__"} and line == code.co_firstlineno
    return begins or code.co_name == "checked_init" or code.co_qualname == "MDSWriter.__init__"


@pytest.mark.parametrize("limit", [None, 8_000])
@pytest.mark.parametrize("most", [30, pytest.param(250, marks=pytest.mark.slow)])
def test_an_interrupted_read_leaves_no_lock(tmp_path: Path, most: int, limit: int | None) -> None:
    """Neither the part of a shard nor the ledger is locked, and the same object can be used."""
    _write(tmp_path / "remote")
    dataset: Any = None

    def read(turn: int) -> None:
        nonlocal dataset
        dataset = None
        local = tmp_path / f"local{turn}"
        dataset = StreamingDataset(remote=tmp_path / "remote", local=local, cache_limit=limit)
        for number in (0, 30, 39, 10):
            assert dataset[number]["id"] == number

    count = 0
    for turn, error in _moments(read, most):
        local = tmp_path / f"local{turn}"
        held = [path for path in _locked_files(local) if path.suffix != ".mds"]  # in use: mapped
        assert not held, error
        if dataset is not None:
            assert [dataset[number]["id"] for number in range(_SAMPLES)] == [*range(_SAMPLES)]
        shutil.rmtree(local, ignore_errors=True)
        count += 1
    assert count > most // 3


@pytest.mark.parametrize("most", [30, pytest.param(250, marks=pytest.mark.slow)])
def test_an_interrupted_conversion_leaves_no_lock(tmp_path: Path, most: int) -> None:
    """Another writer goes on at once, though the traceback still has the one that was stopped."""
    count = 0
    for turn, error in _moments(lambda turn: _write(tmp_path / f"out{turn}"), most):
        out = tmp_path / f"out{turn}"
        if _is_between_calls(error):
            traceback.clear_frames(error.__traceback__)  # it keeps the writer until then
        assert not _locked_files(out), error
        _write(out, resume=True)
        dataset = StreamingDataset(local=out)
        assert [dataset[number]["id"] for number in range(_SAMPLES)] == [*range(_SAMPLES)]
        shutil.rmtree(out)
        count += 1
    assert count > most // 3
