"""What an iteration knows of its shards: how much of them it uses, and when they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming_reader._ranged._watch import Watch

if TYPE_CHECKING:
    from streaming_core._format import Shard
    from streaming_reader._fetch._fetcher import Shards
    from streaming_reader._ranged._ranged import Ranged

__all__ = ["Announced", "Outlook"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an iteration is going to use.

    Example:
        >>> Outlook(num_samples=1000, sample_bytes=4096.0).nbytes
        4096000.0
    """

    num_samples: int
    """Samples that it gives, or a few more."""
    sample_bytes: float
    """Bytes of one, on average."""
    thin: frozenset[int] = frozenset()
    """Streams of which so little is used that their shards are not worth fetching."""

    @property
    def nbytes(self) -> float:
        """Bytes of all samples it gives."""
        return self.num_samples * self.sample_bytes


class Announced:
    """Shards as their owner gives them, with word of each that arrives or fails; a `Shards`."""

    __slots__ = ("_coming", "_inner", "_ranged", "failed", "watch")

    def __init__(self, inner: Shards, ranged: Ranged) -> None:
        self._inner = inner
        self._ranged = ranged
        self._coming: set[int] = set()
        """Shards that were found to be missing."""
        self.failed: dict[int, BaseException] = {}
        """Why shards did not come."""
        self.watch = Watch()
        """Who is told."""

    def is_local(self, shard: int) -> bool:
        """Tell whether opening it needs no download."""
        found = self._inner.is_local(shard)
        if not found:
            self._coming.add(shard)
        return found

    def open(self, shard: int) -> Shard:
        """Return it, downloaded first if it must be."""
        if shard not in self._coming:
            return self._inner.open(shard)
        meter = self._ranged.origin(shard)[0].meter
        meter.whole_begins()
        nbytes = 0
        try:
            found = self._inner.open(shard)
            nbytes = self._inner.weight(shard)
        except BaseException as error:
            self.failed[shard] = error
            self.watch.notify()
            raise
        finally:
            meter.whole_ends(nbytes)
        self._coming.discard(shard)
        self.failed.pop(shard, None)
        return found

    def warm(self, shard: Shard) -> None:
        """Get ready for many uses of an open shard; whoever waits for it has it by now."""
        self.watch.notify()
        self._inner.warm(shard)

    def weight(self, shard: int) -> int:
        """Return its bytes."""
        return self._inner.weight(shard)

    def last_progress(self) -> float:
        """Return when anything came last, whichever shard it is of."""
        return self._inner.last_progress()

    def describe(self, shard: int) -> str:
        """Return its name and where it comes from, for errors."""
        return self._inner.describe(shard)
