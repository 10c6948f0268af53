"""mosaicml-streaming's `MDSWriter`, sample by sample: it has no other way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from _work import make_work
from streaming import MDSWriter

if TYPE_CHECKING:
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare"]


class _Reference:
    distributions: tuple[str, ...] = ("mosaicml-streaming", "numpy", "zstd")

    def __init__(self, work: Work, task: Task) -> None:
        self.payload_bytes = work.payload_bytes
        self._work = work
        self._columns = dict(work.columns)
        self._compression = task.compression

    def run(self, out: Path) -> None:
        with MDSWriter(
            out=str(out),
            columns=self._columns,
            compression=self._compression,
            size_limit=1 << 26,
        ) as writer:
            for sample in self._work.samples():
                writer.write(sample)

    def count(self, out: Path) -> int:
        index = json.loads((out / "index.json").read_bytes())
        return sum(shard["samples"] for shard in index["shards"])


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Make the data; there are no options."""
    assert not options
    return _Reference(make_work(task), task)
