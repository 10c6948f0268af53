"""litData's loader on its chunks in a bucket. Options: see `_remote`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import obstore.store
from _reading import BATCH_SIZES, SHUFFLE_SEED
from _remote import BUCKET, KEYS, Served, timed
from _truth import shared_data, truth_of
from contenders.lit import write_in_order
from litdata import StreamingDataLoader, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]


_make = obstore.store.S3Store


def _plain(*args: object, **kwargs: object) -> object:
    """Return the client litData uses, allowed to do without TLS, for which it has no option."""
    return _make(*args, **kwargs | {"client_options": {"allow_http": True}})


obstore.store.S3Store = _plain


class _Source:
    distributions: tuple[str, ...] = ("litdata", "boto3", "obstore", "numpy", "torch")

    def __init__(self, remote: str, endpoint: str, task: Task) -> None:
        self._remote = remote
        self._endpoint = endpoint
        self._batch_size = BATCH_SIZES[task.work]

    def loader(self, local: Path, num_workers: int) -> Iterable[Mapping[str, Any]]:
        dataset = StreamingDataset(
            self._remote,
            cache_dir=str(local),
            shuffle=True,
            seed=SHUFFLE_SEED,
            storage_options={
                "endpoint_url": self._endpoint,
                "aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"],
            },
        )
        return StreamingDataLoader(dataset, batch_size=self._batch_size, num_workers=num_workers)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the chunks; serve them."""
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "lit", lambda work, out: write_in_order(work, task, out))
    served = Served(shared, task.latency_ms or 0)
    os.environ.update(KEYS, AWS_DEFAULT_REGION="us-east-1", AWS_ENDPOINT_URL=served.endpoint)
    source = _Source(f"s3://{BUCKET}/{folder.name}", served.endpoint, task)
    return timed(task, options["method"], source, truth, served)
