"""The shards that one process keeps mapped."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming_core._format import Shard

__all__ = ["Opened"]


class _Use:
    """A mapped shard, and when it was last asked for."""

    __slots__ = ("at", "shard")

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.at = time.time_ns()


class Opened:
    """The last few shards that were opened; dropping one here unmaps it once nobody else has it.

    Threads may share it. Belongs to the process that made it.
    """

    __slots__ = ("_capacity", "_guard", "_uses", "owner")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._guard = threading.Lock()
        self._uses: OrderedDict[int, _Use] = OrderedDict()
        self.owner = os.getpid()

    def get(self, shard: int) -> Shard | None:
        """Return a shard that is mapped, which is then the one most recently used."""
        with self._guard:
            use = self._uses.get(shard)
            if use is None:
                return None
            self._uses.move_to_end(shard)
        use.at = time.time_ns()
        return use.shard

    def put(self, number: int, shard: Shard) -> dict[int, int]:
        """Keep a shard; return what was dropped for it, and when that was last used."""
        with self._guard:
            self._uses[number] = _Use(shard)
            self._uses.move_to_end(number)
            dropped: dict[int, int] = {}
            while len(self._uses) > self._capacity:
                old, use = self._uses.popitem(last=False)
                dropped[old] = use.at
        return dropped

    def drop(self, number: int) -> None:
        """Forget a shard."""
        with self._guard:
            self._uses.pop(number, None)

    def clear(self) -> None:
        """Forget all shards."""
        with self._guard:
            self._uses.clear()

    def uses(self) -> dict[int, int]:
        """Return when each shard was last asked for, in nanoseconds of `time.time`."""
        with self._guard:
            return {number: use.at for number, use in self._uses.items()}
