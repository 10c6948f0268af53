"""Data sets are written to a bucket and read from it, also by writers that were killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.faults import Latency
from tests.servers.proxy import Proxy
from tests.servers.s3 import KEYS

from streaming_core import MDSWriter, StreamingDataset, load_index, open_store
from streaming_core._read import iterate_samples
from streaming_core._store._s3 import S3Store
from streaming_core.errors import OutputNotEmptyError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3 import S3Server

_COLUMNS = {"id": "int", "text": "str"}
_SAMPLES = [{"id": i, "text": f"text {i} " * (i % 13)} for i in range(300)]
_LARGE = [{"id": i, "text": chr(97 + i) * (1 << 20)} for i in range(26)]
"""At 13 in a shard, more than goes in one request."""


@pytest.fixture(
    params=[
        "moto",
        pytest.param("local", marks=[pytest.mark.server, pytest.mark.xdist_group("localstack")]),
    ]
)
def server(request: pytest.FixtureRequest) -> S3Server:
    """Return each of the servers."""
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return found


def _follow(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that follows go to `url` with keys, as a job's environment would have it."""
    monkeypatch.setenv("S3_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret_access_key"])


def _write(out: Any, samples: list[dict[str, Any]], size_limit: int = 900, **options: Any) -> int:
    """Write what is not safe yet, and return how many were."""
    with MDSWriter(out=out, columns=_COLUMNS, size_limit=size_limit, **options) as writer:
        safe = writer.num_safe_samples
        for sample in samples[safe:]:
            writer.write(sample)
    return safe


def _names(store: Any) -> list[str]:
    return sorted(info.key for info in store.list())


@pytest.mark.parametrize("compression", [pytest.param(None, marks=pytest.mark.slow), "zstd:1"])
def test_writes_and_streams(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str | None
) -> None:
    """What was written to a bucket streams back equal, in order and shuffled."""
    _follow(server.url, monkeypatch)
    out = f"s3://{server.bucket()}/some/set"
    _write(out, _SAMPLES, compression=compression, hashes=["xxh64"])
    with pytest.raises(OutputNotEmptyError, match="finished data set"):
        _write(out, _SAMPLES)
    for shuffle in (False, True):
        dataset = StreamingDataset(
            remote=out, local=tmp_path / str(shuffle), shuffle=shuffle, batch_size=1
        )
        samples = list(dataset)
        assert sorted(samples, key=lambda sample: int(sample["id"])) == _SAMPLES
        assert shuffle or samples == _SAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("keep_local", [True, False])
def test_writes_to_a_folder_and_a_bucket(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep_local: bool
) -> None:
    """A pair of places gets the same objects in both, or in the bucket only."""
    _follow(server.url, monkeypatch)
    remote = f"s3://{server.bucket()}/set"
    _write((tmp_path / "set", remote), _SAMPLES, keep_local=keep_local)
    store = open_store(remote)
    there = {name: store.get(name) for name in _names(store)}
    assert {"index.json", "shard.00000.mds"} <= there.keys()
    here = {path.name: path.read_bytes() for path in (tmp_path / "set").glob("*")}
    assert {name: data for name, data in here.items() if not name.startswith(".")} == (
        {name: data for name, data in there.items() if not name.startswith(".")}
        if keep_local
        else {}
    )
    assert list(iterate_samples(store, load_index(remote))) == _SAMPLES


def test_keeps_a_local_copy_of_what_goes_to_a_bucket(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a URL alone, `keep_local` decides whether there is a copy in a folder of its own."""
    _follow(moto_server.url, monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for keep_local in (True, False):
        out = f"s3://{moto_server.bucket()}"
        with MDSWriter(out=out, columns=_COLUMNS, keep_local=keep_local) as writer:
            writer.write(_SAMPLES[0])
        assert (writer.local is not None) == keep_local
        if writer.local is not None:
            assert (writer.local / "index.json").read_bytes() == open_store(out).get("index.json")


def _requests_of_a_run(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> int:
    with Proxy(server.url) as proxy:
        _follow(proxy.url, monkeypatch)
        _write(f"s3://{server.bucket()}/set", _LARGE, 14 << 20)
        return proxy.count()


@pytest.mark.kill
@pytest.mark.timeout(900)  # for a machine that is busy with other things
def test_killed_at_twenty_moments(
    moto_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when its n-th request arrives, a writer goes on, and the data set is right."""
    monkeypatch.setattr("streaming_core._store._s3._store._SINGLE_BYTES", 12 << 20)
    num_requests = _requests_of_a_run(moto_server, monkeypatch)
    assert num_requests >= 20
    moments = random.Random(4).sample(range(1, num_requests), 19)  # noqa: S311 - which ones
    num_safe = 0
    for moment in [num_requests, *moments]:
        with Proxy(moto_server.url) as proxy:
            _follow(proxy.url, monkeypatch)
            out = f"s3://{bucket}/{moment}"
            child = multiprocessing.get_context("fork").Process(
                target=_write, args=(out, _LARGE, 14 << 20), kwargs={"resume": True}
            )
            seen = 0

            def killing(_: str, __: str, moment: int = moment, child: Any = child) -> bool:
                nonlocal seen
                seen += 1
                if seen == moment:
                    os.kill(child.pid, 9)
                return False

            rule = proxy.hurt(Latency(0), where=killing)  # never done: it only looks
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the server's threads stay
                child.start()
            child.join(60)
            assert child.exitcode in {-9, 0}
            assert not rule.num_done
            proxy.heal()
            num_safe += _write(out, _LARGE, 14 << 20, resume=True)
            store = open_store(out)
            assert isinstance(store, S3Store)
            assert list(iterate_samples(store, load_index(out))) == _LARGE
            assert [name for name in _names(store) if name.startswith((".w", "shard"))] == [
                "shard.00000.mds",
                "shard.00001.mds",
            ]
            assert store.abort_uploads() == 0  # the rerun has removed the parts
    assert num_safe
    with moto_server.client() as client:
        assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
