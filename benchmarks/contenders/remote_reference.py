"""mosaicml-streaming's loader on MDS shards in a bucket. Options: see `_remote`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import streaming.base.util
from _reading import BATCH_SIZES, SHUFFLE_SEED
from _remote import BUCKET, KEYS, Served, timed
from _truth import shared_data, truth_of
from contenders.read_reference import write
from streaming import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


class _Source:
    distributions: tuple[str, ...] = ("mosaicml-streaming", "boto3", "numpy", "torch")

    def __init__(self, remote: str, task: Task) -> None:
        self._remote = remote
        self._batch_size = BATCH_SIZES[task.work]

    def loader(self, local: Path, num_workers: int) -> Iterable[Mapping[str, Any]]:
        # What an earlier data set left in shared memory would be met again.
        streaming.base.util.clean_stale_shared_memory()
        dataset = StreamingDataset(
            remote=self._remote,
            local=str(local),
            batch_size=self._batch_size,
            shuffle=True,
            shuffle_seed=SHUFFLE_SEED,
        )
        return StreamingDataLoader(dataset, batch_size=self._batch_size, num_workers=num_workers)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the shards; serve them."""
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "mds", write)
    served = Served(shared, task.latency_ms or 0)
    os.environ.update(KEYS, S3_ENDPOINT_URL=served.endpoint)
    return timed(
        task, options["method"], _Source(f"s3://{BUCKET}/{folder.name}", task), truth, served
    )
