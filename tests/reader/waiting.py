"""Waiting for conditions, however busy the machine is."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Waits", "until", "until_fetched", "until_idle"]

_SECONDS: Final = 120.0


def until(holds: Callable[[], object], what: str = "the condition never held") -> None:
    """Return once a condition holds; fail if it takes minutes."""
    end = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.002)


class Waits(threading.Condition):
    """A condition that knows how many threads wait on it, those notified since left out."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__(lock)
        self.waiting = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification."""
        self.waiting += 1
        return super().wait(timeout)

    def notify_all(self) -> None:
        """Wake all threads."""
        self.waiting = 0
        super().notify_all()


def until_idle(fetcher: Any) -> None:
    """Return once every thread of a fetcher, whose condition is a `Waits`, has nothing to do."""
    waits: Waits = fetcher._changed

    def idle() -> bool:
        with waits:
            return waits.waiting == int(fetcher._threads) > 0

    until(idle, "the threads of the fetcher did not become idle")


def until_fetched() -> None:
    """Return once no thread of this process fetches; those of an ended epoch finish their shard."""
    gc.collect()  # closes iterators that nobody has any more
    until(
        lambda: not any(one.name.startswith("streaming-fetch") for one in threading.enumerate()),
        "threads that fetch did not end",
    )
