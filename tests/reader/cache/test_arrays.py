"""Arrays shared by the processes of a node: made once, whole or not at all, few kept."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streaming_reader._cache import SharedArrays

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray


def _ten() -> NDArray[np.int64]:
    return np.arange(10) * 3


def _never() -> NDArray[np.int64]:
    raise AssertionError


def _file(folder: Path) -> Path:
    (path,) = (folder / ".streaming/orders").glob("*.i8")
    return path


def test_makes_once_and_maps_again(tmp_path: Path) -> None:
    """The second caller of a key gets equal values without making them, and none can be changed."""
    first = SharedArrays(tmp_path)("key", 10, _ten)
    again = SharedArrays(tmp_path)("key", 10, _never)
    assert first.tolist() == again.tolist() == _ten().tolist()
    for array in (first, again, SharedArrays(None)("key", 10, _ten)):
        assert array.dtype == np.int64
        assert not array.flags.writeable
    assert [path.suffix for path in (tmp_path / ".streaming/orders").iterdir()] == [".i8"]


def test_keys_are_told_apart(tmp_path: Path) -> None:
    """Any text is a key, and each has its own array; an empty one is an array too."""
    arrays = SharedArrays(tmp_path)
    for number, key in enumerate(["a", "A", "../a", "a/b", "\0", "ä" * 500, ""]):
        assert arrays(key, 2, partial(np.full, 2, number)).tolist() == [number] * 2
    assert arrays("none", 0, lambda: np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("damage", ["cut", "flip", "other", "longer", "empty"])
def test_a_broken_file_is_made_again(tmp_path: Path, damage: str) -> None:
    """Cut, changed or of another key: the array is the right one, and so is the file after."""
    arrays = SharedArrays(tmp_path)
    arrays("key", 10, _ten)
    path = _file(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "other":
        arrays("other", 10, lambda: np.zeros(10, np.int64))
        (other,) = set((tmp_path / ".streaming/orders").glob("*.i8")) - {path}
        other.replace(path)
    else:
        data[-1] ^= damage == "flip"
        end = {"cut": -8, "empty": 0}.get(damage, len(data))
        path.write_bytes(data[:end] + (bytes(8) if damage == "longer" else b""))
    assert arrays("key", 10, _ten).tolist() == _ten().tolist()
    assert arrays("key", 10, _never).tolist() == _ten().tolist()


def test_few_files_stay_and_those_in_use(tmp_path: Path) -> None:
    """The three newest arrays are kept on disk, and an older one as long as it is mapped."""
    arrays = SharedArrays(tmp_path)
    held = arrays("epoch 0", 10, _ten)
    path = _file(tmp_path)
    os.utime(path, (1, 1))
    for epoch in range(1, 6):
        arrays(f"epoch {epoch}", 10, _ten)
    assert path.exists()
    assert len(list((tmp_path / ".streaming/orders").iterdir())) == 4
    assert held.tolist() == _ten().tolist()
    del held
    arrays("epoch 6", 10, _ten)
    assert not path.exists()
    assert len(list((tmp_path / ".streaming/orders").iterdir())) == 3


def test_a_wrong_length_is_an_error(tmp_path: Path) -> None:
    """What was made must be what was announced."""
    with pytest.raises(ValueError, match="11"):
        SharedArrays(tmp_path)("key", 11, _ten)
    assert SharedArrays(tmp_path)("key", 10, _ten).tolist() == _ten().tolist()


def test_a_folder_that_takes_nothing_costs_only_memory(tmp_path: Path) -> None:
    """Where no file can be made each process makes its own array."""
    (tmp_path / "file").write_bytes(b"")
    for arrays in (SharedArrays(tmp_path / "file"), SharedArrays("/proc/none")):
        assert arrays("key", 10, _ten).tolist() == _ten().tolist()
    assert pickle.loads(pickle.dumps(SharedArrays(None)))("key", 10, _ten).shape == (10,)


def _forked(work: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


@pytest.mark.process
@pytest.mark.essential
def test_processes_make_one(tmp_path: Path) -> None:
    """Of six processes that want the same array at once, one makes it."""
    made = multiprocessing.get_context("fork").Value("i", 0)
    start = multiprocessing.get_context("fork").Barrier(6)

    def make() -> NDArray[np.int64]:
        with made.get_lock():
            made.value += 1
        threading.Event().wait(0.05)
        return _ten()

    def work() -> None:
        start.wait(120)
        assert SharedArrays(tmp_path)("key", 10, make).tolist() == _ten().tolist()

    processes = [_forked(work) for _ in range(6)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 6
    assert made.value == 1


@pytest.mark.kill
def test_a_maker_that_dies_or_hangs_stops_nobody(tmp_path: Path) -> None:
    """After a kill the next makes the array; beside one that hangs, each makes its own in time."""
    making = multiprocessing.get_context("fork").Event()

    def hang() -> NDArray[np.int64]:
        making.set()
        threading.Event().wait()  # until it is killed
        return _ten()

    process = _forked(lambda: SharedArrays(tmp_path)("key", 10, hang))
    try:
        assert making.wait(120)
        assert SharedArrays(tmp_path, wait_seconds=0.1)("key", 10, _ten).tolist() == _ten().tolist()
        assert process.is_alive()
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(120)
    assert SharedArrays(tmp_path)("key", 10, _ten).tolist() == _ten().tolist()
    assert SharedArrays(tmp_path)("key", 10, _never).tolist() == _ten().tolist()
