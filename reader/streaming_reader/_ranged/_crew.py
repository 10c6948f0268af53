"""Threads that do tasks until there are none left."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from streaming_reader._threads import start_thread

__all__ = ["Crew", "Task", "do_here"]

_MOST_THREADS: Final = 64
"""Each is at one call of a store, and waits for an answer most of the time."""

Task: TypeAlias = Callable[[], "Iterable[Task]"]
"""Does something, and returns what is to be done then. Raises nothing."""


class Crew:
    """Does tasks side by side. Its threads are daemons, and end when nothing is left to do."""

    __slots__ = ("_guard", "_queue", "_stopped", "_threads", "_width")

    def __init__(self, width: int = _MOST_THREADS) -> None:
        """Use at most `width` threads."""
        self._width = width
        self._guard = threading.Lock()
        self._queue: deque[Task] = deque()
        self._threads = 0
        self._stopped = False

    def add(self, tasks: Iterable[Task]) -> None:
        """Have tasks done; returns at once. `RuntimeError` if there can be no thread at all."""
        self._add(tasks, hands=0)

    def stop(self) -> None:
        """Begin nothing more; what was begun is let finish."""
        with self._guard:
            self._stopped = True
            self._queue.clear()

    def _add(self, tasks: Iterable[Task], hands: int) -> None:
        """Have tasks done by new threads, as far as `hands` are not there already."""
        with self._guard:
            if self._stopped:
                return
            self._queue.extend(tasks)
            new = max(0, min(self._width - self._threads, len(self._queue) - hands))
            self._threads += new
        for begun in range(new):
            try:
                start_thread(self._run, "streaming-range")
            except RuntimeError:  # the system has no more; those there are do the work
                with self._guard:
                    self._threads -= new - begun
                    if self._threads:
                        return
                raise

    def _run(self) -> None:
        while True:
            with self._guard:
                if not self._queue:
                    self._threads -= 1
                    return
                task = self._queue.popleft()
            self._add(task(), hands=1)


def do_here(tasks: Iterable[Task]) -> None:
    """Do tasks, and what they lead to, in the calling thread."""
    left = deque(tasks)
    while left:
        left.extend(left.popleft()())
