"""streaming-core on Parquet as it lies. Options: `method`, see `_tables`; `format` of batches."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from _reading import BATCH_SIZES, SHUFFLE_SEED, Epochs
from _tables import timed, written
from _truth import truth_of

from streaming_core import Stream, StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


class _Source:
    distributions: tuple[str, ...] = ("streaming-core", "numpy", "pyarrow", "torch")

    def __init__(self, folder: Path, task: Task, options: dict[str, Any]) -> None:
        self._remote = str(folder / "*.parquet")
        self._batch_size = BATCH_SIZES[task.work]
        self._format: Any = options.get("format", "arrow")
        self._algorithm: Any = options.get("shuffle_algo", "py1e")
        self._opened: dict[bool, StreamingDataset] = {}

    def _open(self, *, shuffle: bool) -> StreamingDataset:
        """One object for all passes, as in training."""
        if shuffle not in self._opened:
            self._opened[shuffle] = StreamingDataset(
                streams=[Stream(remote=self._remote)],
                batch_size=self._batch_size,
                shuffle=shuffle,
                shuffle_algo=self._algorithm,
                shuffle_seed=SHUFFLE_SEED,
            )
        return self._opened[shuffle]

    def scan(self) -> Iterable[Any]:
        dataset = self._open(shuffle=False)
        return Epochs(lambda: dataset.batches(batch_format=self._format))

    def batches(self, num_workers: int) -> Iterable[Any]:
        dataset = self._open(shuffle=True)
        if not num_workers:
            return Epochs(lambda: dataset.batches(batch_format=self._format))
        loader: Iterable[Any] = StreamingDataLoader(
            dataset,
            batch_size=self._batch_size,
            num_workers=num_workers,
            batch_format=self._format,
            persistent_workers=True,
        )
        return loader

    def samples(self) -> Iterable[dict[str, Any]]:
        return self._open(shuffle=False)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the files; begin with an empty cache."""
    truth = truth_of(task, shared)
    folder = written(task, shared)
    # Below `shared`, so that it goes with the data.
    os.environ["STREAMING_CACHE_DIR"] = tempfile.mkdtemp(dir=shared, prefix="cache-")
    return timed(task, options["method"], _Source(folder, task, options), truth)
