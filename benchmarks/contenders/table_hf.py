"""Hugging Face datasets, streaming Parquet, in its quickest format. Option: `method`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
from _reading import BATCH_SIZES, SHUFFLE_SEED, Epochs
from _tables import timed, written
from _truth import truth_of
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]

_BUFFER_ROWS = 10_000


class _Source:
    distributions: tuple[str, ...] = ("datasets", "pyarrow", "torch")

    def __init__(self, folder: Path, task: Task) -> None:
        self._batch_size = BATCH_SIZES[task.work]
        self._rows = datasets.load_dataset(
            "parquet", data_files=str(folder / "*.parquet"), split="train", streaming=True
        )

    def scan(self) -> Iterable[Any]:
        rows = self._rows.with_format("arrow")
        return Epochs(lambda: rows.iter(self._batch_size))

    def batches(self, num_workers: int) -> Iterable[Any]:
        rows = self._rows.with_format("torch" if num_workers else "arrow")
        rows = rows.shuffle(seed=SHUFFLE_SEED, buffer_size=_BUFFER_ROWS)
        if not num_workers:
            return Epochs(lambda: rows.iter(self._batch_size))
        loader: Iterable[Any] = DataLoader(
            rows, self._batch_size, num_workers=num_workers, persistent_workers=True
        )
        return loader

    def samples(self) -> Iterable[dict[str, Any]]:
        rows: Iterable[dict[str, Any]] = self._rows
        return rows


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the files; open them."""
    truth = truth_of(task, shared)
    return timed(task, options["method"], _Source(written(task, shared), task), truth)
