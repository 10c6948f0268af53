"""Lance's `write_dataset`, given record batches that exist already.

Options: `tokens_as` is `fixed_size_list` or `binary` (as a fixed-size list they are never
compressed); `version` is a file format version, the library's own choice if absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from _work import make_work

if TYPE_CHECKING:
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare"]


class _Lance:
    distributions: tuple[str, ...] = ("pylance", "pyarrow", "numpy")

    def __init__(self, work: Work, task: Task, options: dict[str, Any]) -> None:
        self.payload_bytes = work.payload_bytes
        as_binary = options.get("tokens_as") == "binary"
        columns = [
            {name: _to_arrow(values, as_binary=as_binary) for name, values in batch.items()}
            for batch in work.batches()
        ]
        metadata = _metadata(task)
        self._schema = pa.schema(
            [pa.field(name, array.type, metadata=metadata) for name, array in columns[0].items()]
        )
        self._batches = [
            pa.record_batch(list(arrays.values()), schema=self._schema) for arrays in columns
        ]
        self._version = options.get("version")

    def run(self, out: Path) -> None:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches)
        lance.write_dataset(reader, str(out), data_storage_version=self._version)

    def count(self, out: Path) -> int:
        return int(lance.dataset(str(out)).count_rows())


def _metadata(task: Task) -> dict[str, str]:
    if task.zstd_level is None:
        return {"lance-encoding:compression": "none"}
    return {
        "lance-encoding:compression": "zstd",
        "lance-encoding:compression-level": str(task.zstd_level),
    }


def _to_arrow(values: Any, *, as_binary: bool) -> pa.Array:  # noqa: ANN401 - any column
    if not isinstance(values, np.ndarray):
        return pa.array(values, pa.binary())
    if values.ndim == 1:
        return pa.array(values)
    if not as_binary:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    row_bytes = values[0].nbytes
    offsets = np.arange(0, values.nbytes + 1, row_bytes, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Make the record batches and their schema."""
    return _Lance(make_work(task), task, options)
