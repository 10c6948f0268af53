"""Parquet files, and transforms that travel to workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "double",
    "halves",
    "is_wanted",
    "nothing_or_many",
    "write_parquet",
]


def write_parquet(folder: Path, rows: int, *, files: int = 3, group: int = 37) -> Path:
    """Write rows with the ids from 0 in files of several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, ids in enumerate(np.array_split(np.arange(rows), files)):
        listed = ids.tolist()
        vector = pa.FixedSizeListArray.from_arrays(
            pa.array(np.repeat(ids, 4).astype(np.float32)), 4
        )
        columns = {
            "id": ids,
            "x": ids * 0.5,
            "even": ids % 2 == 0,
            "text": [f"wört {i}" for i in listed],
            "vector": vector,
            "list": pa.array([list(range(i % 5)) for i in listed], pa.list_(pa.int32())),
            "time": pa.array(listed, pa.timestamp("us")),
        }
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


def double(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for a row."""
    return {"id": row["id"], "twice": 2 * row["id"]}


def is_wanted(row: dict[str, Any]) -> bool:
    """Leave out two thirds."""
    return bool(row["id"] % 3 == 0)


def halves(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give two rows for one."""
    for part in (0, 1):
        yield {"id": row["id"], "part": part}


def nothing_or_many(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Give no row, or up to six."""
    return [{"id": row["id"], "part": part} for part in range(row["id"] % 7)]
