"""Locks on files: by name, until a deadline, gone with their owner and not kept by its children."""

from __future__ import annotations

import linecache
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.signals import interrupted, interrupts
from tests.reader.cache.making import LoggedStore, expected, ids, make
from tests.reader.waiting import until

from streaming_core.errors import WaitTimeoutError
from streaming_reader._cache._locks import FileHandle, is_free, while_locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import CodeType, FrameType

_SECONDS = 120.0


def _soon() -> float:
    return time.monotonic() + _SECONDS


def test_a_lock_excludes_and_comes_free(tmp_path: Path) -> None:
    """One has it; others see that, and get it afterwards."""
    path = str(tmp_path / "lock")
    assert is_free(path)
    held = FileHandle.locked(path, _soon(), "testing")
    assert (is_free(path), FileHandle.locked_now(path)) == (False, None)
    held.close()
    held.close()
    assert is_free(path)
    again = FileHandle.locked_now(path)
    assert again is not None
    again.close()


def test_a_wait_ends_at_its_deadline(tmp_path: Path) -> None:
    """Who waits too long is told for what and for whom, and takes nothing later."""
    path = str(tmp_path / "lock")
    held = FileHandle.locked(path, _soon(), "testing")
    with pytest.raises(WaitTimeoutError, match=f"process {os.getpid()}.*baking"):
        FileHandle.locked(path, time.monotonic() + 0.05, "baking")
    held.close()
    # The wait that was left behind gives back what it gets.
    FileHandle.locked(path, _soon(), "testing").close()


def test_a_lock_is_on_the_file_that_has_the_name(tmp_path: Path) -> None:
    """A wait for a file that is replaced goes on for the new one, not with the old one in hand."""
    path = str(tmp_path / "lock")
    first = FileHandle.locked(path, _soon(), "testing")
    tried = threading.Event()

    def later() -> float:
        tried.set()
        return _soon()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(FileHandle.locked, path, time.monotonic(), "testing", later)
        assert tried.wait(_SECONDS)
        (tmp_path / "lock").unlink()
        # Either of the two may be the first to get the new file.
        second = None if waiting.done() else FileHandle.locked_now(path)
        first.close()
        if second is not None:
            assert not waiting.done()
            second.close()
        got = waiting.result(_SECONDS)
        assert os.path.samestat(os.fstat(got.number), (tmp_path / "lock").stat())
        assert not is_free(path)
        got.close()


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
def test_a_fork_while_a_lock_is_closed_does_not_keep_it(tmp_path: Path) -> None:
    """A child has no copy of what a thread was closing: closed to Python, not yet to the system."""
    path = str(tmp_path / "lock")
    held = FileHandle.locked(path, _soon(), "testing")
    number, copy = held.number, os.dup(held.number)
    held.close()
    os.dup2(copy, number)
    os.close(copy)
    assert not is_free(path)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(number)
    until(lambda: is_free(path))  # while the child lives
    os.close(write)
    os.waitpid(pid, 0)
    os.close(read)


def _locked(path: str) -> None:
    with FileHandle.locked(path, _soon(), "testing"):
        pass


def _locked_now(path: str) -> None:
    handle = FileHandle.locked_now(path)
    if handle is not None:
        with handle:
            pass


def _while_locked(path: str) -> None:
    while_locked(path, _SECONDS, "testing", lambda: None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # unclosed files
@pytest.mark.parametrize("act", [_locked, _locked_now, _while_locked, is_free])
def test_no_lock_stays_behind_when_a_signal_handler_raises(
    tmp_path: Path, act: Callable[[str], object]
) -> None:
    """At any moment that Python allows, even if the traceback is kept, as notebooks do."""
    path = str(tmp_path / "lock")
    (tmp_path / "lock").touch()
    count = 0
    for error in interrupts(lambda: act(path)):
        assert is_free(path), error
        count += 1
    assert count > 10


class _LineError(BaseException):
    """Raised at a line."""


def _raised_at_line(act: Callable[[], object], code: CodeType, count: int) -> _LineError | None:
    """Call `act` and raise at the `count`-th line that runs of a function; None if it ended before.

    A `try:`, which does nothing, counts as no line, and so does a `with` that is left.
    """
    left, last = count, 0

    def each(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left, last
        if event == "line":
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            is_left = text.startswith("with ") and last > frame.f_lineno
            left -= not (is_left or text == "try:")
            last = frame.f_lineno
            if left == 0:
                sys.settrace(None)
                raise _LineError
        return each

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: each if frame.f_code is code else None)
    try:
        act()
    except _LineError as error:
        return error
    finally:
        sys.settrace(before)
    return None


@pytest.mark.parametrize(
    ("act", "function"), [(_locked, FileHandle.locked), (_while_locked, while_locked)]
)
def test_a_function_that_got_a_lock_gives_it_back_at_any_line(
    tmp_path: Path, act: Callable[[str], object], function: Any
) -> None:
    """Even between those at which Python delivers signals today."""
    path = str(tmp_path / "lock")
    count = 1
    while error := _raised_at_line(lambda: act(path), function.__code__, count):
        assert is_free(path), error
        count += 1
    assert count > 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # unclosed files
def test_a_wait_that_a_signal_handler_ends_takes_nothing_later(tmp_path: Path) -> None:
    """When the lock comes free after it, it stays so."""
    path = str(tmp_path / "lock")
    for count in range(1, 60):
        with FileHandle.locked(path, _soon(), "testing"):
            error = interrupted(lambda: _locked(path), count)
            assert error is not None
        assert is_free(path), error
