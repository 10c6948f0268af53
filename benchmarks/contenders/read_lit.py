"""litData's `StreamingDataset` and `StreamingDataLoader` on chunks that its `optimize` wrote.

Option `method`: see `_reading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _reading import BATCH_SIZES, SHUFFLE_SEED, timed
from _truth import shared_data, truth_of
from contenders.lit import write_in_order
from litdata import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


class _Source:
    distributions: tuple[str, ...] = ("litdata", "numpy", "torch")

    def __init__(self, folder: Path, task: Task) -> None:
        self._folder = folder
        self._batch_size = BATCH_SIZES[task.work]
        self._opened: dict[bool, StreamingDataset] = {}

    def _open(self, *, shuffle: bool) -> StreamingDataset:
        """One object for all runs: opening is no part of what a rate is made of."""
        if shuffle not in self._opened:
            self._opened[shuffle] = self._construct(shuffle=shuffle)
        return self._opened[shuffle]

    def _construct(self, *, shuffle: bool) -> StreamingDataset:
        return StreamingDataset(str(self._folder), shuffle=shuffle, seed=SHUFFLE_SEED)

    def samples(self) -> Iterable[dict[str, Any]]:
        return self._open(shuffle=False)

    def batches(self, num_workers: int) -> Iterable[Mapping[str, Any]]:
        return StreamingDataLoader(
            self._open(shuffle=True),
            batch_size=self._batch_size,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
        )

    def get(self, number: int) -> dict[str, Any]:
        return self._open(shuffle=False)[number]

    def take(self, numbers: list[int]) -> Sequence[dict[str, Any]]:
        dataset = self._open(shuffle=False)
        return [dataset[number] for number in numbers]

    def first(self, num_workers: int, state: dict[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        assert state is None, "checkpoints of MDS mean nothing here"
        dataset = self._construct(shuffle=True)
        return StreamingDataLoader(dataset, batch_size=self._batch_size, num_workers=num_workers)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the chunks."""
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "lit", lambda work, out: write_in_order(work, task, out))
    return timed(task, options["method"], _Source(folder, task), truth)
