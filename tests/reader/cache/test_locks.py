"""Locks on files: by name, until a deadline, gone with their owner and not kept by its children."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.reader.cache.making import LoggedStore, expected, ids, make
from tests.reader.waiting import until

from streaming_core.errors import WaitTimeoutError
from streaming_reader._cache._locks import is_free, lock_file, lock_now

_SECONDS = 120.0


def _soon() -> float:
    return time.monotonic() + _SECONDS


def test_a_lock_excludes_and_comes_free(tmp_path: Path) -> None:
    """One has it; others see that, and get it afterwards."""
    path = str(tmp_path / "lock")
    assert is_free(path)
    held = lock_file(path, _soon(), "testing")
    assert (is_free(path), lock_now(path)) == (False, None)
    held.close()
    held.close()
    assert is_free(path)
    again = lock_now(path)
    assert again is not None
    again.close()


def test_a_wait_ends_at_its_deadline(tmp_path: Path) -> None:
    """Who waits too long is told for what and for whom, and takes nothing later."""
    path = str(tmp_path / "lock")
    held = lock_file(path, _soon(), "testing")
    with pytest.raises(WaitTimeoutError, match=f"process {os.getpid()}.*baking"):
        lock_file(path, time.monotonic() + 0.05, "baking")
    held.close()
    # The wait that was left behind gives back what it gets.
    lock_file(path, _soon(), "testing").close()


@pytest.mark.skipif(not Path("/proc/locks").is_file(), reason="looks into /proc")
def test_a_lock_is_on_the_file_that_has_the_name(tmp_path: Path) -> None:
    """Who waited for a file that was replaced waits for the new one, not with the old in hand."""
    path = str(tmp_path / "lock")
    first = lock_file(path, _soon(), "testing")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock_file, path, _soon(), "testing")
        until(lambda: _waits_for(tmp_path / "lock"))
        (tmp_path / "lock").unlink()
        second = lock_file(path, _soon(), "testing")
        first.close()
        until(lambda: _waits_for(tmp_path / "lock"))
        assert not waiting.done()
        second.close()
        got = waiting.result(_SECONDS)
        assert os.path.samestat(os.fstat(got.number), (tmp_path / "lock").stat())
        got.close()


def _waits_for(path: Path) -> bool:
    """Tell whether this process waits for a lock of the file that has the name now."""
    end = f":{path.stat().st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and end in line for line in lines)


@pytest.mark.kill
def test_a_child_does_not_keep_its_dead_parents_lock(tmp_path: Path) -> None:
    """A process that forked while it fetched is killed: its child lives on and blocks nobody."""
    made = make(tmp_path / "remote")
    local = tmp_path / "local"
    context = multiprocessing.get_context("fork")
    child_pid, pause = context.Value("i", 0), threading.Event()

    def parent() -> None:
        store = LoggedStore(made.folder, tmp_path / "log", piece=10, seconds=0.2)
        cache: Any = made.cache(local, remote=store)
        threading.Thread(target=cache.open, args=(0,), daemon=True).start()
        part = local / ".streaming/parts" / f"{made.table.shard(0).raw.basename}.raw"
        while not part.exists() or not part.stat().st_size:
            pause.wait(0.005)
        pid = os.fork()
        if not pid:
            child_pid.value = os.getpid()
            pause.wait(2 * _SECONDS)
            os._exit(0)
        pause.wait(2 * _SECONDS)

    process = context.Process(target=parent)
    process.start()
    end = _soon()
    while not child_pid.value:
        assert time.monotonic() < end
        pause.wait(0.005)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()  # with a limit it would wait for the child, which holds the same pipe
    cache = made.cache(local)
    assert list((local / ".streaming/parts").iterdir()) == []
    try:
        assert ids(cache.open(0, timeout=_SECONDS / 2)) == expected(made, 0)
    finally:
        os.kill(child_pid.value, signal.SIGKILL)


@pytest.mark.process
def test_a_fork_while_a_lock_is_closed_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fork comes between forgetting a descriptor and closing it."""
    path = str(tmp_path / "lock")
    held = lock_file(path, _soon(), "testing")
    closing, forked, done = threading.Event(), threading.Event(), threading.Event()
    really = os.close

    def slow(number: int) -> None:
        if number == held_number:
            closing.set()
            forked.wait(0.5)
        really(number)

    held_number = held.number
    pids: list[int] = []
    read, write = os.pipe()

    def fork() -> None:
        closing.wait(_SECONDS)
        pid = os.fork()
        if not pid:
            really(write)
            os.read(read, 1)
            os._exit(0)
        pids.append(pid)
        forked.set()
        done.set()

    thread = threading.Thread(target=fork)
    thread.start()
    monkeypatch.setattr(os, "close", slow)
    held.close()
    assert done.wait(_SECONDS)
    assert is_free(path)
    really(write)
    thread.join()
    os.waitpid(pids[0], 0)
    really(read)
