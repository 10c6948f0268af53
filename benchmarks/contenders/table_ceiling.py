"""pyarrow alone on the same files. Option: `method`, see `_tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _reading import BATCH_SIZES, SHUFFLE_SEED, Epochs
from _tables import timed, written
from _truth import truth_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


class _Source:
    distributions: tuple[str, ...] = ("pyarrow", "numpy")

    def __init__(self, folder: Path, task: Task) -> None:
        self._paths = sorted(folder.glob("*.parquet"))
        self._batch_size = BATCH_SIZES[task.work]
        self._table: pa.RecordBatch | None = None
        self._order = np.random.default_rng(SHUFFLE_SEED).permutation(task.num_samples)

    def scan(self) -> Iterable[Any]:
        return Epochs(self._decoded)

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        for path in self._paths:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(self._batch_size, use_threads=False)

    def batches(self, num_workers: int) -> Iterable[Any]:
        assert not num_workers
        if self._table is None:
            # Of one piece and with long offsets, as `take` is quickest.
            tables = [pq.read_table(path, use_threads=False) for path in self._paths]
            schema = tables[0].schema
            schema = schema.set(schema.get_field_index("s"), pa.field("s", pa.large_string()))
            whole = pa.concat_tables(tables).cast(schema).combine_chunks()
            self._table = whole.to_batches()[0]
        return Epochs(lambda: self._taken(self._table))

    def _taken(self, table: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - a record batch
        for start in range(0, len(self._order), self._batch_size):
            yield table.take(pa.array(self._order[start : start + self._batch_size]))

    def samples(self) -> Iterable[dict[str, Any]]:
        def rows() -> Iterator[dict[str, Any]]:
            for batch in self._decoded():
                yield from batch.to_pylist()

        return Epochs(rows)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the files."""
    truth = truth_of(task, shared)
    return timed(task, options["method"], _Source(written(task, shared), task), truth)
