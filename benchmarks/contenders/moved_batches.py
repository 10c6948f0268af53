"""Batches that cost nothing to make, so that only torch's way out of its workers is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _spec import Task

__all__ = ["Moved"]


class _Constant(IterableDataset[dict[str, Any]]):
    """Gives one batch again and again, in as many copies as an epoch has batches."""

    def __init__(self, batch: dict[str, Any], sizes: list[int]) -> None:
        self._batch = batch
        self._sizes = sizes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        assert worker is not None
        for size in self._sizes[worker.id :: worker.num_workers]:
            # A tensor that was sent once is in shared memory already: a new one has to be filled.
            yield {
                name: values[:size].clone() if isinstance(values, torch.Tensor) else values[:size]
                for name, values in self._batch.items()
            }


class Moved:
    """A source of one batch only, from workers only.

    Args:
        batch: What is moved: columns of arrays or lists.
        task: How many samples make an epoch.
    """

    distributions: tuple[str, ...] = ("torch", "numpy")

    def __init__(self, batch: Mapping[str, Any], task: Task) -> None:
        columns = {
            name: torch.from_numpy(values) if isinstance(values, np.ndarray) else values
            for name, values in batch.items()
        }
        size = len(next(iter(columns.values())))
        whole, rest = divmod(task.num_samples, size)
        self._dataset = _Constant(columns, [size] * whole + [rest] * (rest > 0))

    def batches(self, num_workers: int) -> Iterable[Mapping[str, Any]]:
        """Move an epoch's batches out of that many workers."""
        return DataLoader(
            self._dataset, batch_size=None, num_workers=num_workers, persistent_workers=True
        )

    def samples(self) -> Iterable[dict[str, Any]]:
        """Nothing to be had."""
        raise NotImplementedError

    def get(self, number: int) -> dict[str, Any]:
        """Nothing to be had."""
        raise NotImplementedError(number)

    def take(self, numbers: list[int]) -> Mapping[str, Any]:
        """Nothing to be had."""
        raise NotImplementedError(numbers)

    def first(self, num_workers: int, state: dict[str, Any] | None) -> Iterable[Mapping[str, Any]]:
        """Nothing to be had."""
        raise NotImplementedError(num_workers, state)
