"""Rows of shards that are not here, fetched by ranges and kept for a while in memory."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from streaming_reader._ranged._choice import Cost, Offer, choose_alone
from streaming_reader._ranged._errand import Errand
from streaming_reader._ranged._sparse import check_receipts
from streaming_reader._ranged._watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from streaming_core._format import Shard
    from streaming_reader._located import Located
    from streaming_reader._ranged._origin import Origin
    from streaming_reader._ranged._sparse import Receipt, Sparse

__all__ = ["RangeCounts", "Ranged", "Rows", "rows_by_shard"]

_BUDGET_BYTES: Final = 256 << 20
_MOST_TOGETHER: Final = 8
_MOST_COPIES: Final = 1024
"""Each is a mapping, of which a process may have some ten thousand."""

Rows = dict[int, "NDArray[np.int64]"]
"""Rows by the number of their shard."""


@dataclass(slots=True)
class RangeCounts:
    """What was read by ranges in this process so far; numbers that only grow.

    Example:
        >>> RangeCounts(3, 100) - RangeCounts(1, 20)
        RangeCounts(range_requests=2, range_bytes=80)
    """

    range_requests: int = 0
    """Ranges that were asked for, those asked for again included."""
    range_bytes: int = 0
    """Bytes that came."""

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


class Ranged:
    """Rows of the shards of all streams, which are numbered through.

    A copy of a shard takes memory for what was read of it, and all copies together no more than a
    budget: the one unused for longest goes first. What was handed out stays readable as long as it
    is referred to. Threads may share it. Pickles and forks without what it holds.
    """

    def __init__(
        self,
        origins: Sequence[Origin],
        shard_offsets: Sequence[int],
        *,
        budget: int = _BUDGET_BYTES,
    ) -> None:
        """Take each stream's origin, the number of its first shard, and that of all shards."""
        self._origins = tuple(origins)
        self._starts = np.asarray(shard_offsets, np.int64)
        self._budget = budget
        self._state = _State()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_state": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._state = _State()

    @property
    def is_useful(self) -> bool:
        """Whether ranges of any stream can be read."""
        return any(origin.store is not None for origin in self._origins)

    @property
    def counts(self) -> RangeCounts:
        """What was read so far."""
        spent = self._here().total
        return RangeCounts(spent.requests, spent.nbytes)

    def origin(self, shard: int) -> tuple[Origin, int]:
        """Return where a shard comes from, and its number there."""
        self._here()
        stream = self.stream(shard)
        return self._origins[stream], shard - int(self._starts[stream])

    def stream(self, shard: int) -> int:
        """Return the stream that a shard is of."""
        return int(np.searchsorted(self._starts, shard, side="right")) - 1

    def serves(self, shard: int) -> bool:
        """Tell whether ranges of a shard can be read, and have not failed before."""
        origin, number = self.origin(shard)
        return origin.serves(number) and shard not in self._here().barred

    # --- what is here -----------------------------------------------------------------------------

    def held(self, shard: int, rows: NDArray[np.int64]) -> Shard | None:
        """Return a shard to read `rows` of, and no others, if all of them are here."""
        here = self._here()
        with here.guard:
            copy = here.copies.get(shard)
            if copy is None:
                return None
            here.copies.move_to_end(shard)
        return copy.take(rows)

    def receipts(self, shard: int) -> list[Receipt]:
        """Return what was read of a shard, if anything is kept of it; the list grows with it."""
        copy = self._here().copies.get(shard)
        return [] if copy is None else copy.receipts

    def whole(self, shard: int, found: Shard, receipts: Sequence[Receipt] = ()) -> None:
        """Drop what is kept of a shard, as all of it is here.

        Raises:
            ChecksumError: What was read by ranges, or is told by `receipts`, was something else.
        """
        here = self._here()
        with here.guard:
            copy = here.drop(shard)
            here.spent.pop(shard, None)
            here.barred.discard(shard)
        known = receipts or (copy.receipts if copy else ())
        if known:
            origin, number = self.origin(shard)
            name = origin.table.shard(number).raw.basename
            check_receipts(known, found.data, name)

    # --- what is not ------------------------------------------------------------------------------

    def offer(self, shard: int, rows: NDArray[np.int64]) -> Offer:
        """Return what it takes to read `rows` of a shard."""
        here = self._here()
        origin, number = self.origin(shard)
        info = origin.table.shard(number)
        copy = here.copies.get(shard)
        if copy is not None:
            rows = copy.missing(rows)
        cost = origin.cost(info, rows, None if copy is None else copy.offsets)
        return Offer(info.raw.bytes, cost, here.spent.get(shard, Cost()))

    def rows(self, wanted: Rows, *, timeout: float) -> dict[int, Shard]:
        """Return shards to read `wanted` of, where ranges are better than to fetch all of them.

        The caller fetches the others.
        """
        found: dict[int, Shard] = {}
        for shard, rows in wanted.items():
            held = self.held(shard, rows)
            if held is not None:
                found[shard] = held
        chosen = self.chosen_alone({at: rows for at, rows in wanted.items() if at not in found})
        if chosen:
            found |= self.bring(chosen, timeout=timeout)
        return found

    def chosen_alone(self, wanted: Mapping[int, NDArray[np.int64]]) -> Rows:
        """Return those rows that are better read by ranges, where nobody fetches the shards."""
        found: Rows = {}
        for shard, rows in wanted.items():
            if self.serves(shard):
                line = self.origin(shard)[0].meter.line
                if choose_alone(self.offer(shard, rows), line):
                    found[shard] = rows
        return found

    def bring(
        self,
        wanted: Mapping[int, NDArray[np.int64]],
        *,
        timeout: float,
        watch: Watch | None = None,
        alone: tuple[float, Callable[[], None]] | None = None,
    ) -> dict[int, Shard]:
        """Read rows by ranges, those of all shards side by side; return the shards to read them of.

        A shard is left out where that failed, or where `watch` says that there is no need any more;
        the caller has the whole of it. Waits no longer than `timeout` seconds; where `alone` is
        given, what it says is done when all is here, or after so many seconds if that is sooner.
        """
        here = self._here()
        deadline = time.monotonic() + timeout
        watch = watch or Watch()
        num_rows = sum(map(len, wanted.values()))
        # Where threads of ours make the calls, a store that needs its own for several ranges of one
        # call would only start more of them, and these cost more than the requests.
        together = _MOST_TOGETHER if len(wanted) == 1 else 1
        errands: dict[int, Errand] = {}
        for shard, rows in wanted.items():
            origin, number = self.origin(shard)
            if origin.store is None:
                continue
            errands[shard] = Errand(
                origin,
                origin.store,
                origin.table.shard(number),
                rows,
                here.copies.get(shard),
                together=together,
                deadline=deadline,
                done=partial(self._over, here, watch, shard),
            )
        began = time.monotonic()
        watch.run([errand.begin for errand in errands.values()], alone=num_rows <= _MOST_TOGETHER)
        over = {at: partial(_is_over, errand) for at, errand in errands.items()}
        if alone is not None:
            watch.wait(over, min(deadline, began + alone[0]))
            alone[1]()
        watch.wait(over, deadline)
        self._measure(errands, time.monotonic() - began)
        found: dict[int, Shard] = {}
        for shard, errand in errands.items():
            got = errand.shard()
            if got is not None:
                found[shard] = got
        return found

    # --- within -----------------------------------------------------------------------------------

    def _over(self, here: _State, watch: Watch, shard: int, errand: Errand) -> None:
        """Note how an errand ended."""
        with here.guard:
            here.total = here.total.plus(errand.cost)
            here.spent[shard] = here.spent.get(shard, Cost()).plus(errand.cost)
            if errand.copy is None:
                here.drop(shard)
                here.barred.add(shard)
            else:
                here.keep(shard, errand.copy, self._budget)
        watch.notify()

    def _measure(self, errands: Mapping[int, Errand], seconds: float) -> None:
        """Learn how fast each store's ranges came, as far as they did."""
        by_origin: dict[Origin, list[Errand]] = {}
        for shard, errand in errands.items():
            if errand.quickest < math.inf:
                by_origin.setdefault(self.origin(shard)[0], []).append(errand)
        for origin, some in by_origin.items():
            origin.meter.brought(
                nbytes=sum(errand.cost.nbytes for errand in some),
                seconds=seconds,
                rounds=max(errand.cost.rounds for errand in some),
                quickest=min(errand.quickest for errand in some),
            )

    def _here(self) -> _State:
        if self._state.owner != os.getpid():  # forked; other threads may have held the guards
            for origin in self._origins:
                origin.renew()
            self._state = _State()
        return self._state


