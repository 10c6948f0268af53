"""Bare clients: every shard into a file by four threads, or many small ranges by eight.

Options: `client` is `boto3`, `download_file` (boto3's own way into files) or `obstore`; `ranges`,
if there, how many ranges of 16 KiB to read instead.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import boto3
import obstore
from _client import Client, prepared
from _remote import BUCKET, KEYS
from botocore.config import Config
from contenders.read_reference import write
from obstore.store import S3Store

if TYPE_CHECKING:
    from pathlib import Path

    from _spec import Task, Timed

__all__ = ["prepare"]

_BUFFER_BYTES = 1 << 20


class _Boto3(Client):
    distributions: tuple[str, ...] = ("boto3",)

    def __init__(self, endpoint: str) -> None:
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(max_pool_connections=16),
        )
        self._own = threading.local()

    def fetch(self, key: str, path: Path) -> None:
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        body = self._client.get_object(Bucket=BUCKET, Key=key)["Body"]
        with path.open("wb", buffering=0) as file:
            while count := body.readinto(buffer):
                file.write(buffer[:count])

    def read(self, key: str, start: int, stop: int) -> bytes:
        span = f"bytes={start}-{stop - 1}"
        data: bytes = self._client.get_object(Bucket=BUCKET, Key=key, Range=span)["Body"].read()
        return data


class _DownloadFile(_Boto3):
    def fetch(self, key: str, path: Path) -> None:
        self._client.download_file(BUCKET, key, str(path))


class _Obstore(Client):
    distributions: tuple[str, ...] = ("obstore",)

    def __init__(self, endpoint: str) -> None:
        self._store = S3Store(
            BUCKET,
            endpoint=endpoint,
            region="us-east-1",
            access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            client_options={"allow_http": True},
        )

    def fetch(self, key: str, path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for piece in obstore.get(self._store, key).stream(min_chunk_size=_BUFFER_BYTES):
                file.write(piece)

    def read(self, key: str, start: int, stop: int) -> bytes:
        return bytes(obstore.get_range(self._store, key, start=start, end=stop))


_CLIENTS = {"boto3": _Boto3, "download_file": _DownloadFile, "obstore": _Obstore}


def prepare(task: Task, options: dict[str, Any], shared: Path) -> Timed:
    """Find or write the shards; serve them."""
    return prepared(task, shared, write, _CLIENTS[options["client"]], options.get("ranges"))
