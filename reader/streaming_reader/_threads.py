"""Threads in the background that do not disturb the end of the interpreter.

A daemon thread stops wherever it is once the interpreter ends, with any lock that it has. Code that
runs after that, such as the end of a generator whose module goes away, must not wait for such a
lock. So all that has threads is closed before, while they still run.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from streaming_core._workers import start_thread as start_safely

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._workers import StartedThread

__all__ = ["close_at_exit", "start_thread"]

_EXIT_SECONDS: Final = 1.0
"""How long the end of the interpreter is held up by threads that have not come to their end."""
_PAUSE_SECONDS: Final = 0.001


class Closable(Protocol):
    """What has threads, and tells them to end."""

    def close(self) -> None:
        """Let the threads end; a second time does nothing and waits for nothing."""
        ...


_closable: WeakSet[Closable] = WeakSet()
_threads: set[StartedThread] = set()
os.register_at_fork(after_in_child=_threads.clear)


def close_at_exit(one: Closable) -> None:
    """Close something before the interpreter ends, if it is still there."""
    _closable.add(one)


def start_thread(target: Callable[[], object], name: str, *, stays_in_worker: bool = False) -> None:
    """Run `target` in a daemon thread.

    With `stays_in_worker` a worker process ends only after it. `RuntimeError` if the system has no
    more threads.
    """
    is_worker = stays_in_worker and multiprocessing.parent_process() is not None
    for one in list(_threads):
        if one.is_over:
            _threads.discard(one)
    _threads.add(start_safely(target, name, daemon=not is_worker))


def _end() -> None:
    for one in list(_closable):
        one.close()
    end = time.monotonic() + _EXIT_SECONDS
    for thread in list(_threads):
        while not thread.is_begun and time.monotonic() < end:  # it is just being started
            time.sleep(_PAUSE_SECONDS)
        if thread.is_alive():
            thread.join(max(0.0, end - time.monotonic()))


atexit.register(_end)
