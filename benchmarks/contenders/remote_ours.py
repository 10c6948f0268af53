"""Our loader on MDS shards in a bucket. Options: see `_remote`; `shuffle_algo`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from _reading import BATCH_SIZES, SHUFFLE_SEED
from _remote import BUCKET, KEYS, Served, timed
from _truth import shared_data, truth_of
from contenders.read_ours import write

from streaming_core import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


class _Source:
    distributions: tuple[str, ...] = ("streaming-core", "numpy", "torch")

    def __init__(self, remote: str, endpoint: str, task: Task, shuffle_algo: Any) -> None:  # noqa: ANN401 - a name
        self._remote = remote
        self._endpoint = endpoint
        self._batch_size = BATCH_SIZES[task.work]
        self._shuffle_algo = shuffle_algo

    def loader(self, local: Path, num_workers: int) -> Iterable[Mapping[str, Any]]:
        dataset = StreamingDataset(
            remote=self._remote,
            local=str(local),
            storage_options={"endpoint_url": self._endpoint},
            batch_size=self._batch_size,
            shuffle=True,
            shuffle_algo=self._shuffle_algo,
            shuffle_seed=SHUFFLE_SEED,
        )
        loader: Iterable[Mapping[str, Any]] = StreamingDataLoader(
            dataset, batch_size=self._batch_size, num_workers=num_workers
        )
        return loader


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the shards; serve them."""
    os.environ.update(KEYS)
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "mds", write)
    served = Served(shared, task.latency_ms or 0)
    remote = f"s3://{BUCKET}/{folder.name}"
    source = _Source(remote, served.endpoint, task, options.get("shuffle_algo", "py1e"))
    return timed(task, options["method"], source, truth, served)
