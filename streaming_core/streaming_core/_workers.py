"""Threads that do tasks side by side, and survive signal handlers that raise, as Ctrl-C does.

The executors, queues, events, and futures of the standard library take locks in Python code. A
handler that raises between two of its steps leaves such a lock held, and the threads that need it
wait forever. Here the calling thread only takes locks in ways that no handler can come between.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections import deque
from concurrent.futures import CancelledError
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Self

__all__ = ["Latch", "StartedThread", "Task", "Workers", "in_order", "start_thread"]

_T = TypeVar("_T")
_R = TypeVar("_R")

_LOOK_SECONDS: Final = 0.05
"""How long what has come can go unnoticed after an interrupt."""
_PAUSE_SECONDS: Final = 0.001
_BEGIN_SECONDS: Final = 1.0
"""How long `stop` waits for a thread to begin; while the interpreter ends, none does any more."""
_AT_A_TIME: Final = 32
_AHEAD: Final = 4
"""Results that may wait for each thread, so that one slow item holds up no other for long."""


class StartedThread(threading.Thread):
    """A thread that `start_thread` starts; it may begin a little later."""

    is_begun = False
    """Whether it runs or has ended, so that it can be joined."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.is_begun and not self.is_alive()


def start_thread(target: Callable[[], object], name: str, *, daemon: bool) -> StartedThread:
    """Run `target` in a new thread; `RuntimeError` if the system has no more.

    A handler that raises in `Thread.start` can leave a thread that never runs, so another thread,
    in which there are no handlers, calls that.
    """
    thread = StartedThread(target=target, name=name, daemon=daemon)

    def start() -> None:
        try:
            thread.start()
        except RuntimeError:  # this one was the last that the system had
            target()
        finally:
            thread.is_begun = True

    _thread.start_new_thread(start, ())
    return thread


class Latch:
    """What is opened once, and waited for. An `Event` does the same, but not where handlers raise.

    Example:
        >>> latch = Latch()
        >>> latch.open()
        >>> latch.wait(60.0), latch.is_open
        (True, True)
    """

    __slots__ = ("_lock", "is_open")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.is_open = False
        """Whether it was opened."""

    def open(self) -> None:
        """Let all go on who wait. Only one thread may; again, it does nothing."""
        if not self.is_open:
            self.is_open = True
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it is open, but no longer than so; tell whether it is."""
        end = time.monotonic() + seconds
        # An interrupt can keep the lock from the next who waits, so none waits for long.
        while not self.is_open and (left := end - time.monotonic()) > 0:
            if self._lock.acquire(timeout=min(left, _LOOK_SECONDS)):
                self._lock.release()
        return self.is_open


class Task(Generic[_T]):
    """Something that a thread does, and what comes of it."""

    __slots__ = ("_act", "_done", "_value", "error")

    def __init__(self, act: Callable[[], _T]) -> None:
        self._act: Callable[[], _T] | None = act
        self._value: _T
        self._done = Latch()
        self.error: BaseException | None = None
        """What it raised: `CancelledError` if it was dropped before it began."""

    @property
    def is_done(self) -> bool:
        """Whether it came to its end, or was dropped."""
        return self._done.is_open

    def wait(self, seconds: float = _LOOK_SECONDS) -> bool:
        """Wait until it is done, but no longer than so; tell whether it is."""
        return self._done.wait(seconds)

    def result(self) -> _T:
        """Wait for what it returns; raises what it raised."""
        while not self.wait():
            pass
        if self.error is None:
            return self._value
        try:
            raise self.error
        finally:
            del self  # or the traceback would keep what it belongs to

    def run(self) -> None:
        """Do it. Only the thread that took it calls this."""
        act, self._act = self._act, None
        try:
            if act is not None:
                self._value = act()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self.error = error
        self._done.open()
        del self, act

    def drop(self) -> None:
        """Let it not be done."""
        self._act, self.error = None, CancelledError()
        self._done.open()


class Workers:
    """Threads that do tasks in the order they come, and end when there are none.

    If a signal handler raised in `submit`, only `stop` is of use.

    Example:
        >>> with Workers(2, "example") as workers:
        ...     workers.submit(lambda: 42).result()
        42
    """

    def __init__(self, width: int, name: str) -> None:
        """Run up to `width` threads of that name."""
        self._width = width
        self._name = name
        self._guard = threading.Lock()
        self._tasks: deque[Task[Any]] = deque()
        self._running: set[Task[Any]] = set()
        self._threads: list[StartedThread] = []
        self._active = 0
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        """Return the workers themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop them."""
        self.stop()

    def submit(self, act: Callable[[], _T]) -> Task[_T]:
        """Have something done by a thread, or here if the system has no more threads."""
        task = Task(act)
        with self._guard:
            self._tasks.append(task)
            if self._active == self._width:
                return task
            self._active += 1
        try:
            thread = start_thread(self._run, self._name, daemon=False)
        except RuntimeError:
            self._run()
        else:
            self._threads = [thread, *(one for one in self._threads if not one.is_over)]
        return task

    def stop(self) -> None:
        """Drop what no thread has begun, and wait until nothing is done any more."""
        if os.getpid() != self._owner:  # a forked child has none of the threads
            return
        with self._guard:
            dropped = list(self._tasks)
            self._tasks.clear()
        for task in dropped:
            task.drop()
        while self._running:
            time.sleep(_PAUSE_SECONDS)
            for task in list(self._running):
                task.wait()
        end = time.monotonic() + _BEGIN_SECONDS
        for thread in self._threads:
            while not thread.is_begun and time.monotonic() < end:
                time.sleep(_PAUSE_SECONDS)
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            with self._guard:
                self._running.discard(task)
            del task  # or the traceback of its error would keep it

    def _next(self) -> Task[Any] | None:
        """Take the task that came first; None if there is none, and the thread ends."""
        with self._guard:
            if not self._tasks:
                self._active -= 1
                return None
            task = self._tasks.popleft()
            self._running.add(task)
            return task


def in_order(
    act: Callable[[_T], _R],
    items: Iterable[_T],
    *,
    at_a_time: int = _AT_A_TIME,
    name: str = "streaming-request",
    at_end: Callable[[], object] = lambda: None,
) -> Generator[_R]:
    """Yield what `act` returns for each item, in order, some at a time; an error ends it.

    No more results wait to be taken than a few for each thread. `at_end` is called when no more are
    wanted, before what is still done is waited for.

    Example:
        >>> list(in_order(len, ["a", "bc"]))
        [1, 2]
    """
    coming = iter(items)
    first = list(islice(coming, 2))
    if len(first) < 2:  # noqa: PLR2004 - nothing to do side by side
        yield from map(act, first)
        return
    with Workers(at_a_time, name) as workers:
        try:
            submitted = (workers.submit(partial(act, item)) for item in chain(first, coming))
            tasks = deque(islice(submitted, _AHEAD * at_a_time))
            while tasks:
                yield tasks.popleft().result()
                tasks.extend(islice(submitted, 1))
        finally:
            at_end()
