"""Threads that do tasks side by side, also when a signal handler raises in who uses them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.faults.signals import interrupts

from streaming_core._workers import Workers, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEADLINE = 100.0


def test_results_wait_in_order_and_not_without_bound() -> None:
    """A caller that is slow to take them holds the others up."""
    taken: list[int] = []
    done = [threading.Event() for _ in range(500)]

    def items() -> Iterator[int]:
        for number in range(500):
            taken.append(number)
            yield number

    def act(number: int) -> int:
        if number % 7 == 0:
            assert done[number + 1].wait(_DEADLINE)  # overtaken
        done[number].set()
        return number

    coming = in_order(act, items(), at_a_time=4)
    assert next(coming) == 0
    assert all(done[number].wait(_DEADLINE) for number in taken[:-1])
    assert 4 < len(taken) <= 4 * 5 + 4
    assert list(coming) == list(range(1, 500))


def test_the_first_error_in_order_is_raised_and_ends_the_rest() -> None:
    """What was not begun is not done any more once the error is seen."""
    begun: list[int] = []
    failed = threading.Event()

    def act(number: int) -> int:
        begun.append(number)
        if number == 3:
            failed.set()
            raise ValueError(number)
        if number > 3:
            assert failed.wait(_DEADLINE)
        return number

    coming = in_order(act, range(10_000), at_a_time=4)
    assert [next(coming) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(coming)
    assert len(begun) < 100
    assert next(coming, None) is None


def test_tasks_run_side_by_side_up_to_the_width() -> None:
    """All that fit are begun at once; one more waits."""
    together = threading.Barrier(3, timeout=_DEADLINE)
    with Workers(3, "test-width") as workers:
        tasks = [workers.submit(together.wait) for _ in range(3)]
        assert sorted(task.result() for task in tasks) == [0, 1, 2]
    go, most, lock, now = threading.Event(), 0, threading.Lock(), 0

    def count() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        assert go.wait(_DEADLINE)
        with lock:
            now -= 1

    with Workers(3, "test-width") as workers:
        tasks_ = [workers.submit(count) for _ in range(9)]
        go.set()
        for task in tasks_:
            task.result()
    assert 1 <= most <= 3


def test_stopping_drops_what_no_thread_has_begun_and_waits_for_the_rest() -> None:
    """Nothing runs after it, and no thread is left."""
    begun, go = threading.Event(), threading.Event()
    done: list[int] = []

    def first() -> None:
        begun.set()
        assert go.wait(_DEADLINE)
        time.sleep(0.02)
        done.append(0)

    workers = Workers(1, "test-stop")
    tasks = [workers.submit(first), *(workers.submit(lambda: done.append(1)) for _ in range(5))]
    assert begun.wait(_DEADLINE)
    threading.Timer(0.02, go.set).start()
    workers.stop()
    assert done == [0]
    assert [type(task.error) for task in tasks] == [type(None), *[CancelledError] * 5]
    with pytest.raises(CancelledError):
        tasks[1].result()
    assert not [thread for thread in threading.enumerate() if thread.name == "test-stop"]
    workers.stop()


def test_stopping_waits_for_threads_that_have_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """None that was asked to do something outlives the call."""
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def start_late(thread: threading.Thread) -> None:
        time.sleep(0.1)
        start(thread)
        begun.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    with Workers(4, "late") as workers:
        for _ in range(4):
            workers.submit(lambda: None)
    assert len(begun) == 4
    assert not any(thread.is_alive() for thread in begun)


def test_nothing_of_a_task_that_is_done_is_kept() -> None:
    """Neither what it worked on nor, once the error is gone, what it failed on."""

    class Big:
        def use(self) -> None:
            msg = "too big"
            raise ValueError(msg)

    big = Big()
    kept = weakref.ref(big)
    gc.disable()
    try:
        with Workers(1, "test-memory") as workers:
            task = workers.submit(big.use)
            try:
                task.result()
            except ValueError as error:
                assert str(error) == "too big"  # noqa: PT017 - `pytest.raises` would keep it
            del big, task
        assert kept() is None
    finally:
        gc.enable()


def test_without_another_thread_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a limit of processes."""

    def none_left(*_: object) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr("_thread.start_new_thread", none_left)
    assert list(in_order(lambda _: threading.get_ident(), range(3))) == [threading.get_ident()] * 3


def test_the_last_thread_of_the_system_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is one to start another, but not that other."""

    def none_left(_: object) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr("threading.Thread.start", none_left)
    assert list(in_order(str, range(3))) == ["0", "1", "2"]


@pytest.mark.process
def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have() -> None:
    """Stopping there returns at once."""
    begun, go = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        assert go.wait(_DEADLINE)

    workers = Workers(1, "test-fork")
    workers.submit(act)
    assert begun.wait(_DEADLINE)
    child = os.fork()
    if child == 0:
        workers.stop()
        os._exit(7)
    end = time.monotonic() + _DEADLINE
    pid, status = 0, 0
    while not pid and time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    go.set()
    workers.stop()
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.process
def test_a_script_that_ends_gets_done_what_it_submitted() -> None:
    """Threads end when there is nothing to do, and not before."""
    script = """
import os, time
from streaming_core._workers import Workers
def act(number):
    time.sleep(0.01)
    os.write(1, b"%d\\n" % number)
workers = Workers(2, "test-end")
tasks = [workers.submit(lambda number=number: act(number)) for number in range(6)]
tasks[0].result()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=True,
    )
    assert (sorted(done.stdout.split()), done.stderr) == (list("012345"), "")


def test_an_interrupt_at_any_moment_leaves_no_thread_that_waits() -> None:
    """In submitting, waiting, or stopping, and in what of Python's own they call."""
    running: set[int] = set()

    def act(number: int) -> int:
        running.add(number)
        time.sleep(0.0005)
        running.discard(number)
        return number

    workers = Workers(2, "test-interrupt")

    def use() -> None:
        nonlocal workers
        workers = Workers(2, "test-interrupt")
        tasks = [workers.submit(partial(act, number)) for number in range(5)]
        assert [task.result() for task in tasks] == [0, 1, 2, 3, 4]
        workers.stop()

    count = 0
    for _ in interrupts(use, also=("/threading.py",)):
        workers.stop()
        assert not running
        count += 1
    assert count > 100
    end = time.monotonic() + _DEADLINE
    while [one for one in threading.enumerate() if one.name == "test-interrupt"]:
        assert time.monotonic() < end
        time.sleep(0.01)
