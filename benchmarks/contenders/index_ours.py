"""How long streaming-core takes to index Parquet files behind a server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from _remote import BUCKET, KEYS, Served
from _tables import Index, written

from streaming_core import Stream, StreamingDataset

if TYPE_CHECKING:
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the files; serve them; begin without an index."""
    del options
    os.environ.update(KEYS)
    folder = written(task, shared, 1000)
    served = Served(shared, task.latency_ms or 0)
    names = sorted(path.name for path in folder.iterdir())
    remote = [f"s3://{BUCKET}/{folder.name}/{name}" for name in names]

    def count_rows(out: Path) -> int:
        os.environ["STREAMING_CACHE_DIR"] = str(out)
        settings = {"endpoint_url": served.endpoint}
        stream = Stream(remote=remote, format="parquet", storage_options=settings)
        return StreamingDataset(streams=[stream], batch_size=1024).num_samples

    return Index(("streaming-core", "pyarrow"), task, served, count_rows)
