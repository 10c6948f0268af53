"""mosaicml-streaming's `StreamingDataset` and `StreamingDataLoader` on local MDS shards.

Option `method`: see `_reading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _reading import BATCH_SIZES, SHUFFLE_SEED, timed
from _truth import shared_data, truth_of
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare", "write"]


class _Source:
    distributions: tuple[str, ...] = ("mosaicml-streaming", "numpy", "torch")

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
        return StreamingDataset(
            local=str(self._folder),
            batch_size=self._batch_size,
            shuffle=shuffle,
            shuffle_seed=SHUFFLE_SEED,
        )

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
        return self._open(shuffle=False)[numbers]

    def first(self, num_workers: int, state: dict[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        dataset = self._construct(shuffle=True)
        loader = StreamingDataLoader(dataset, batch_size=self._batch_size, num_workers=num_workers)
        if state is not None:
            loader.load_state_dict(state)
        return loader


def write(work: Work, out: Path) -> None:
    """Write the shards."""
    with MDSWriter(out=str(out), columns=dict(work.columns), size_limit=work.shard_bytes) as writer:
        for sample in work.samples():
            writer.write(sample)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the shards."""
    truth = truth_of(task, shared)
    source = _Source(shared_data(task, shared, "mds", write), task)
    return timed(task, options["method"], source, truth)
