"""The part of an epoch that one process gives: its own, or all ranks' where one gives it to all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from streaming_reader._order import EpochPlan

__all__ = ["Share"]

_WINDOW_SAMPLES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Share:
    """Batches of some ranks, in turn, dealt out to the workers that give them."""

    plan: EpochPlan
    ranks: range
    """Whose batches: those of one rank, or of all."""
    worker: int
    workers: int
    together: int = 1
    """How many batches a worker gives before it is the next one's turn."""

    def place(self) -> dict[str, int]:
        """Return what, together with the plan's data and epoch, names this sequence of batches."""
        return {
            "batch_size": self.plan.batch_size,
            "first_rank": self.ranks.start,
            "ranks": len(self.ranks),
            "of_ranks": self.plan.num_ranks,
            "worker": self.worker,
            "workers": self.workers,
            "together": self.together,
        }

    @property
    def num_samples(self) -> int:
        """Samples that this worker gives, or a few more."""
        batches = self.plan.num_steps * len(self.ranks)
        return -(-batches // self.workers) * self.plan.batch_size

    def windows(self, then: Callable[[], None], *, skip: int = 0) -> Iterator[NDArray[np.int64]]:
        """Yield the ids of this worker's batches, few at first and some ten thousand later on.

        The first `skip` ids are left out, at the cost of a batch. `then` is done once, after the
        first window.
        """
        taken = self._full(skip)
        skip -= taken * self.plan.batch_size
        most = max(1, _WINDOW_SAMPLES // self.plan.batch_size)
        first, size = taken, 1
        while len(rows := self._rows(first, first + size)):
            ids = self._batches(rows)
            ids = ids[ids >= 0]
            if skip < len(ids):
                yield ids[skip:]
            skip = max(0, skip - len(ids))
            if first == taken:
                then()
            first, size = first + size, min(most, 4 * size)

    def _full(self, samples: int) -> int:
        """Return how many of this worker's first batches surely consist of the first `samples`.

        Only the last step that is not empty may be short, and fewer empty ones than workers follow.
        """
        full = max(0, self.plan.num_steps - self.workers) * len(self.ranks)
        turns, odd = divmod(full, self.workers * self.together)
        mine = turns * self.together
        mine += min(self.together, max(0, odd - self.worker * self.together))
        return min(samples // self.plan.batch_size, mine)

    def _rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the places of this worker's batches `start` to `stop` among those of all."""
        turn, place = np.divmod(np.arange(start, stop, dtype=np.int64), self.together)
        rows = (turn * self.workers + self.worker) * self.together + place
        return rows[rows < self.plan.num_steps * len(self.ranks)]

    def _batches(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids of the batches at `rows`."""
        if len(self.ranks) == 1:
            # Equal distances, as each turn is one batch.
            return self.plan.batches(
                self.ranks.start, int(rows[0]), int(rows[-1]) + 1, self.workers
            )
        first, last = int(rows[0]) // len(self.ranks), int(rows[-1]) // len(self.ranks)
        each = [self.plan.batches(rank, first, last + 1) for rank in self.ranks]
        steps = np.concatenate(each, axis=1)
        if (steps < 0).any():
            # All short batches of the last step but one are filled from those behind: who divides
            # a batch that is not the last one drops what does not divide evenly.
            steps = np.take_along_axis(steps, np.argsort(steps < 0, axis=1, kind="stable"), axis=1)
        taken: NDArray[np.int64] = steps.reshape(-1, self.plan.batch_size)[
            rows - first * len(self.ranks)
        ]
        return taken
