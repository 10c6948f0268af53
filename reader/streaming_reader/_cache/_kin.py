"""Shards that are made of the same bytes: all of them in one go, by one process of the node."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming_core._units import format_bytes
from streaming_core._workers import Latch
from streaming_core.errors import WaitTimeoutError
from streaming_reader._cache._locks import FileHandle, is_free
from streaming_reader._cache._places import file_stamp
from streaming_reader._threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming_core._index import ShardInfo
    from streaming_core._store import ProgressDeadline
    from streaming_reader._cache._filling import Filler
    from streaming_reader._cache._shelf import Shelf

__all__ = ["bring_kin", "chosen"]

_log = logging.getLogger("streaming_core.reader")
_LOOK_SECONDS: Final = 0.05
_SHARE: Final = 2
"""Of the limit, what is made in one go may take this part: the rest is of those in use."""
_told: set[str] = set()


def chosen(sizes: Sequence[int], at: int, most: int) -> range:
    """Return which of some shards to make with the one of `at`: those after it, then those before.

    Together they have no more than `most` bytes, or it is alone. Pure.

    Example:
        >>> chosen([5, 5, 5, 5], 1, 15), chosen([5, 5, 5, 5], 3, 10), chosen([9, 9], 0, 5)
        (range(1, 4), range(2, 4), range(0, 1))
    """
    first, stop, left = at, at + 1, most - sizes[at]
    while stop < len(sizes) and sizes[stop] <= left:
        left -= sizes[stop]
        stop += 1
    while first and sizes[first - 1] <= left:
        first -= 1
        left -= sizes[first]
    return range(first, stop)


def bring_kin(
    shelf: Shelf,
    filler: Filler,
    info: ShardInfo,
    progress: ProgressDeadline,
    limit: int | None,
    keep: Callable[[ShardInfo, memoryview], object],
) -> None:
    """Let a shard be there for now, if it has kin: made with all of them that are missing.

    The first that asks makes them, in a thread that goes on when this returns; `keep` puts each
    into its place. Others wait for their shard to appear. With a `limit` for the folder no more are
    made than half of it takes. Where nothing can be written, nothing is done.

    Raises:
        WaitTimeoutError: Another process makes them, and nothing came for too long.
        StreamingError: As making it alone does.
    """
    family = filler.kin(info)
    if len(family) < 2:  # noqa: PLR2004 - none but itself
        return
    name = f"{family[0].raw.basename}.kin"
    path = shelf.places.lock(name)
    while shelf.changed(info) is None:
        try:
            os.makedirs(shelf.places.parts, exist_ok=True)
            is_ours = is_free(path)
        except OSError:
            return  # making it alone says what is wrong
        if is_ours and _Pass(shelf, filler, info, family, limit, name, keep).run():
            return
        _wait(path, progress, info)


def _window(
    shelf: Shelf, family: Sequence[ShardInfo], info: ShardInfo, limit: int | None
) -> list[ShardInfo]:
    """Return the shards to make: those that are missing, as far as the limit takes them."""
    missing = [one for one in family if one.index == info.index or shelf.changed(one) is None]
    if limit is None:
        return missing
    sizes = [one.raw.bytes for one in missing]
    at = [one.index for one in missing].index(info.index)
    window = chosen(sizes, at, limit // _SHARE)
    if len(window) < len(missing) and shelf.places.folder not in _told:
        _told.add(shelf.places.folder)
        _log.warning(
            "%s: %d parts of a file that can only be read as a whole have %s, more than half of "
            "the cache limit of %s: it is fetched several times in an epoch; raise the limit to "
            "avoid that",
            shelf.places.folder,
            len(family),
            format_bytes(sum(one.raw.bytes for one in family)),
            format_bytes(limit),
        )
    return [missing[nth] for nth in window]


def _wait(path: str, progress: ProgressDeadline, info: ShardInfo) -> None:
    """Wait a moment for whoever holds the lock, who touches its file while something comes."""
    stamp = file_stamp(path)
    if stamp is not None:
        # Never later than now, whatever the clock of the file system says.
        progress.renew(time.monotonic() - max(0.0, time.time() - stamp.changed / 1e9))
    if progress.deadline < time.monotonic():
        msg = (
            f"waited for {info.raw.basename}, which another process makes together with others, "
            f"and nothing came for {progress.seconds:.0f} seconds; see whether that process still "
            "makes progress, or give more time"
        )
        raise WaitTimeoutError(msg)
    time.sleep(_LOOK_SECONDS)


@dataclass
class _Pass:
    """Shards that are made in one go, by a thread that takes the lock for it."""

    shelf: Shelf
    filler: Filler
    info: ShardInfo
    family: Sequence[ShardInfo]
    limit: int | None
    name: str
    keep: Callable[[ShardInfo, memoryview], object]
    ready: Latch = field(default_factory=Latch)
    is_busy: bool = False
    error: BaseException | None = None

    def run(self) -> bool:
        """Return once the shard was made, or raise what came before it was.

        False if another process makes it.
        """
        try:
            # In a worker it stays until it has made what other processes wait for.
            start_thread(self._make, "streaming-kin", stays_in_worker=True)
        except RuntimeError:  # the system has no more threads
            self._make()
        while not self.ready.wait(_LOOK_SECONDS):
            pass
        error, self.error = self.error, None
        if error is not None and self.shelf.changed(self.info) is None:
            raise error
        return not self.is_busy

    def _make(self) -> None:
        try:
            # Taken here, as no signal handler can raise in this thread.
            lock = FileHandle.locked_now(self.shelf.places.lock(self.name))
            if lock is None:
                self.is_busy = True
                return
            with lock:
                try:
                    self._make_all(lock.number)
                finally:
                    with suppress(OSError):
                        self.shelf.places.clear(self.name)
        except BaseException as error:  # noqa: BLE001 - the caller raises it; others ask again
            self.error = error
            if self.ready.is_open:
                _log.info("%s: not all parts were made: %s", self.shelf.places.folder, error)
        finally:
            self.ready.open()

    def _make_all(self, lock: int) -> None:
        if self.shelf.changed(self.info) is not None:
            return  # made between looking and locking

        def touch() -> None:
            """Show others that something came."""
            with suppress(OSError):
                if os.utime in os.supports_fd:
                    os.utime(lock)

        shards = _window(self.shelf, self.family, self.info, self.limit)
        for shard, data in self.filler.made_together(shards, touch):
            self.keep(shard, data)
            touch()
            if shard.index == self.info.index:
                self.ready.open()
