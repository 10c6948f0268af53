"""Parquet files that nobody made for training, and what readers of them are asked to do.

A contender's module makes a `Source`; `timed` turns it into what the worker runs, by the option
`method`: `scan` (batches in order), `batches` (shuffled, in this process), `loader` (shuffled, from
the task's workers) or `samples` (rows in order, one by one). What only finds out how many rows lie
in many files is an `Index`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from _reading import Passes
from _spec import Outcome
from _truth import shared_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from _remote import Served
    from _spec import Task, Timed
    from _truth import Truth
    from _work import Work

__all__ = ["Index", "Source", "timed", "written"]


class Source(Protocol):
    """The files, seen through one library; each way gives an epoch per iteration."""

    @property
    def distributions(self) -> tuple[str, ...]:
        """Installed packages whose versions belong in the record."""

    def scan(self) -> Iterable[Any]:
        """Return what gives batches in order: dicts of columns, or Arrow's tables."""

    def batches(self, num_workers: int) -> Iterable[Any]:
        """Return what gives shuffled batches."""

    def samples(self) -> Iterable[dict[str, Any]]:
        """Return what gives rows in order."""


def written(task: Task, shared: Path, rows: int = 1_000_000) -> Path:
    """Return the folder of Parquet files, each with so many rows in one row group."""
    return shared_data(task, shared, f"parquet-{rows}", partial(_write, rows=rows))


def _write(work: Work, out: Path, rows: int) -> None:
    out.mkdir()
    number = 0
    for batch in work.batches():
        table = pa.table(batch)
        for start in range(0, table.num_rows, rows):
            part = table.slice(start, rows)
            path = out / f"part-{number:06d}.parquet"
            pq.write_table(part, path, compression="zstd", row_group_size=rows)
            number += 1


class Index:
    """Times finding out how many rows lie in files behind a server."""

    def __init__(
        self,
        distributions: tuple[str, ...],
        task: Task,
        served: Served,
        count_rows: Callable[[Path], int],
    ) -> None:
        self.distributions = distributions
        self.payload_bytes = 0
        self._task = task
        self._served = served
        self._count_rows = count_rows

    def run(self, out: Path) -> Outcome:
        """Count; what is kept goes below `out`."""
        out.mkdir()
        before = self._served.traffic()
        start = time.perf_counter()
        found = self._count_rows(out)
        seconds = time.perf_counter() - start
        if found != self._task.num_samples:
            msg = f"{found} rows were found where {self._task.num_samples} lie"
            raise ValueError(msg)
        after = self._served.traffic()
        sent = after.nbytes - before.nbytes
        return Outcome(found, seconds, after.requests - before.requests, sent)

    def count(self, out: Path) -> None:
        """Look at nothing more: each run has compared the number."""
        del out


def timed(task: Task, method: str, source: Source, truth: Truth) -> Timed:
    """Return what times `method` of `source` and compares what it read with `truth`."""
    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "scan": source.scan,
        "batches": lambda: source.batches(0),
        "loader": lambda: source.batches(task.num_workers),
        "samples": source.samples,
    }
    return Passes(source.distributions, truth, task, ways[method], by_sample=method == "samples")
