"""Threads that bring shards ahead of their use."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from streaming_core._workers import Latch
from streaming_core.errors import WaitTimeoutError
from streaming_reader._threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming_core._format import Shard

__all__ = ["BUDGET_BYTES", "Fetcher", "Shards"]

BUDGET_BYTES = 1 << 30
"""Of shards that are fetched and not yet taken."""
_THREADS = 4
_MOST_WARM = 32
"""Local shards that are opened ahead; each may cost a descriptor, and one that is in use."""

_log = logging.getLogger(__name__)


class Shards(Protocol):
    """Where shards come from, numbered through all streams. Threads may share it."""

    def is_local(self, shard: int) -> bool:
        """Tell whether opening it needs no download."""
        ...

    def open(self, shard: int) -> Shard:
        """Return it, downloaded first if it must be."""
        ...

    def warm(self, shard: Shard) -> None:
        """Get ready for many uses of an open shard; may take a while."""
        ...

    def weight(self, shard: int) -> int:
        """Return its bytes."""
        ...

    def last_progress(self) -> float:
        """Return when anything last arrived (`time.monotonic`), whichever shard it is of."""
        ...

    def describe(self, shard: int) -> str:
        """Return its name and where it comes from, for errors."""
        ...


class _Job:
    """A shard that is being fetched, or was."""

    __slots__ = ("arrived", "error", "shard", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.arrived = Latch()
        self.shard: Shard | None = None
        self.error: BaseException | None = None


class Fetcher:
    """Fetches what is wanted, in that order, a few shards at a time, and warms what it has.

    Threads start with the first shard that is wanted, are daemons, and end with `close`. What is
    fetched and not yet taken stays within a budget of bytes, or is one shard; so does, apart from
    it, what is local, warmed and not yet taken, which is also a few dozen shards at most. Any more
    is opened when it is taken. One thread calls `want`, `get` and `close`; in a forked child, which
    has no such threads, `close` does nothing.
    """

    def __init__(self, shards: Shards, *, timeout: float, budget: int = BUDGET_BYTES) -> None:
        """Fetch from `shards`, waiting for each until nothing has come for `timeout` seconds."""
        self._shards = shards
        self._timeout = timeout
        self._budget = budget
        # Taken without the condition: an exception of a signal handler that comes while a condition
        # is entered would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: OrderedDict[int, None] = OrderedDict()
        """What to fetch or to warm, each once, the next one first."""
        self._jobs: dict[int, _Job] = {}
        self._threads = 0
        self._held = 0
        """Bytes of what was begun and not yet taken."""
        self._urgent: int | None = None
        """What the consumer waits for; it need not fit the budget."""
        self._warmed: set[int] = set()
        """What was fetched or warmed so far, or is about to be."""
        self._warm: dict[int, int] = {}
        """The weight of each local shard that is warmed, or about to be, and not yet taken."""
        self._warm_bytes = 0
        self._owner = os.getpid()
        self._closed = False

    def want(self, shards: Iterable[int]) -> None:
        """Fetch these after what was wanted before; those that are local are there already."""
        fresh = [shard for shard in shards if shard not in self._jobs]
        missing = [shard for shard in fresh if not self._shards.is_local(shard)]
        jobs = {shard: _Job(self._shards.weight(shard)) for shard in missing}
        cold = self._cold([shard for shard in fresh if shard not in jobs])
        self._warmed.update(missing)
        if not jobs and not cold:
            return
        with self._lock:
            self._jobs.update(jobs)
            # One that was to be warmed, and was evicted meanwhile, is in the queue already.
            for shard in (*missing, *cold):
                self._queue.setdefault(shard)
            self._start_threads()
            self._changed.notify_all()

    def _cold(self, local: list[int]) -> list[int]:
        """Return which of these shards to warm now, and note that they are."""
        chosen: list[int] = []
        for shard in local:
            if len(self._warm) >= _MOST_WARM:
                break
            if shard in self._warmed:
                continue
            weight = self._shards.weight(shard)
            if self._warm and self._warm_bytes + weight > self._budget:
                break
            self._warm[shard] = weight
            self._warm_bytes += weight
            self._warmed.add(shard)
            chosen.append(shard)
        return chosen

    def _start_threads(self) -> None:
        while self._threads < min(_THREADS, len(self._queue)):
            try:
                start_thread(self._run, "streaming-fetch")
            except RuntimeError:  # the system has no more; those there are do the work
                if not self._threads:
                    raise
                return
            self._threads += 1

    @property
    def at_work(self) -> bool:
        """Whether anything is being fetched, or was and is not yet taken."""
        return bool(self._jobs)

    def ready(self, shard: int) -> bool:
        """Tell whether `get` would return the shard without waiting for a thread to fetch it."""
        job = self._jobs.get(shard)
        return job is None or job.shard is not None

    def get(self, shard: int) -> Shard:
        """Return the shard, waiting for it if it is being fetched; raises what became of it."""
        if shard in self._warm:
            self._warm_bytes -= self._warm.pop(shard)
        job = self._jobs.get(shard)
        if job is None:
            return self._shards.open(shard)
        with self._lock:
            self._hurry(shard)
        # Without the lock: a signal handler that raises in the wait of a condition loses it.
        began = now = time.monotonic()
        while not job.arrived.wait(max(began, self._shards.last_progress()) + self._timeout - now):
            now = time.monotonic()
            if now >= max(began, self._shards.last_progress()) + self._timeout:
                msg = (
                    f"waited {now - began:.0f} seconds, the last {self._timeout:.0f} of which "
                    f"brought nothing, for {self._shards.describe(shard)}; see whether the "
                    "storage answers, or raise download_timeout"
                )
                raise WaitTimeoutError(msg)
        with self._lock:
            self._urgent = None
            self._held -= job.weight
            del self._jobs[shard]
            self._changed.notify_all()  # there is room in the budget
        if job.error is not None:
            raise job.error
        if job.shard is None:
            raise AssertionError
        return job.shard

    def _hurry(self, shard: int) -> None:
        """Let a shard that is waited for be the next to be fetched, whatever is held already."""
        self._urgent = shard
        if shard in self._queue:
            self._queue.move_to_end(shard, last=False)
        self._changed.notify_all()

    def close(self) -> None:
        """Let the threads end after what they are at; nothing waits for them."""
        if os.getpid() != self._owner:  # a thread of the parent may have held the lock at the fork
            return
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._jobs.clear()
            self._changed.notify_all()

    def _next(self) -> tuple[int, _Job | None] | None:
        """Return what to fetch or to warm next, waiting for work and for room; None at the end."""
        with self._lock:
            while not self._closed:
                if self._queue and self._has_room(next(iter(self._queue))):
                    shard, _ = self._queue.popitem(last=False)
                    job = self._jobs.get(shard)
                    self._held += job.weight if job else 0
                    return shard, job
                # Whoever changes anything notifies, so this wait needs no end of its own.
                self._changed.wait()
            return None

    def _has_room(self, shard: int) -> bool:
        job = self._jobs.get(shard)
        if job is None or not self._held or shard == self._urgent:
            return True
        return self._held + job.weight <= self._budget

    def _run(self) -> None:
        while (work := self._next()) is not None:
            number, job = work
            found: Shard | None = None
            error: BaseException | None = None
            try:
                found = self._shards.open(number)
            except BaseException as caught:  # noqa: BLE001 - whoever waits for it raises it
                error = caught
            if job is not None:
                with self._lock:
                    job.shard, job.error = found, error
                job.arrived.open()
            if found is not None:
                self._warm_up(number, found)
            del work, job, found, error  # an idle thread must keep no mapping alive

    def _warm_up(self, number: int, shard: Shard) -> None:
        try:
            self._shards.warm(shard)
        except Exception:  # noqa: BLE001 - it only saves time, and others wait for this thread
            _log.warning("%s could not be warmed", self._shards.describe(number), exc_info=True)
