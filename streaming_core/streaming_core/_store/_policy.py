"""The one policy for requests: attempts, pauses, deadlines, minimum rate, and the rate limit."""

from __future__ import annotations

import math
import random
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from streaming_core._store._progress import MinimumRate, ProgressDeadline
from streaming_core._workers import Latch, in_order
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    RangeError,
    StoreBusyError,
    StoreError,
    StreamingError,
    UnsafeKeyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = ["Attempts", "Caller", "RateLimiter", "RequestCounts", "RequestPolicy", "is_final"]

_A = TypeVar("_A")
_R = TypeVar("_R")
_T = TypeVar("_T")

_FINAL: Final = (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    RangeError,
    UnsafeKeyError,
)
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LONGEST_ASKED_SECONDS: Final = 600.0
"""Where there is no deadline, a store that wants to be left alone for longer is not waited for."""
_BLINK_SECONDS: Final = 0.05
"""How long being told to stop goes unnoticed; some systems deliver Ctrl-C only between waits."""
_WORTH_BYTES: Final = 4 << 20
"""A request that broke after so many bytes was worth making."""


def is_final(error: StreamingError) -> bool:
    """Tell whether asking again cannot help: the answer is no, or there is nobody to ask.

    Example:
        >>> is_final(ObjectNotFoundError("none")), is_final(StoreError("connection reset"))
        (True, False)
    """
    return isinstance(error, _FINAL)


class Caller(Protocol):
    """Makes requests, again and again where that may help."""

    def __call__(self, request: Callable[[], _R], /) -> _R:
        """Return what `request` returns."""
        ...


class RateLimiter(Protocol):
    """Spaces the requests of several threads or processes to a store that says it is busy."""

    def wait(self, progress: ProgressDeadline) -> float | None:
        """Wait until a request may be made; return when that was, None if there is no limit.

        Raises `StoreBusyError` if that is after the deadline.
        """
        ...

    def refused(
        self, began: float | None, error: StoreBusyError, progress: ProgressDeadline
    ) -> None:
        """Note that the request of `began` was refused; `wait` then holds back all others.

        Raises `error` if the store is to be left alone until after the deadline.
        """
        ...

    def answered(self, began: float | None) -> None:
        """Note that the store answered the request of `began`, as `wait` returned it."""
        ...


@dataclass(slots=True)
class RequestCounts:
    """Numbers that only grow; threads that count at the same moment may lose one."""

    bytes_fetched: int = 0
    """Bytes that came from the remote."""
    retries: int = 0
    """Requests to the remote that had to be made again."""
    refusals: int = 0
    """Requests that were refused because the remote was busy."""
    wait_pace_ns: int = 0
    """Nanoseconds that requests waited because the remote had been busy."""


