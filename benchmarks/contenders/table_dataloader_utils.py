"""torch-dataloader-utils on Parquet. Options: `method`, see `_tables`; `format` of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch_dataloader_utils
from _reading import BATCH_SIZES, SHUFFLE_SEED, Epochs
from _tables import timed, written
from _truth import truth_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]

_BUFFER_ROWS = 10_000


def _as_it_comes(batch: Any) -> Any:  # noqa: ANN401 - what it gives; sent to workers by name
    return batch


class _Source:
    distributions: tuple[str, ...] = ("torch-dataloader-utils", "pyarrow", "torch")

    def __init__(self, folder: Path, task: Task, options: dict[str, Any]) -> None:
        self._path = str(folder / "*.parquet")
        self._batch_size = BATCH_SIZES[task.work]
        self._format: Any = options.get("format", "arrow")

    def _loader(self, num_workers: int, **options: Any) -> Any:  # noqa: ANN401 - torch's loader
        if self._format == "arrow":
            options["collate_fn"] = _as_it_comes
        loader, _ = torch_dataloader_utils.StructuredDataset.create_dataloader(
            self._path,
            "parquet",
            batch_size=self._batch_size,
            num_workers=num_workers,
            output_format=self._format,
            **options,
        )
        return loader

    def scan(self) -> Iterable[Any]:
        loader: Iterable[Any] = self._loader(0)
        return loader

    def batches(self, num_workers: int) -> Iterable[Any]:
        loader: Iterable[Any] = self._loader(
            num_workers,
            shuffle=True,
            shuffle_seed=SHUFFLE_SEED,
            shuffle_buffer_size=_BUFFER_ROWS,
        )
        return loader

    def samples(self) -> Iterable[dict[str, Any]]:
        """Make rows of its quickest batches: it has none of its own."""

        def rows() -> Iterator[dict[str, Any]]:
            for batch in self._loader(0):
                yield from batch.to_pylist()

        return Epochs(rows)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the files."""
    truth = truth_of(task, shared)
    return timed(task, options["method"], _Source(written(task, shared), task, options), truth)