def rows_by_shard(located: Located, shards: Sequence[int]) -> Rows:
    """Return the rows of some shards, each once, in order.

    Example:
        >>> from streaming_reader._located import Located
        >>> three = Located(np.arange(3), np.array([4, 7, 4]), np.array([9, 1, 2]))
        >>> {shard: rows.tolist() for shard, rows in rows_by_shard(three, [4]).items()}
        {4: [2, 9]}
    """
    order = np.argsort(located.shards, kind="stable")
    ordered, rows = located.shards[order], located.rows[order]
    wanted = np.array(shards, np.int64)
    begins = np.searchsorted(ordered, wanted, side="left").tolist()
    ends = np.searchsorted(ordered, wanted, side="right").tolist()
    return {
        shard: np.unique(rows[begin:end])
        for shard, begin, end in zip(shards, begins, ends, strict=True)
    }


def _is_over(errand: Errand) -> bool:
    return errand.is_over


class _State:
    """What one process has."""

    __slots__ = ("_nbytes", "_sizes", "barred", "copies", "guard", "owner", "spent", "total")

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.copies: OrderedDict[int, Sparse] = OrderedDict()
        self._sizes: dict[int, int] = {}
        """Memory of each copy when it was last looked at."""
        self._nbytes = 0
        self.spent: dict[int, Cost] = {}
        self.barred: set[int] = set()
        """Shards whose ranges have failed."""
        self.total = Cost()
        self.owner = os.getpid()

    def keep(self, shard: int, copy: Sparse, budget: int) -> None:
        """Keep a copy, and others as far as the budget goes; guard held."""
        self.drop(shard)
        self.copies[shard] = copy
        self._sizes[shard] = copy.nbytes
        self._nbytes += copy.nbytes
        while len(self.copies) > 1 and (self._nbytes > budget or len(self.copies) > _MOST_COPIES):
            self.drop(next(iter(self.copies)))

    def drop(self, shard: int) -> Sparse | None:
        """Forget a copy; guard held."""
        self._nbytes -= self._sizes.pop(shard, 0)
        return self.copies.pop(shard, None)
