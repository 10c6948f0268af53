"""Shards that are made of the same bytes: all of them in one go, by one process of the node."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming_core._units import format_bytes
from streaming_core.errors import WaitTimeoutError
from streaming_reader._cache._locks import lock_now
from streaming_reader._cache._places import file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming_core._index import ShardInfo
    from streaming_reader._cache._filling import Filler
    from streaming_reader._cache._locks import FileHandle
    from streaming_reader._cache._patience import Patience
    from streaming_reader._cache._shelf import Shelf

__all__ = ["bring_kin", "chosen"]

_log = logging.getLogger("streaming_core.reader")
_LOOK_SECONDS: Final = 0.02
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
    patience: Patience,
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
            lock = lock_now(path)
        except OSError:
            return  # whoever makes it alone says what is wrong
        if lock is None:
            _wait(path, patience, info)
            continue
        if shelf.changed(info) is not None:  # made between looking and locking
            _unlock(shelf, name, lock)
            return
        shards = _window(shelf, family, info, limit)
        _Pass(shelf, filler, shards, name, lock, keep).run(info)
        return


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


def _wait(path: str, patience: Patience, info: ShardInfo) -> None:
    """Wait a moment for whoever holds the lock, who touches its file while something comes."""
    stamp = file_stamp(path)
    if stamp is not None:
        # Never later than now, whatever the clock of the file system says.
        patience.renew(time.monotonic() - max(0.0, time.time() - stamp.changed / 1e9))
    if patience.deadline < time.monotonic():
        msg = (
            f"waited for {info.raw.basename}, which another process makes together with others, "
            f"and nothing came for {patience.seconds:.0f} seconds; see whether that process still "
            "makes progress, or give more time"
        )
        raise WaitTimeoutError(msg)
    time.sleep(_LOOK_SECONDS)


def _unlock(shelf: Shelf, name: str, lock: FileHandle) -> None:
    with suppress(OSError):
        shelf.places.clear(name)
    lock.close()


@dataclass
class _Pass:
    """Shards that are made in one go, under a lock that was taken for it."""

    shelf: Shelf
    filler: Filler
    shards: Sequence[ShardInfo]
    name: str
    lock: FileHandle
    keep: Callable[[ShardInfo, memoryview], object]
    ready: threading.Event = field(default_factory=threading.Event)
    wanted: int = -1
    error: BaseException | None = None

    def run(self, info: ShardInfo) -> None:
        """Begin, and return when one shard was made; raise what came before it was."""
        self.wanted = info.index
        # A worker that has done its own share stays until it has made what others wait for; whoever
        # started it does not let that take long.
        is_worker = multiprocessing.parent_process() is not None
        thread = threading.Thread(target=self._make, name="streaming-kin", daemon=not is_worker)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            self._make()
        self.ready.wait()
        error, self.error = self.error, None
        if error is not None and self.shelf.changed(info) is None:
            raise error

    def _make(self) -> None:
        try:
            for shard, data in self.filler.made_together(self.shards, self._touch):
                self.keep(shard, data)
                self._touch()
                if shard.index == self.wanted:
                    self.ready.set()
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it; others ask anew
            self.error = error
            if self.ready.is_set():
                _log.info("%s: not all parts were made: %s", self.shelf.places.folder, error)
        finally:
            _unlock(self.shelf, self.name, self.lock)
            self.ready.set()

    def _touch(self) -> None:
        """Show others that something came."""
        with suppress(OSError):
            if os.utime in os.supports_fd:
                os.utime(self.lock.number)
