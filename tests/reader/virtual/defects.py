"""What tests of known defects share: plain files, loaders of all ranks, and counting of rows."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core import create_dataloader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["ids_of", "made", "none_lost", "ranks_of", "write_files"]


def write_files(folder: Path, sizes: Sequence[int], *, group: int = 100) -> Path:
    """Write Parquet files of these numbers of rows, whose ids go on from file to file."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [0, *itertools.accumulate(sizes)]
    for at, (first, last) in enumerate(itertools.pairwise(bounds)):
        ids = np.arange(first, last)
        table = pa.table({"id": ids, "text": [f"row {number}" for number in ids]})
        pq.write_table(table, folder / f"part-{at:02d}.parquet", row_group_size=group)
    return folder


def made(place: object, **options: Any) -> Any:
    """Return a loader of what lies at `place`, in the way users ask for one."""
    given = {"format": "parquet", "batch_size": 100, **options}
    return create_dataloader(str(place), **given)[0]


def ranks_of(place: object, ranks: int, **options: Any) -> list[Any]:
    """Return the loaders of all ranks of one node; only the first has workers, if any has."""
    return [
        made(
            place,
            rank=rank,
            num_ranks=ranks,
            ranks_per_node=ranks,
            **{**options, "num_workers": 0 if rank else options.get("num_workers", 0)},
        )
        for rank in range(ranks)
    ]


def ids_of(batches: Iterable[Any], stop: int | None = None) -> list[int]:
    """Return the ids of some batches, of all by default."""
    taken: Iterator[Any] = itertools.islice(batches, stop)
    return [int(number) for batch in taken for number in batch["id"]]


def none_lost(ids: Iterable[int], wanted: Iterable[int]) -> None:
    """Assert that exactly the rows that are wanted came, each once."""
    came, should = Counter(ids), Counter(wanted)
    lost, extra = should - came, came - should
    assert not lost, f"{lost.total()} rows are lost, such as {[*lost][:5]}"
    assert not extra, f"{extra.total()} rows are too many, such as {[*extra][:5]}"
