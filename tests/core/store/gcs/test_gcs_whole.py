"""Google's own client, and whole data sets."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.faults import Cut, Reset, Status
from tests.servers.gcs import HMAC
from tests.servers.proxy import Proxy

import streaming_core as streaming
from streaming_core._store import open_store
from streaming_core._store._gcs import _upload

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.gcs import Emulator, KeyedServer
    from tests.servers.gcs_rules import GoogleRules

_SAMPLES = [{"number": number, "text": f"sample {number}"} for number in range(500)]
_COLUMNS = {"number": "int", "text": "str"}


@pytest.mark.parametrize("size", [0, 10, 9 << 20, pytest.param(33 << 20, marks=pytest.mark.slow)])
def test_google_reads_what_we_wrote(emulated: Emulator, size: int) -> None:
    """Bytes, version and checksum are what Google's client finds."""
    bucket, body = emulated.bucket(), os.urandom(size)
    store = open_store(f"gs://{bucket}/x", {"endpoint_url": emulated.url, "anonymous": True})
    info = store.put("ä b/1", [body[:7], body[7:]])
    with emulated.client() as client:
        blob = client.bucket(bucket).get_blob("x/ä b/1")
        assert str(blob.generation) == info.etag
        assert blob.content_type == "application/octet-stream"
        assert _upload.checksum([memoryview(body)]) == {"crc32c": blob.crc32c}
        assert blob.download_as_bytes() == body
        assert [found.name for found in client.list_blobs(bucket)] == ["x/ä b/1"]


@pytest.mark.parametrize("size", [0, 10, 9 << 20])
def test_we_read_what_google_wrote(emulated: Emulator, size: int) -> None:
    """Objects of Google's client read back equal, and are listed with its versions."""
    bucket, body = emulated.bucket(), os.urandom(size)
    with emulated.client() as client:
        blob = client.bucket(bucket).blob("x/ä b/1")
        blob.upload_from_string(body)
        client.bucket(bucket).blob("x/folder/").upload_from_string(b"")
        generation = str(client.bucket(bucket).get_blob("x/ä b/1").generation)
    store = open_store(f"gs://{bucket}/x", {"endpoint_url": emulated.url, "anonymous": True})
    assert store.get("ä b/1") == body
    assert [(info.key, info.size, info.etag) for info in store.list()] == [
        ("ä b/1", size, generation)
    ]


def test_md5_is_what_google_would_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without google-crc32c the other checksum that the service knows is sent."""
    monkeypatch.setattr(_upload, "_crc32c", lambda: None)
    expected = base64.b64encode(bytes.fromhex("900150983cd24fb0d6963f7d28e17f72")).decode()
    assert _upload.checksum([memoryview(b"a"), memoryview(b"bc")]) == {"md5Hash": expected}


def _round_trip(
    url: str, folder: Path, options: dict[str, Any] | None = None, tries: int = 2
) -> None:
    more: dict[str, Any] = {} if options is None else {"storage_options": options}
    with streaming.MDSWriter(
        out=url,
        columns=_COLUMNS,
        size_limit=4096,
        compression="zstd",
        hashes=["xxh64"],
        retry=tries,
        **more,
    ) as writer:
        for sample in _SAMPLES:
            writer.write(sample)
    dataset = streaming.StreamingDataset(
        remote=url,
        local=str(folder / "cache"),
        shuffle=True,
        batch_size=8,
        download_retry=tries,
        **more,
    )
    assert sorted(sample["number"] for sample in dataset) == list(range(500))
    assert dataset[123] == _SAMPLES[123]
    assert len(list((folder / "cache").glob("*.mds*"))) > 3


def test_a_data_set_is_written_and_read(
    emulated: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards and index go to `gs://` and come back as the samples they were."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulated.url)
    _round_trip(f"gs://{emulated.bucket()}/data/train", tmp_path)


@pytest.mark.slow
def test_a_data_set_survives_faults(
    rules: GoogleRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken, refused and lost answers on the way cost time and nothing else."""
    monkeypatch.setattr(_upload, "SINGLE_BYTES", 1000)
    with Proxy(rules.url) as proxy:
        done = [
            proxy.hurt(Status(500), chance=0.08, seed=1),
            proxy.hurt(Status(502, after_server=True), chance=0.05, seed=2),
            proxy.hurt(Status(503, retry_after="0"), chance=0.03, seed=3),
            proxy.hurt(Cut(10), methods=("GET",), chance=0.08, seed=4),
            proxy.hurt(Reset(), chance=0.05, seed=5),
        ]
        options = {"endpoint_url": proxy.url, "anonymous": True}
        _round_trip("gs://bucket/data", tmp_path, options, tries=8)
        assert sum(rule.num_done for rule in done) > 3
    assert {name.partition("/")[0] for name in rules.objects} == {"data"}


def test_a_data_set_is_written_and_read_with_keys(
    keyed_server: KeyedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in the other language."""
    monkeypatch.setenv("GCS_KEY", HMAC["hmac_key_id"])
    monkeypatch.setenv("GCS_SECRET", HMAC["hmac_secret"])
    monkeypatch.setattr("streaming_core._store._gcs._place.ENDPOINT", keyed_server.url)
    _round_trip(f"gs://{keyed_server.backend.bucket()}/data", tmp_path)
