"""Some rows of one shard, fetched by ranges: header first, unless its length is known."""

from __future__ import annotations

import logging
import math
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming_core._store import RequestPolicy
from streaming_core.errors import (
    ShardCorruptError,
    StoreBusyError,
    StoreError,
    StreamingError,
    WaitTimeoutError,
)
from streaming_reader._ranged._choice import MOST_OF_SHARD, Cost, gap_bytes, spans_of
from streaming_reader._ranged._sparse import Sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._format import Shard
    from streaming_core._index import ShardInfo
    from streaming_core._store import Parts, Store
    from streaming_reader._ranged._crew import Task
    from streaming_reader._ranged._origin import Origin

__all__ = ["Errand"]

_log = logging.getLogger("streaming_core.reader")
_WORD: Final = 4
_MOST_ROUNDS: Final = 6
_FIRST_PAUSE_SECONDS: Final = 0.1


class Errand:
    """Fetches rows of one shard into a sparse copy, all from one version of the object.

    Its tasks never raise: what went wrong is kept in `error`, and the caller has the whole shard
    instead. `done` is called once, from whichever thread comes last.
    """

    def __init__(
        self,
        origin: Origin,
        store: Store,
        info: ShardInfo,
        rows: NDArray[np.int64],
        copy: Sparse | None,
        *,
        together: int,
        deadline: float,
        done: Callable[[Errand], None],
    ) -> None:
        """Fetch `rows` from `store`, into `copy` if there is one; ask nothing after `deadline`.

        A call asks for up to `together` ranges, which the store reads side by side.
        """
        self._origin = origin
        self._store = store
        self._info = info
        self._rows = rows
        self._step = together
        self._deadline = deadline
        self._done = done
        self._work = _Work(copy)
        self.copy: Sparse | None = None
        """The copy that has the rows, once they are here."""
        self.error: Exception | None = None
        """Why they are not."""
        self.cost = Cost()
        """What it has taken so far."""
        self.quickest = math.inf
        """Seconds that its quickest call took."""

    @property
    def is_over(self) -> bool:
        """Whether it has come to an end, either way."""
        return self.copy is not None or self.error is not None

    def shard(self) -> Shard | None:
        """Return the shard to read the rows of, if they are here."""
        return None if self.copy is None else self.copy.take(self._rows)

    def begin(self) -> Iterable[Task]:
        """Do the first task; returns those that follow."""
        return self._guarded(self._start)

    # --- tasks ------------------------------------------------------------------------------------

    def _guarded(self, act: Callable[[], Sequence[Task]]) -> Sequence[Task]:
        """Return the tasks that `act` returns; an error is the end."""
        if self.error is not None:
            return ()
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - whoever waits has the whole shard instead
            self._fail(error)
            return ()

    def _start(self) -> Sequence[Task]:
        copy = self._work.copy
        if copy is not None:
            return self._rest(copy)
        header = self._origin.header(self._info)
        if header.is_sure:
            return self._asking(self._origin.spans(self._info, self._rows, header))
        return self._asking([(0, header.nbytes)])

    def _rest(self, copy: Sparse) -> Sequence[Task]:
        """Return the tasks that fetch what `copy` lacks; it is over if that is nothing."""
        missing = copy.missing(self._rows)
        if not len(missing):
            self.copy = copy
            self._done(self)
            return ()
        spans = spans_of(copy.offsets, missing, gap_bytes(self._info.raw.bytes))
        wanted = sum(stop - start for start, stop in spans)
        if MOST_OF_SHARD * (copy.read_bytes + wanted) > self._info.raw.bytes:
            msg = f"{self._info.raw.basename}: {wanted} bytes are too large a part of the shard"
            raise StreamingError(msg)
        return self._asking(spans)

    def _asking(self, spans: Sequence[tuple[int, int]]) -> Sequence[Task]:
        """Return the tasks that fetch some ranges, a few each."""
        self.cost = self.cost.plus(Cost(rounds=1))
        if self.cost.rounds > _MOST_ROUNDS:
            msg = f"{self._info.raw.basename}: not complete after {_MOST_ROUNDS} rounds of requests"
            raise StreamingError(msg)
        groups = [spans[at : at + self._step] for at in range(0, len(spans), self._step)]
        self._work.expect(len(groups))
        return [partial(self._guarded, partial(self._fetch, group)) for group in groups]

    def _fetch(self, spans: Sequence[tuple[int, int]]) -> Sequence[Task]:
        """Fetch some ranges; whoever brings the last ones goes on with all of them."""
        parts, etag = self._answer(spans)
        starts = [start for start, _ in spans]
        if not self._work.add(list(zip(starts, parts, strict=True)), etag):
            return ()
        return self._complete()

    def _complete(self) -> Sequence[Task]:
        """Keep all that came, if it is of one version."""
        work = self._work
        etags = set(work.etags)
        if work.copy is not None:
            etags.add(work.copy.etag)
        if "" in etags:
            self._origin.lacks_versions()
            msg = f"{self._store.url} does not tell versions of {self._info.raw.basename!r} apart"
            raise StoreError(msg)
        if len(etags) > 1:
            return self._anew()
        if work.copy is None:
            header = _contiguous(work.parts)
            needed = self._header_bytes(header)
            if needed > len(header):
                return self._asking([(len(header), needed)])
            work.copy = Sparse(
                self._info, header, etags.pop(), allow_unsafe=self._origin.settings.allow_unsafe
            )
            self._origin.learn(self._info, int(work.copy.offsets[0]))
        for start, data in work.parts:
            work.copy.write(start, data)
        work.parts.clear()
        return self._rest(work.copy)

    def _header_bytes(self, begin: bytes) -> int:
        """Return how long the header is that begins so; one that is none is not read on."""
        if len(begin) < 2 * _WORD:
            return 0
        (nbytes,) = struct.unpack_from("<I", begin, _WORD)
        if nbytes > len(begin) and MOST_OF_SHARD * nbytes > self._info.raw.bytes:
            msg = f"{self._info.raw.basename}: a header of {nbytes} bytes is too much of the shard"
            raise ShardCorruptError(msg)
        return int(nbytes)

    def _anew(self) -> Sequence[Task]:
        """Begin again once, as the object was replaced meanwhile."""
        if self._work.is_second:
            msg = (
                f"read {self._info.raw.basename!r} in {self._store.url}: the object is being "
                "replaced again and again; do not change data that is being read"
            )
            raise StoreError(msg)
        self._work = _Work(None, is_second=True)
        return self._start()

    # --- requests ---------------------------------------------------------------------------------

    def _answer(self, spans: Sequence[tuple[int, int]]) -> tuple[list[bytes], str]:
        """Return the bytes of some ranges and their version; asks again where that may help."""
        settings = self._origin.settings
        # A line that is dead is told by the whole shard, whose tries come on top.
        policy = RequestPolicy(
            settings.tries,
            total=settings.timeout,
            busy=min(settings.stall_seconds, max(0.0, self._deadline - time.monotonic())),
            first_pause=_FIRST_PAUSE_SECONDS,
            limiter=self._origin.limiter,
        )
        found = policy.call(partial(self._ask, spans))
        return list(found), found.etag

    def _ask(self, spans: Sequence[tuple[int, int]]) -> Parts:
        """Ask once."""
        name = self._info.raw.basename
        began = time.monotonic()
        if began >= self._deadline:
            msg = f"{name}: its ranges did not come in time"
            raise WaitTimeoutError(msg)
        self._spend(Cost(requests=len(spans)))
        try:
            found = self._store.get_ranges(name, spans)
        except StoreBusyError as error:
            self._origin.meter.was_busy(error.retry_after)
            raise
        nbytes = sum(map(len, found))
        for (start, stop), data in zip(spans, found, strict=True):
            if len(data) != stop - start:
                msg = (
                    f"get_ranges {name!r} in {self._store.url}: {len(data)} bytes came from byte "
                    f"{start} on, wanted were {stop - start}"
                )
                raise StoreError(msg)
        self._spend(Cost(nbytes=nbytes))
        self.quickest = min(self.quickest, time.monotonic() - began)
        return found

    def _spend(self, cost: Cost) -> None:
        with self._work.guard:
            self.cost = self.cost.plus(cost)

    def _fail(self, error: Exception) -> None:
        with self._work.guard:
            if self.is_over:
                return
            self.error = error
        if isinstance(error, ShardCorruptError):
            _log.warning("having the whole shard instead of ranges of it: %s", error)
        elif not isinstance(error, StreamingError):
            _log.warning("reading ranges of %s failed", self._info.raw.basename, exc_info=error)
        else:
            _log.info("having the whole shard instead of ranges of it: %s", error)
        self._done(self)


def _contiguous(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the bytes from the first one on that came without a gap."""
    begin = b""
    for start, data in sorted(parts):
        if start == len(begin):
            begin += data
    return begin


class _Work:
    """What has come so far of one version."""

    __slots__ = ("copy", "etags", "guard", "is_second", "left", "parts")

    def __init__(self, copy: Sparse | None, *, is_second: bool = False) -> None:
        self.copy = copy
        self.is_second = is_second
        self.guard = threading.Lock()
        self.parts: list[tuple[int, bytes]] = []
        self.etags: set[str] = set()
        self.left = 0

    def expect(self, calls: int) -> None:
        """Wait for so many answers."""
        self.left = calls

    def add(self, parts: Sequence[tuple[int, bytes]], etag: str) -> bool:
        """Keep an answer; tell whether it was the last one."""
        with self.guard:
            self.parts += parts
            self.etags.add(etag)
            self.left -= 1
            return not self.left
