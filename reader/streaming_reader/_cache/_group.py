"""One limit for the files of several data sets, kept by all processes of a node together."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from streaming_core._store import last_progress
from streaming_core._units import format_bytes, parse_bytes
from streaming_core.errors import SchemaError, WaitTimeoutError
from streaming_reader._cache._ledger import Entry, Page, State
from streaming_reader._cache._opened import Together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from streaming_core._store import ProgressDeadline
    from streaming_reader._cache._shelf import Shelf

__all__ = ["CacheGroup", "Held", "coldest_first", "while_held"]

_log = logging.getLogger("streaming_core.reader")

_T = TypeVar("_T")
_LEAST_SHARDS: Final = 4
_LOOK_SECONDS: Final = 0.05
_MAPPED_SHARE: Final = 8
"""What was evicted stays on the disk while it is mapped, so a process keeps little mapped."""


def coldest_first(
    present: Sequence[NDArray[np.bool_]], last_uses: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[int, int]]:
    """Yield (member, shard) for what is present in each member, the longest unused first.

    Example:
        >>> present = [np.array([True, False, True]), np.array([True])]
        >>> list(coldest_first(present, [np.array([5, 0, 2]), np.array([3])]))
        [(0, 2), (1, 0), (0, 0)]
    """
    shards = [np.flatnonzero(there) for there in present]
    members = np.repeat(np.arange(len(shards)), [len(found) for found in shards])
    uses = [use[found] for use, found in zip(last_uses, shards, strict=True)]
    order = np.argsort(np.concatenate([np.zeros(0, np.int64), *uses]), kind="stable")
    flat = np.concatenate([np.zeros(0, np.int64), *shards])
    for at in order:
        yield int(members[at]), int(flat[at])


class _Here:
    """What belongs to one process."""

    def __init__(self, limit: int) -> None:
        self.owner = os.getpid()
        self.mapped = Together(limit // _MAPPED_SHARE)
        self.looked: set[tuple[str, str]] = set()
        """The ledgers that were compared with their folders."""
        self.guard = threading.Lock()
        self.overdraft: set[ProgressDeadline] = set()
        """The one fetch that may go on where there is no room at the moment, if there is one."""


class Held(NamedTuple):
    """The ledgers of some folders while they are locked."""

    shelves: tuple[Shelf, ...]
    """The folders."""
    pages: tuple[Page, ...]
    """Their ledgers, in the same order."""

    def page(self, shelf: Shelf) -> Page:
        """Return the ledger of one of the folders."""
        identity = shelf.ledger.identity
        return self.pages[[one.ledger.identity for one in self.shelves].index(identity)]

    def settle(self) -> None:
        """Look after what was being fetched when its process died."""
        for shelf, page in zip(self.shelves, self.pages, strict=True):
            states, _, _ = page.columns()
            for shard in np.flatnonzero(states == State.FETCHING).tolist():
                if not shelf.is_being_made(shard):
                    size = shelf.bytes_there(shelf.table.shard(shard))
                    state = State.PRESENT if size else State.ABSENT
                    page.set(shard, page.get(shard)._replace(state=state, size=size))

    def used(self, *, with_fetching: bool) -> int:
        """Return the bytes of all shards that are there, or also of those to come."""
        least = State.FETCHING if with_fetching else State.PRESENT
        total = sum(shelf.fixed_bytes for shelf in self.shelves)
        for page in self.pages:
            states, sizes, _ = page.columns()
            total += int(sizes[states >= least].sum())
        return total

    def evict(self, need: int, keep: tuple[Shelf, int] | None, *, held: bool) -> int:
        """Remove the coldest shards until `need` bytes are free; return how many are still missing.

        What somebody has mapped is spared first, and taken afterwards only with `held`: what is
        mapped stays readable without a name.
        """
        columns = [page.columns() for page in self.pages]
        present = [states == State.PRESENT for states, _, _ in columns]
        spared: list[tuple[int, int]] = []
        order = coldest_first(present, [last_use for _, _, last_use in columns])
        for member, shard in order:
            if need <= 0:
                return need
            if keep is not None and self._is(member, shard, keep):
                continue
            if self.shelves[member].is_held(shard):
                spared.append((member, shard))
            else:
                need -= self._remove(member, shard)
        for member, shard in spared if held else ():
            if need <= 0:
                break
            need -= self._remove(member, shard)
        return need

    def coldest(self, shelf: Shelf) -> int | None:
        """Return the shard of one folder to be evicted first, None if it has none."""
        page = self.page(shelf)
        states, _, last_use = page.columns()
        order = [shard for _, shard in coldest_first([states == State.PRESENT], [last_use])]
        return next((shard for shard in order if not shelf.is_held(shard)), next(iter(order), None))

    def remove(self, shelf: Shelf, shard: int) -> bool:
        """Remove a shard's files; tell whether there were any."""
        page = self.page(shelf)
        # Removed first: dying in between counts too much rather than too little.
        there = shelf.remove(shard)
        page.set(shard, Entry(last_use=page.get(shard).last_use))
        return there

    def _is(self, member: int, shard: int, keep: tuple[Shelf, int]) -> bool:
        return shard == keep[1] and self.shelves[member].ledger.identity == keep[0].ledger.identity

    def _remove(self, member: int, shard: int) -> int:
        size = self.pages[member].get(shard).size
        self.remove(self.shelves[member], shard)
        return size


