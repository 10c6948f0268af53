"""litData's two ways to write: `optimize` with worker processes, and the writer beneath it.

Option `num_workers`: absent for the writer alone, in this process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import litdata
from _work import make_work
from litdata.streaming.writer import BinaryWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare", "write_in_order"]

_CHUNK_BYTES = 1 << 26
_works: list[Work] = []
"""What forked workers inherit, so that no sample is sent to them."""


class _Writer:
    distributions: tuple[str, ...] = ("litdata", "numpy")

    def __init__(self, work: Work, task: Task) -> None:
        self.payload_bytes = work.payload_bytes
        self._work = work
        self._compression = task.compression

    def run(self, out: Path) -> None:
        writer = BinaryWriter(str(out), chunk_bytes=_CHUNK_BYTES, compression=self._compression)
        for number, sample in enumerate(self._work.samples()):
            writer[number] = sample
        writer.done()
        writer.merge()

    def count(self, out: Path) -> int:
        index = json.loads((out / "index.json").read_bytes())
        return sum(chunk["chunk_size"] for chunk in index["chunks"])


class _Optimize(_Writer):
    def __init__(self, work: Work, task: Task, num_workers: int) -> None:
        super().__init__(work, task)
        self._num_workers = num_workers
        _works.append(work)

    def run(self, out: Path) -> None:
        litdata.optimize(
            fn=_part,
            inputs=[(number, self._num_workers) for number in range(self._num_workers)],
            output_dir=str(out),
            chunk_bytes=_CHUNK_BYTES,
            compression=self._compression,
            num_workers=self._num_workers,
            start_method="fork",
            verbose=False,
        )


def _part(which: tuple[int, int]) -> Iterator[dict[str, Any]]:
    """Every n-th batch of the work, as samples, beginning with the `number`-th."""
    number, step = which
    for i, batch in enumerate(_works[-1].batches()):
        if i % step == number:
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))


def write_in_order(work: Work, task: Task, out: Path) -> None:
    """Let one worker of `optimize` write the samples, which keeps them in order, for readers."""
    _works.append(work)
    litdata.optimize(
        fn=_whole,
        inputs=[len(_works) - 1],
        output_dir=str(out),
        chunk_bytes=work.shard_bytes,
        compression=task.compression,
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


def _whole(which: int) -> Iterator[dict[str, Any]]:
    """All samples as a user's loop makes them: Python's ints read faster than numpy's."""
    yield from _works[which].samples()


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Make the data for the writer, or for as many workers as the options ask for."""
    work = make_work(task)
    num_workers = options.get("num_workers")
    return _Writer(work, task) if num_workers is None else _Optimize(work, task, num_workers)
