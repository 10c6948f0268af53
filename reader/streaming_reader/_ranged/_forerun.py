"""The rows that an iteration needs before their shards are here."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

from streaming_core.errors import ShardCorruptError, StreamingError
from streaming_reader._located import Located, first_uses
from streaming_reader._ranged._choice import allowance, choose_together
from streaming_reader._ranged._ranged import rows_by_shard
from streaming_reader._ranged._watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming_core._format import Shard
    from streaming_reader._fetch import Fetcher
    from streaming_reader._ranged._announced import Announced, Outlook
    from streaming_reader._ranged._ranged import Ranged, Rows
    from streaming_reader._ranged._sparse import Receipt

__all__ = ["Forerun"]

_log = logging.getLogger("streaming_core.reader")
_ALONE_SECONDS = 0.5
_MOST_AHEAD = 1 << 14
"""Samples to come that are brought together with those needed now."""


class Forerun:
    """Brings rows by ranges while a `Fetcher` brings the shards they are of.

    The first rows have the line for themselves for a moment: shards are wanted from the fetcher
    after it. Those of thin streams are not, before it pays. One thread uses it, for one iteration.
    `close` it, or threads go on until they have nothing left to do.
    """

    def __init__(
        self,
        shards: Announced,
        ranged: Ranged,
        fetcher: Fetcher,
        outlook: Outlook,
        *,
        timeout: float,
    ) -> None:
        """Run ahead of `fetcher`, whose shards are `shards`."""
        self._shards = shards
        self._ranged = ranged
        self._fetcher = fetcher
        self._outlook = outlook
        self._timeout = timeout
        self._watch = shards.watch = Watch(self._is_needless)
        self._served: dict[int, list[Receipt]] = {}
        """Shards of which rows were given that are yet to be compared with the whole."""
        self._waiting: list[int] | None = []
        """Shards to be wanted once the first rows are here; None from then on."""
        self._held: dict[int, Shard] = {}
        """Shards to read the rows of that were brought last."""
        self._spent = 0
        """Bytes that were read by ranges."""
        self._left: float | None = None
        """When rows were brought last, by the clock; None before the first ones."""

    # --- shards -----------------------------------------------------------------------------------

    def want(self, shards: Sequence[int]) -> None:
        """Have these fetched, but for those that are not worth it."""
        if self._outlook.thin:
            shards = [shard for shard in shards if not self.is_thin(shard)]
        if self._waiting is None:
            self._fetcher.want(shards)
        else:
            self._waiting += shards

    def release(self) -> None:
        """Have the shards fetched that wait for the first rows."""
        waiting, self._waiting = self._waiting, None
        if waiting:
            self._fetcher.want(waiting)

    def is_thin(self, shard: int) -> bool:
        """Tell whether so little is used of a shard that it is not fetched ahead."""
        return (
            bool(self._outlook.thin)
            and self._ranged.stream(shard) in self._outlook.thin
            and self._ranged.serves(shard)
        )

    @property
    def at_work(self) -> bool:
        """Whether anything may be late."""
        return self._fetcher.at_work or bool(self._waiting or self._outlook.thin)

    def ready(self, shard: int) -> bool:
        """Tell whether a whole shard can be had without waiting."""
        if not self._fetcher.ready(shard):
            return False
        is_coming = self._waiting is None and not self.is_thin(shard)
        return is_coming or self._shards.is_local(shard)

    def get(self, shard: int) -> Shard:
        """Return a shard to read what was brought last of it, or anything if it is whole."""
        held = self._held.get(shard)
        return self._whole(shard) if held is None or self.ready(shard) else held

    def _whole(self, shard: int) -> Shard:
        """Return a whole shard, waiting for it, once it was compared with what was given of it."""
        receipts = self._served.pop(shard, [])
        found = self._fetcher.get(shard)
        self._ranged.whole(shard, found, receipts)
        return found

    def _is_needless(self, shard: int) -> bool:
        return shard in self._shards.failed or self.ready(shard)

    # --- rows -------------------------------------------------------------------------------------

    def bring(self, located: Located, coming: Iterable[Located]) -> frozenset[int]:
        """Bring rows of shards that are late, where that is better than to wait for them.

        `coming` are samples that come then. Returns the shards that `get` now gives for `located`,
        and for no other rows.

        Raises:
            ShardCorruptError: What was given before was not what the shard has.
        """
        try:
            self._bring(located, coming)
        finally:
            self.release()
            self._left = time.monotonic()
        return frozenset(self._held)

    def _bring(self, located: Located, coming: Iterable[Located]) -> None:
        self._settle()
        self._held = {}
        late = [s for s in first_uses(located.shards).tolist() if not self.ready(s)]
        wanted = rows_by_shard(located, late) if late else {}
        missing = self._keep_held(wanted)
        if missing:
            thin = [shard for shard in missing if self.is_thin(shard)]
            chosen = self._chosen({s: missing[s] for s in missing if s not in thin})
            if thin:
                chosen |= self._chosen_thin(thin, located, coming)
            self._fetch(chosen)
            self._keep_held(wanted)

    def finish(self) -> None:
        """Compare what was given with the whole shards that are still coming; waits for them.

        Raises:
            ShardCorruptError: Some of it was not what the shard has.
        """
        for shard in list(self._served):
            try:
                self._whole(shard)
            except StreamingError as error:
                if _is_corrupt(error):
                    raise
                _log.info("not comparing what was read of a shard by ranges: %s", error)

    def close(self) -> None:
        """Begin no more requests."""
        self._watch.stop()
        self._held = {}

    # --- within -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Compare what was given with the shards that have come since."""
        for shard in list(self._served):
            failure = self._shards.failed.get(shard)
            if self._fetcher.ready(shard) or (failure is not None and _is_corrupt(failure)):
                self._whole(shard)

    def _keep_held(self, wanted: Rows) -> Rows:
        """Note the shards whose rows are all here; return the others."""
        missing: Rows = {}
        for shard, rows in wanted.items():
            if shard in self._held:
                continue
            found = self._ranged.held(shard, rows)
            if found is None:
                missing[shard] = rows
                continue
            self._held[shard] = found
            if not self.is_thin(shard):
                self._served[shard] = self._ranged.receipts(shard)
        return missing

    def _chosen(self, wanted: Rows) -> Rows:
        """Return the rows to bring although their shards are coming."""
        others = [
            shard
            for shard in wanted
            if not self._ranged.serves(shard) or self._ranged.origin(shard)[0].meter.rests
        ]
        wanted = {shard: rows for shard, rows in wanted.items() if shard not in others}
        if not wanted:
            return {}
        allowed = allowance(self._outlook.nbytes, self._spent)
        offers = [self._ranged.offer(shard, rows) for shard, rows in wanted.items()]
        # All stores are taken to be as fast as that of most of the shards' first.
        line = self._ranged.origin(next(iter(wanted)))[0].meter.line
        pause = math.inf if self._left is None else time.monotonic() - self._left
        others_bytes = sum(map(self._shards.weight, others))
        flags = choose_together(offers, line, allowed, pause=pause, others_bytes=others_bytes)
        return {shard: wanted[shard] for shard, flag in zip(wanted, flags, strict=True) if flag}

    def _chosen_thin(
        self, thin: Sequence[int], located: Located, coming: Iterable[Located]
    ) -> Rows:
        """Return the rows to bring whose shards are not coming, those of later samples included."""
        ahead = Located.joined([located, *coming]).part(0, max(_MOST_AHEAD, len(located)))
        late = [
            shard
            for shard in first_uses(ahead.shards).tolist()
            if self.is_thin(shard) and not self.ready(shard)
        ]
        wanted = rows_by_shard(ahead, late)
        chosen = self._ranged.chosen_alone(wanted)
        self._fetcher.want([shard for shard in thin if shard not in chosen])
        return chosen

    def _fetch(self, chosen: Rows) -> None:
        if chosen:
            before = self._ranged.counts.range_bytes
            self._ranged.bring(
                chosen,
                timeout=self._timeout,
                watch=self._watch,
                alone=(_ALONE_SECONDS, self.release),
            )
            self._spent += max(1, self._ranged.counts.range_bytes - before)


def _is_corrupt(error: BaseException | None) -> bool:
    """Tell whether an error, or what it came from, is that a shard has wrong bytes."""
    while error is not None:
        if isinstance(error, ShardCorruptError):
            return True
        error = error.__cause__
    return False
