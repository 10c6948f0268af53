"""Waiting for ranges, and for whole shards that may come sooner."""

from __future__ import annotations

import queue
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streaming_reader._ranged._crew import Crew, do_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_reader._ranged._crew import Task

__all__ = ["Watch"]

_LOOK_SECONDS: Final = 0.05
"""How long what has come can go unnoticed after an interrupt."""


class Watch:
    """Has ranges fetched for one caller at a time, who waits here until that is over or needless.

    Its threads end when nothing is left to fetch, or with `stop`.
    """

    __slots__ = ("_changes", "_crew", "_is_needless")

    def __init__(self, is_needless: Callable[[int], bool] | None = None) -> None:
        """Give up waiting for a shard once `is_needless`; `notify` has that asked again."""
        self._is_needless = is_needless
        # Of C, so that no signal handler raises while it is locked, as in a condition.
        self._changes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._crew = Crew()

    def notify(self) -> None:
        """Have whoever waits look again."""
        self._changes.put(None)

    def stop(self) -> None:
        """Begin no more requests."""
        self._crew.stop()

    def run(self, tasks: Sequence[Task], *, alone: bool) -> None:
        """Begin tasks; one that goes `alone` is done here, if nothing else is to be waited for."""
        if len(tasks) > 1 or not alone or self._is_needless is not None:
            try:
                self._crew.add(tasks)
            except RuntimeError:  # the system has no thread for us
                pass
            else:
                return
        do_here(tasks)

    def wait(self, over: Mapping[int, Callable[[], bool]], deadline: float) -> None:
        """Wait until each shard's work is over or needless, or until the deadline."""
        left = dict(over)
        while True:
            for shard in [at for at, is_over in left.items() if self._is_settled(at, is_over)]:
                del left[shard]
            seconds = deadline - time.monotonic()
            if not left or seconds <= 0:
                return
            with suppress(queue.Empty):
                self._changes.get(timeout=min(seconds, _LOOK_SECONDS))

    def _is_settled(self, shard: int, is_over: Callable[[], bool]) -> bool:
        return is_over() or (self._is_needless is not None and self._is_needless(shard))
