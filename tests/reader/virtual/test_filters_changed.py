"""A file that is replaced in an object store after it was indexed is an error that says so."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.s3 import moto

from streaming_core import Stream, StreamingDataset
from streaming_core.errors import SourceChangedError

if TYPE_CHECKING:
    from pathlib import Path


def _file(first: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": np.arange(first, first + 10)}), sink, compression="none")
    return sink.getvalue()


@pytest.mark.server
def test_an_object_that_is_replaced_is_told(tmp_path: Path) -> None:
    """Also where it has as many bytes as before; and one that was deleted."""
    with moto() as server, server.client() as client:
        bucket = server.bucket()
        for at in range(3):
            client.put_object(Bucket=bucket, Key=f"d/{at}.parquet", Body=_file(at * 10))
        options = {**server.keys, "endpoint_url": server.url, "region": "us-east-1"}
        stream = Stream(
            remote=f"s3://{bucket}/d/*.parquet",
            local=tmp_path,
            storage_options=options,
            download_retry=0,
        )
        dataset = StreamingDataset(streams=[stream], batch_size=2)
        assert int(dataset[5]["id"]) == 5
        assert len(_file(700)) == len(_file(10))
        client.put_object(Bucket=bucket, Key="d/1.parquet", Body=_file(700))
        with pytest.raises(SourceChangedError, match=r"1\.parquet.*changed after it was indexed"):
            dataset[15]
        client.delete_object(Bucket=bucket, Key="d/2.parquet")
        with pytest.raises(SourceChangedError, match=r"2\.parquet.*it is gone"):
            dataset[25]
        again = StreamingDataset(
            streams=[
                Stream(remote=f"s3://{bucket}/d/*.parquet", local=tmp_path, storage_options=options)
            ],
            batch_size=2,
        )
        assert [int(again[at]["id"]) for at in (5, 15)] == [5, 705]
        assert len(again) == 20