@dataclass(frozen=True)
class RequestPolicy:
    """How often a request is tried, and for how long; threads may share it.

    Pauses double from `first_pause` on, each shortened at random by up to a half, so that many
    processes that failed together do not return together. A busy store that says when it wants
    to be asked again is left alone for as long, and up to a fifth longer.

    Example:
        >>> RequestPolicy(3).call(lambda: "answer")
        'answer'
    """

    tries: int = 3
    """How often a request is made, at least once."""
    _: KW_ONLY
    timeout: float = math.inf
    """Seconds of waiting in which a request must get bytes at the minimum rate."""
    total: float | None = None
    """Seconds for all attempts: no pause ends later. None: no limit."""
    busy: float | None = None
    """Seconds for which a store may be busy; its refusals are then not counted as tries. None: each
    is one of the tries."""
    first_pause: float = 0.5
    stop: Callable[[], bool] | None = None
    """Once true, ends every pause, now and later; the tries left are then made at once, and a store
    that is busy is not asked again."""
    limiter: RateLimiter | None = None
    """Decides when requests are made to a store that is busy; `busy` says for how long. None: each
    caller waits on its own."""

    def begin(
        self, progress: ProgressDeadline | None = None, counts: RequestCounts | None = None
    ) -> Attempts:
        """Return the state of one request, or of one chain of requests that counts as one.

        No pause ends after the deadline of `progress`, which replaces `busy` and is renewed
        whenever something arrives. `counts` is added to.
        """
        return Attempts(self, progress, counts or RequestCounts())

    def call(self, act: Callable[[], _T]) -> _T:
        """Return what `act` returns, called again after each `StoreError` that may pass."""
        return self.begin().call(act)

    def in_order(
        self, act: Callable[[_A, Caller], _T], items: Iterable[_A], *, at_a_time: int = 32
    ) -> Generator[_T]:
        """Yield what `act` returns for each item, in order, some at a time; an error ends it.

        `act` makes its requests by the function that it is given, which is `call`, until the
        generator or the main thread ends: then nothing is asked for again.

        Example:
            >>> list(RequestPolicy(3).in_order(lambda item, call: call(item.upper), ["a", "b"]))
            ['A', 'B']
        """
        end, main = Latch(), threading.main_thread()

        def is_over() -> bool:
            return end.is_open or not main.is_alive()

        policy = replace(self, stop=is_over)

        def call(request: Callable[[], _R]) -> _R:
            def once() -> _R:
                if is_over():
                    raise CancelledError
                return request()

            return policy.call(once)

        return in_order(lambda item: act(item, call), items, at_a_time=at_a_time, at_end=end.open)

    def pause_seconds(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row, drawn at random."""
        longest: float = min(self.first_pause * 2.0 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def wait(self, seconds: float) -> None:
        """Wait, unless told to stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.stop is not None and self.stop():
                return
            time.sleep(min(left, _BLINK_SECONDS))


class Attempts:
    """The attempts at one request, or at one chain of requests that counts as one.

    One thread uses it: `call`, or `wait_turn` before each request, then `came` for what arrives,
    and `answered` or `failed`.
    """

    __slots__ = (
        "_began",
        "_busy",
        "_end",
        "_failures",
        "_progress",
        "_rate",
        "_refusals",
        "counts",
        "policy",
        "requests",
    )

    def __init__(
        self, policy: RequestPolicy, progress: ProgressDeadline | None, counts: RequestCounts
    ) -> None:
        self.policy = policy
        self.counts = counts
        self.requests = 0
        """How many requests were made."""
        self._end = math.inf if policy.total is None else time.monotonic() + policy.total
        self._progress = progress
        self._busy = progress or ProgressDeadline(policy.busy or 0.0)
        self._began: float | None = None
        self._rate = MinimumRate(policy.timeout)
        self._failures = 0
        self._refusals = 0
        """How many requests in a row were refused because the store was busy."""

    def call(self, act: Callable[[], _T]) -> _T:
        """Return what `act` returns, called again after each `StoreError` that may pass."""
        while True:
            self.wait_turn()
            try:
                found = act()
            except StoreError as error:
                self.failed(error)
            else:
                self.answered()
                return found

    def wait_turn(self) -> None:
        """Wait until a request may be made, and count it."""
        limiter = self.policy.limiter
        if limiter is not None:
            entered = time.monotonic()
            self._began = limiter.wait(self._busy)
            if self._began is not None:
                self.counts.wait_pace_ns += int((time.monotonic() - entered) * 1e9)
        self._rate.reset()
        self.requests += 1

    def answered(self) -> None:
        """Note that the store answered."""
        if self.policy.limiter is not None:
            self.policy.limiter.answered(self._began)

    def came(self, num_bytes: int, seconds: float = 0.0) -> bool:
        """Note that bytes arrived after so many seconds of waiting; False if they are too slow."""
        self.counts.bytes_fetched += num_bytes
        if self._progress is not None:
            self._progress.renew()
        return self._rate.is_enough(num_bytes, seconds)

    def failed(self, error: StreamingError, *, brought: int = 0) -> None:
        """Wait until the next request may be made; raise `error` if none may.

        After a request that `brought` much of a file that is continued from there, all tries are
        available again. Raises `StoreBusyError` if the store wants to be left alone for longer than
        there is time.
        """
        policy, busy = self.policy, self._busy
        if isinstance(error, StoreBusyError) and policy.limiter is not None:
            self.counts.refusals += 1
            policy.limiter.refused(self._began, error, busy)
            return
        if isinstance(error, StoreBusyError) and policy.busy is not None:
            if policy.stop is not None and policy.stop():
                raise error
            if not self._refusals:
                self._busy = busy = ProgressDeadline(policy.busy)
            self._refusals += 1
            self._pause(error, self._refusals, busy.deadline)
            return
        self._refusals = 0
        self._failures = 1 if brought >= _WORTH_BYTES else self._failures + 1
        if is_final(error) or self._failures >= policy.tries:
            raise error
        end = self._end if self._progress is None else min(self._end, self._progress.deadline)
        self._pause(error, self._failures, end)
        self.counts.retries += 1

    def _pause(self, error: StreamingError, failures: int, end: float) -> None:
        """Pause after so many failures, not until after `end`; raise an error if that is needed."""
        left = end - time.monotonic()
        asked = error.retry_after if isinstance(error, StoreBusyError) else None
        if asked is None or not asked > 0:
            pause = self.policy.pause_seconds(failures)
            if pause >= left:
                raise error
        else:
            left = _LONGEST_ASKED_SECONDS if math.isinf(left) else left
            if asked >= left:
                msg = (
                    f"{error}; the store wants to be left alone for {asked:.0f} seconds, longer "
                    f"than the {max(0.0, left):.0f} that are left; try again later, or allow more "
                    "time"
                )
                raise StoreBusyError(msg, retry_after=asked) from error
            # The jitter gives way to the deadline, what the store asked for does not.
            pause = min(asked * random.uniform(1.0, 1.2), left)  # noqa: S311 - spreads load
        self.policy.wait(pause)
