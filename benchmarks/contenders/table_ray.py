"""Ray Data on Parquet, with as many processors as there are. Options: `method`; `shuffle`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ray
from _reading import BATCH_SIZES, SHUFFLE_SEED, Epochs
from _tables import timed, written
from _truth import truth_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]

_BUFFER_ROWS = 100_000


class _Source:
    distributions: tuple[str, ...] = ("ray", "pyarrow")

    def __init__(self, folder: Path, task: Task, shuffle: str) -> None:
        self._batch_size = BATCH_SIZES[task.work]
        self._rows = ray.data.read_parquet(str(folder))
        self._shuffle = shuffle

    def scan(self) -> Iterable[Any]:
        return Epochs(lambda: iter(self._batches(self._rows)))

    def batches(self, num_workers: int) -> Iterable[Any]:
        assert not num_workers, "its tasks have processes of their own"
        if self._shuffle == "global":
            shuffled = self._rows.random_shuffle(seed=SHUFFLE_SEED)
            return Epochs(lambda: iter(self._batches(shuffled)))
        buffer = {
            "local_shuffle_buffer_size": _BUFFER_ROWS,
            "local_shuffle_seed": SHUFFLE_SEED,
        }
        return Epochs(lambda: iter(self._batches(self._rows, **buffer)))

    def _batches(self, rows: Any, **options: Any) -> Any:  # noqa: ANN401 - Ray's own
        return rows.iter_batches(batch_size=self._batch_size, batch_format="pyarrow", **options)

    def samples(self) -> Iterable[dict[str, Any]]:
        return Epochs(lambda: iter(self._rows.iter_rows()))


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the files; start Ray on this machine."""
    truth = truth_of(task, shared)
    folder = written(task, shared)
    ray.init(
        num_cpus=os.cpu_count(),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=2 << 30,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    source = _Source(folder, task, options.get("shuffle", "buffer"))
    return timed(task, options["method"], source, truth)
