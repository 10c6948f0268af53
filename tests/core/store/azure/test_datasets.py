"""Whole data sets on the emulator: written, read, and written on after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.faults import Cut, Dribble, Fault, Flip, OtherBytes, Page, Reset, Status
from tests.servers.proxy import Proxy

from streaming_core import MDSWriter, StreamingDataset, load_index, open_store
from streaming_core._read import iterate_samples

if TYPE_CHECKING:
    from pathlib import Path

    from azure.storage.blob import ContainerClient
    from tests.servers.azure import Azurite

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("azurite")]

_COLUMNS = {"id": "int", "body": "bytes"}
_SAMPLES: list[dict[str, Any]] = [
    {"id": number, "body": bytes([number % 251]) * (number * 7 % 3000)} for number in range(600)
]


@pytest.fixture(autouse=True)
def _account(emulator: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say in the environment who we are, as jobs do."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", emulator.connection_string)


@pytest.mark.parametrize(
    ("form", "compression"),
    [
        pytest.param("az://{}/set", "zstd", marks=pytest.mark.essential),
        ("azure://{}/set", None),
        ("azure://teststore/{}/set", "zstd"),
        ("azure-dl://{}/set", None),
        ("abfss://{}@teststore.dfs.core.windows.net/set", "zstd"),
    ],
)
def test_a_data_set_goes_there_and_comes_back(
    container: ContainerClient, tmp_path: Path, form: str, compression: str | None
) -> None:
    """Samples are read as they were written, and the index is there when the writer is done."""
    url = form.format(container.container_name)
    with MDSWriter(
        out=url, columns=_COLUMNS, size_limit=1 << 17, compression=compression, hashes=["sha1"]
    ) as writer:
        for sample in _SAMPLES:
            writer.write(sample)
    names = sorted(container.list_blob_names())
    assert "set/index.json" in names
    assert len([name for name in names if ".mds" in name]) > 3
    dataset = StreamingDataset(remote=url, local=tmp_path / "cache", batch_size=4)
    assert list(dataset) == _SAMPLES


_FAULTS: list[Fault] = [
    Cut(100),
    Reset(100),
    Reset(None),
    Page(b""),
    Page(b"<html>Please sign in.</html>"),
    Flip(500),
    OtherBytes(),
    Dribble(64),
    Status(500),
    Status(503, retry_after="1"),
    Status(429),
]


@pytest.mark.parametrize("fault", _FAULTS, ids=repr)
def test_an_epoch_is_right_where_the_way_is_not(
    emulator: Azurite,
    container: ContainerClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    """Whatever happens to the first requests for shards, every sample comes right, once."""
    url = f"az://{container.container_name}"
    with MDSWriter(out=url, columns=_COLUMNS, size_limit=1 << 18, hashes=["sha1"]) as writer:
        for sample in _SAMPLES:
            writer.write(sample)
    with Proxy(emulator.endpoint) as proxy:
        behind = replace(emulator, port=int(proxy.url.rpartition(":")[2]))
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", behind.connection_string)
        # A wrong object is fetched again once.
        times = 1 if isinstance(fault, (Page, Flip, OtherBytes)) else 2
        rule = proxy.hurt(fault, first=times, methods=["GET"], path="*.mds")
        dataset = StreamingDataset(
            remote=url, local=tmp_path / "cache", batch_size=4, validate_hash="sha1"
        )
        assert list(dataset) == _SAMPLES
        assert rule.num_done == times


@pytest.mark.parametrize("skip", [0, 2])  # among the blocks, and with the list of them
@pytest.mark.parametrize("fault", [Status(500), Reset(None), Status(500, after_server=True)])
def test_writing_goes_on_where_requests_fail(
    emulator: Azurite,
    container: ContainerClient,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    skip: int,
) -> None:
    """Blocks and lists of blocks that are refused or whose confirmation is lost are sent again."""
    url = f"az://{container.container_name}"
    samples = [{"id": number, "body": bytes([number]) * (1 << 20)} for number in range(20)]
    with Proxy(emulator.endpoint) as proxy:
        behind = replace(emulator, port=int(proxy.url.rpartition(":")[2]))
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", behind.connection_string)
        rule = proxy.hurt(fault, first=2, skip=skip, methods=["PUT"], path="*.mds")
        with MDSWriter(out=url, columns=_COLUMNS, size_limit=32 << 20, retry=3) as writer:
            for sample in samples:
                writer.write(sample)
        assert rule.num_done == 2
        proxy.heal()
        assert list(iterate_samples(open_store(url), load_index(url))) == samples


_WRITES = """
import os, signal, sys
from streaming_core import MDSWriter
from streaming_core._store._http import Gate

left = [int(sys.argv[2])]
send = Gate.send

def counted(self, call):
    answer = send(self, call)
    if call.method == "PUT":
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return answer

Gate.send = counted
with MDSWriter(
    out=sys.argv[1], columns={"id": "int", "body": "bytes"}, size_limit=24 << 20, resume=True
) as writer:
    for number in range(writer.num_safe_samples, 40):
        writer.write({"id": number, "body": bytes([number]) * (1 << 20)})
"""


@pytest.mark.kill
def test_a_conversion_that_is_killed_while_it_uploads_goes_on(container: ContainerClient) -> None:
    """Killed after every second request, it ends all the same: nothing lost, nothing twice."""
    url = f"az://{container.container_name}/set"
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        assert len(codes) < 20
        # Each run comes a little farther than the last: two shards of four blocks, and notes.
        command = [sys.executable, "-c", _WRITES, url, str(2 + 2 * len(codes))]
        codes.append(
            subprocess.run(command, env={**os.environ}, check=False, timeout=60).returncode
        )
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1)
    assert len(codes) > 3
    samples = list(iterate_samples(open_store(url), load_index(url)))
    assert [sample["id"] for sample in samples] == list(range(40))
    assert all(sample["body"] == bytes([sample["id"]]) * (1 << 20) for sample in samples)
    assert {blob.name for blob in container.list_blobs(include=["uncommittedblobs"])} == set(
        container.list_blob_names()
    )
