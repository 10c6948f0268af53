"""The datasets that the scenarios read: the same bytes in every run."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.counts.server import BUCKET

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["make", "objects"]

_SMALL_ROWS: Final = 1600
_LARGE_ROWS: Final = 2048
_LARGE_ROW_BYTES: Final = 32 << 10
_SHARDS: Final = 2000
_PARQUET_FILES: Final = 4
_PARQUET_ROWS: Final = 20_000
_TINY_FILES: Final = 50


def make(folder: Path) -> None:
    """Write all datasets below `folder`.

    - `small`: 8 shards, 200 KB in all. The reader does not use fewer bytes to judge how fast a
      store is, so it downloads whole shards on a machine of any speed.
    - `large`: two shards of 32 MiB. A few rows are read by ranges on a machine of any speed.
    - `many`: an index of 2,000 shards without the shards.
    - `columns`: 4 Parquet files of 8 columns, with 2 row groups each.
    - `tiny`: 50 Parquet files.
    """
    rng = np.random.default_rng(17)
    rows = rng.integers(0, 256, (_SMALL_ROWS, 112), np.uint8)
    columns = {"id": "int64", "data": "ndarray:uint8"}
    with MDSWriter(
        out=folder / "small", columns=columns, size_limit="26kb", hashes=["xxh64"]
    ) as out:
        for number, row in enumerate(rows):
            out.write({"id": number, "data": row})
    _copy_entries(folder / "small" / "index.json", folder / "many" / "index.json")
    body = rng.integers(0, 256, (_LARGE_ROWS, _LARGE_ROW_BYTES), np.uint8)
    columns = {"id": "int64", "data": f"ndarray:uint8:{_LARGE_ROW_BYTES}"}
    with MDSWriter(out=folder / "large", columns=columns, size_limit="33mb") as out:
        out.write_batch({"id": np.arange(_LARGE_ROWS), "data": body})
    for at in range(_PARQUET_FILES):
        values: dict[str, Any] = {name: rng.random(_PARQUET_ROWS) for name in "abcdefg"}
        values["id"] = np.arange(at * _PARQUET_ROWS, (at + 1) * _PARQUET_ROWS)
        _write(folder / "columns" / f"part-{at}.parquet", values)
    for at in range(_TINY_FILES):
        _write(folder / "tiny" / f"part-{at:02}.parquet", {"id": np.arange(at * 10, at * 10 + 10)})


def objects(folder: Path) -> dict[str, bytes]:
    """Return what a server serves of the datasets below `folder`."""
    return {
        f"{BUCKET}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _copy_entries(source: Path, target: Path) -> None:
    """Write an index whose shards are those of another one many times, under new names."""
    document = json.loads(source.read_bytes())
    entry = document["shards"][0]
    document["shards"] = []
    for number in range(_SHARDS):
        another = copy.deepcopy(entry)
        another["raw_data"]["basename"] = f"shard.{number:05}.mds"
        document["shards"].append(another)
    target.parent.mkdir()
    target.write_text(json.dumps(document))


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(
        pa.table(dict(values)),
        path,
        row_group_size=_PARQUET_ROWS // 2,
        use_dictionary=False,
        compression="none",
    )
