"""A training epoch over a cloud: two ranks, workers, a cache limit, a slow line, a resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from azure.storage.blob import BlobServiceClient
from tests.servers.azure import azurite
from tests.servers.faults import Latency
from tests.servers.gcs import emulator
from tests.servers.proxy import Proxy
from tests.servers.s3 import moto

from streaming_core import MDSWriter, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SAMPLES = 240
_BATCH = 5
_STOP = 9
_SECONDS = 600
_JOB = """
import json, os, sys
from streaming_core import StreamingDataLoader, StreamingDataset

def main():
    job = json.loads(sys.argv[1])
    dataset = StreamingDataset(
        remote=job["remote"], local=job["local"], storage_options=job["options"],
        batch_size=job["batch"], shuffle=True, num_canonical_nodes=2, cache_limit=job["limit"],
    )
    loader = StreamingDataLoader(dataset, batch_size=job["batch"], num_workers=2)
    if job["state"]:
        loader.load_state_dict(job["state"])
    seen = []
    for number, batch in enumerate(loader, 1):
        seen += batch["id"].tolist()
        if number == job["stop"]:
            print(json.dumps([seen, loader.state_dict()]), flush=True)
            os.kill(os.getpid(), 9)
    print(json.dumps([seen, None]), flush=True)

if __name__ == "__main__":
    main()
"""


class _Cloud(NamedTuple):
    """A fresh place on a server, and the way there over a line that takes 40 ms."""

    url: str
    near: dict[str, Any]
    far: dict[str, Any]


def _slow(stack: ExitStack, url: str) -> str:
    proxy = stack.enter_context(Proxy(url))
    proxy.hurt(Latency(0.04))
    return proxy.url


def _s3(stack: ExitStack, folder: Path) -> _Cloud:
    del folder
    server = stack.enter_context(moto())
    far = server.options(endpoint_url=_slow(stack, server.url))
    return _Cloud(f"s3://{server.bucket()}/set", server.options(), far)


def _gcs(stack: ExitStack, folder: Path) -> _Cloud:
    del folder
    server = stack.enter_context(emulator())
    near = {"endpoint_url": server.url, "anonymous": True}
    far = {**near, "endpoint_url": _slow(stack, server.url)}
    return _Cloud(f"gs://{server.bucket()}/set", near, far)


def _azure(stack: ExitStack, folder: Path) -> _Cloud:
    server = stack.enter_context(azurite(folder))
    with BlobServiceClient.from_connection_string(server.connection_string) as client:
        client.create_container("data")
    near = {"account_name": server.account, "account_key": server.key}
    near["endpoint_url"] = server.endpoint
    host = f"http://127.0.0.1:{server.port}"
    far = {**near, "endpoint_url": server.endpoint.replace(host, _slow(stack, host))}
    return _Cloud("az://data/set", near, far)


def _run(script: Path, ranks: int, **job: Any) -> list[tuple[list[int], dict[str, Any] | None]]:
    """Run a job of so many ranks on one node; return what each has seen, and its last state."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), json.dumps(job)],
            env=os.environ
            | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    told = [process.communicate(timeout=_SECONDS) for process in processes]
    assert all(out for out, _ in told), told
    return [tuple(json.loads(out)) for out, _ in told]


@pytest.mark.timeout(900)
@pytest.mark.server
@pytest.mark.kill
@pytest.mark.xdist_group("clouds")
@pytest.mark.parametrize("open_cloud", [_s3, _gcs, _azure], ids=["s3", "gcs", "azure"])
def test_an_epoch_is_whole_over_every_cloud(
    open_cloud: Callable[[ExitStack, Path], _Cloud], tmp_path: Path
) -> None:
    """Killed in the middle on two ranks and gone on with on one, each sample comes once, in order.

    The cache holds a part of the data only, in another folder after the kill.
    """
    script = tmp_path / "job.py"
    script.write_text(_JOB)
    with ExitStack() as stack:
        cloud = open_cloud(stack, tmp_path)
        columns = {"id": "int", "body": "bytes"}
        with MDSWriter(
            out=cloud.url, columns=columns, size_limit=40_000, storage_options=cloud.near
        ) as out:
            for number in range(_SAMPLES):
                out.write({"id": number, "body": bytes([number]) * 2000})
        job = {"remote": cloud.url, "options": cloud.far, "batch": _BATCH, "limit": 200_000}
        first = _run(script, 2, **job, local=str(tmp_path / "first"), state=None, stop=_STOP)
        states = [state for _, state in first]
        assert states[0] == states[1]
        ((rest, end),) = _run(
            script,
            1,
            **job | {"batch": 2 * _BATCH},
            local=str(tmp_path / "second"),
            state=states[0],
            stop=-1,
        )
        assert end is None
        whole = StreamingDataset(
            remote=cloud.url,
            local=tmp_path / "third",
            storage_options=cloud.near,
            batch_size=2 * _BATCH,
            shuffle=True,
            num_canonical_nodes=2,
        )
        order = [sample["id"] for sample in whole]
    seen = [number for numbers, _ in first for number in numbers]
    assert sorted(seen + rest) == list(range(_SAMPLES))
    assert sorted(order[: len(seen)]) == sorted(seen)
    assert order[len(seen) :] == rest
    cached = sum(path.stat().st_size for path in (tmp_path / "second").glob("*.mds"))
    assert cached <= 200_000
