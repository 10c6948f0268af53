"""streaming-core's `MDSWriter`, sample by sample or in batches.

Options: `method` is `write`, `write_batch` or `write_batch_arrow`; any other goes to the writer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from _work import make_work

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare"]


class _Ours:
    distributions: tuple[str, ...] = ("streaming-core", "numpy", "zstandard")

    def __init__(self, work: Work, task: Task, options: dict[str, Any]) -> None:
        self.payload_bytes = work.payload_bytes
        self._work = work
        method = options.pop("method")
        writers = {
            "write": self._write,
            "write_batch": self._write_batch,
            "write_batch_arrow": self._write_batch_arrow,
        }
        self._write_all: Callable[[MDSWriter], None] = writers[method]
        self._arrow = _tables(work) if method == "write_batch_arrow" else []
        self._arguments = options | {"columns": dict(work.columns), "size_limit": 1 << 26}
        if task.compression is not None:
            self._arguments["compression"] = task.compression

    def run(self, out: Path) -> None:
        with MDSWriter(out=str(out), **self._arguments) as writer:
            self._write_all(writer)

    def _write(self, writer: MDSWriter) -> None:
        for sample in self._work.samples():
            writer.write(sample)

    def _write_batch(self, writer: MDSWriter) -> None:
        for batch in self._work.batches():
            writer.write_batch(batch)

    def _write_batch_arrow(self, writer: MDSWriter) -> None:
        for table in self._arrow:
            writer.write_batch(table)

    def count(self, out: Path) -> int:
        index = json.loads((out / "index.json").read_bytes())
        return sum(shard["samples"] for shard in index["shards"])


def _tables(work: Work) -> list[pa.Table]:
    return [pa.table(batch) for batch in work.batches()]


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Make the data and a writer for it."""
    return _Ours(make_work(task), task, options)
