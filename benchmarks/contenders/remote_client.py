"""The bare client: boto3 brings every shard into a file, with four threads, and nothing is read.

Options: see `_remote`; `way` is `get_object`, into one reused buffer per thread, or
`download_file`, boto3's own.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
from _remote import BUCKET, KEYS, Served
from _spec import Outcome
from _truth import shared_data, truth_of
from contenders.read_reference import write

if TYPE_CHECKING:
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]

_THREADS = 4
_BUFFER_BYTES = 1 << 20


class _Client:
    distributions: tuple[str, ...] = ("boto3",)

    def __init__(self, folder: Path, task: Task, payload_bytes: int, served: Served, way: str):  # noqa: ANN204 - a constructor
        index = json.loads((folder / "index.json").read_bytes())
        self._names = [shard["raw_data"]["basename"] for shard in index["shards"]]
        self._folder = folder.name
        self._num_samples = task.num_samples
        self._served = served
        self._way = way
        self.payload_bytes = payload_bytes

    def run(self, out: Path) -> Outcome:
        before = self._served.traffic()
        out.mkdir()
        start = time.perf_counter()
        client = boto3.client(
            "s3",
            endpoint_url=self._served.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )

        def fetch(name: str) -> None:
            key = f"{self._folder}/{name}"
            if self._way == "download_file":
                client.download_file(BUCKET, key, str(out / name))
                return
            buffer = memoryview(bytearray(_BUFFER_BYTES))
            body = client.get_object(Bucket=BUCKET, Key=key)["Body"]
            with (out / name).open("wb", buffering=0) as file:
                while count := body.readinto(buffer):
                    file.write(buffer[:count])

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(fetch, self._names))
        seconds = time.perf_counter() - start
        after = self._served.traffic()
        return Outcome(
            self._num_samples,
            seconds,
            after.requests - before.requests,
            after.nbytes - before.nbytes,
        )

    def count(self, out: Path) -> None:
        """Every file has to be there."""
        assert sorted(path.name for path in out.iterdir()) == sorted(self._names)


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the shards; serve them."""
    truth = truth_of(task, shared)
    folder = shared_data(task, shared, "mds", write)
    served = Served(shared, task.latency_ms or 0)
    return _Client(folder, task, truth.payload_bytes, served, options["way"])