class CacheGroup:
    """Keeps the files of its members within `limit` bytes, over all processes of the node.

    Files that were there before count and may be evicted as well. What is published never exceeds
    the limit; a part that is being made may, one for each process. Nobody waits for room: there is
    always enough that can be removed, as what is mapped stays readable without a name.

    Example:
        >>> CacheGroup("100mb").limit
        104857600
    """

    def __init__(self, limit: int | str) -> None:
        self.limit = parse_bytes(limit)
        """The most bytes in the folders of all members."""
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._process = _Here(self.limit)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what belongs to this process."""
        return {"limit": self.limit, "_shelves": self._shelves}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._process = _Here(self.limit)

    def add(self, shelf: Shelf) -> None:
        """Take in a folder; `SchemaError` if the limit is too small for it."""
        shelves = {**self._shelves, shelf.ledger.identity: shelf}
        if len({path for path, _ in shelves}) < len(shelves):
            msg = (
                f"{shelf.places.folder}: two streams with different data share this folder; give "
                "each a local folder of its own"
            )
            raise SchemaError(msg)
        index = sum(one.index_bytes for one in shelves.values())
        fixed = sum(one.fixed_bytes for one in shelves.values())
        largest = max(one.largest_bytes for one in shelves.values())
        wanted = max(index + 1, _LEAST_SHARDS * largest, fixed + largest)
        if self.limit < wanted:
            msg = (
                f"a cache limit of {self.limit} bytes is too small for {shelf.places.folder}: it "
                f"must exceed the index ({index} bytes) and be at least {_LEAST_SHARDS} times the "
                f"largest shard with all its files ({format_bytes(largest)}); give "
                f"{wanted} or more"
            )
            raise SchemaError(msg)
        self._shelves = shelves
        if not shelf.is_writable:
            _log.warning(
                "the cache limit of %d bytes is not kept in %s: this user cannot write there, and "
                "so cannot remove anything; let local= name another folder",
                self.limit,
                shelf.places.folder,
            )

    def while_held(self, deadline: float, act: Callable[[Held], _T]) -> _T:
        """Call `act` with the ledgers of all members, locked and compared with their folders."""

        def looked(held: Held) -> _T:
            self._look(held)
            try:
                return act(held)
            finally:
                self._forget_removed(held)

        return while_held(list(self._shelves.values()), deadline, looked)

    def usage(self, deadline: float) -> int:
        """Return the bytes in the folders of all members."""

        def used(held: Held) -> int:
            held.settle()
            return held.used(with_fetching=False)

        return self.while_held(deadline, used)

    def with_room(
        self,
        shelf: Shelf,
        shard: int,
        size: int,
        progress: ProgressDeadline,
        fetch: Callable[[], _T],
    ) -> _T:
        """Return what `fetch` returns, called once there is room for the shard.

        Raises:
            WaitTimeoutError: There was none, and another fetch of this process is beyond the limit
                already, until nothing came to this process for too long.
        """
        if self._reserve(shelf, shard, size, progress.deadline):
            return fetch()
        here = self._here()
        try:
            end = progress.deadline
            while not self._overdraws(here, progress):
                if end <= time.monotonic():
                    end = last_progress() + progress.seconds
                if end <= time.monotonic():
                    msg = (
                        f"waited for room for {size} bytes below the cache limit of {self.limit} "
                        "while other downloads of this process took it all; raise the limit"
                    )
                    raise WaitTimeoutError(msg)
                time.sleep(_LOOK_SECONDS)
            progress.renew()
            self._reserve(shelf, shard, size, progress.deadline)
            return fetch()
        finally:
            here.overdraft.discard(progress)

    @staticmethod
    def _overdraws(here: _Here, progress: ProgressDeadline) -> bool:
        """Tell whether the fetch of `progress` may go beyond the limit, as no other one does."""
        with here.guard:
            if here.overdraft:
                return False
            here.overdraft.add(progress)
            return True

    def _reserve(self, shelf: Shelf, shard: int, size: int, deadline: float) -> bool:
        def reserve(held: Held) -> bool:
            held.settle()
            page = held.page(shelf)
            entry = page.get(shard)
            page.set(shard, entry._replace(state=State.ABSENT, size=0))
            need = held.used(with_fetching=True) + size - self.limit
            fits = need <= 0 or held.evict(need, (shelf, shard), held=False) <= 0
            now = Entry(State.FETCHING, size, entry.last_use) if fits else entry
            page.set(shard, now)
            return fits

        return self.while_held(deadline, reserve)

    def publish(
        self, shelf: Shelf, shard: int, entry: Entry, act: Callable[[], None], deadline: float
    ) -> None:
        """Let `act` bring a shard into place, after as much was removed as its bytes need."""

        def bring(held: Held) -> None:
            held.settle()  # others may have died with their files in place since room was made
            page = held.page(shelf)
            # Counted while it is not there yet: dying in between counts too much, never too little.
            page.set(shard, entry._replace(state=State.FETCHING))
            need = held.used(with_fetching=False) + entry.size - self.limit
            if need > 0:
                held.evict(need, (shelf, shard), held=True)
            act()
            page.set(shard, entry)

        self.while_held(deadline, bring)

    @property
    def mapped(self) -> Together:
        """What the members keep mapped in this process."""
        return self._here().mapped

    def _forget_removed(self, held: Held) -> None:
        """Unmap what this process or another has evicted."""
        for shelf, page in zip(held.shelves, held.pages, strict=True):
            kept = self.mapped.members(shelf.ledger.identity)
            if kept:
                gone = set(np.flatnonzero(page.columns()[0] == State.ABSENT).tolist())
                for opened in kept:
                    opened.forget(gone.__contains__)

    def _look(self, held: Held) -> None:
        """Compare the ledgers with their folders, once in a process and when they are new."""
        looked = self._here().looked
        for shelf, page in zip(held.shelves, held.pages, strict=True):
            if page.is_new or shelf.ledger.identity not in looked:
                page.replace(shelf.scan())
                looked.add(shelf.ledger.identity)

    def _here(self) -> _Here:
        if self._process.owner != os.getpid():  # forked
            self._process = _Here(self.limit)
        return self._process


def while_held(shelves: Sequence[Shelf], deadline: float, act: Callable[[Held], _T]) -> _T:
    """Call `act` with the ledgers of several folders, locked.

    Always in the order of their paths, so that two processes never wait for each other.
    """
    ordered = sorted(shelves, key=lambda shelf: shelf.ledger.path)
    pages: list[Page] = []
    closing = map(Page.close, pages)
    try:
        for shelf in ordered:
            pages.append(shelf.ledger.locked(deadline))  # noqa: PERF401 - closed if the next fails
        return act(Held(tuple(ordered), tuple(pages)))
    finally:
        list(closing)  # all in one call, so that no signal handler can raise before the last
