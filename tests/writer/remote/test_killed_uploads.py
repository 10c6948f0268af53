"""Writers to a bucket are killed at forty moments and more; what they have done is not lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import warnings
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.faults import Latency
from tests.servers.proxy import Proxy
from tests.servers.s3 import moto

from streaming_core import MDSWriter, load_index, open_store
from streaming_core._read import iterate_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.s3 import S3Server

pytestmark = [
    pytest.mark.kill,
    pytest.mark.server,
    pytest.mark.timeout(1800),
]

_KILLS = 42
_SAMPLES = [{"id": number, "body": bytes([number]) * 30_000} for number in range(66)]
_CONTEXT: Any = multiprocessing.get_context("fork")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Return a bucket's server, for which what is small elsewhere is large."""
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    monkeypatch.setattr("streaming_core._store._s3._store._SINGLE_BYTES", 100_000)
    monkeypatch.setattr("streaming_core._store._s3._upload.PART_BYTES", 64_000)
    with moto() as found:
        yield found


def _write(out: str, options: dict[str, Any]) -> int:
    """Write what is not safe yet, and return how many samples were."""
    with MDSWriter(
        out=out,
        columns={"id": "int", "body": "bytes"},
        size_limit=400_000,
        resume=True,
        max_workers=2,
        storage_options=options,
    ) as writer:
        safe = writer.num_safe_samples
        for sample in _SAMPLES[safe:]:
            writer.write(sample)
    return safe


class _Victim:
    """A process that writes, and is killed after some time or when its n-th request arrives."""

    def __init__(self, server: S3Server, out: str) -> None:
        self._server = server
        self._out = out

    def run(self, *, seconds: float | None = None, nth: int | None = None) -> bool:
        """Tell whether it was killed before it was done."""
        with Proxy(self._server.url) as proxy:
            options = self._server.options(endpoint_url=proxy.url)
            child = _CONTEXT.Process(target=_write, args=(self._out, options))
            seen = 0

            def watch(_: str, __: str) -> bool:
                nonlocal seen
                seen += 1
                if seen == nth:
                    os.kill(child.pid, signal.SIGKILL)
                return False  # it only looks

            proxy.hurt(Latency(0), where=watch)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the server's threads stay
                child.start()
            if seconds is not None:
                child.join(seconds)
                child.kill()
            child.join()
            assert child.exitcode in {-signal.SIGKILL, 0}
            return bool(child.exitcode)


def _objects(server: S3Server, out: str) -> dict[str, bytes]:
    store = open_store(out, server.options())
    return {info.key: store.get(info.key) for info in store.list()}


def test_forty_kills_lose_nothing_and_leave_nothing(server: S3Server) -> None:
    """Each time the rerun has all samples, the same objects, and no part of an upload stays.

    Every second kill comes at a share of the time that a run takes, the others at the arrival of
    one request after another. Half of those that were killed are killed again before they may end.
    """
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"FAULTS_SEED={seed}")  # noqa: T201 - to repeat a failed run
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    bucket = server.bucket()
    whole = f"s3://{bucket}/whole"
    with Proxy(server.url) as proxy:
        began = time.monotonic()
        _write(whole, server.options(endpoint_url=proxy.url))
        seconds, num_requests = time.monotonic() - began, proxy.num_requests
    wanted = _objects(server, whole)
    assert num_requests > 40
    kills = rounds = num_safe = num_parts = 0
    moments = cycle(range(1, num_requests, 1 + num_requests // _KILLS))
    while kills < _KILLS:
        rounds += 1
        assert rounds < 5 * _KILLS, "the kills come too late"
        out = f"s3://{bucket}/killed-{rounds}"
        victim = _Victim(server, out)
        while True:
            if rounds % 2:
                killed = victim.run(seconds=chance.uniform(0, seconds))
            else:
                killed = victim.run(nth=next(moments))
            kills += killed
            if not killed or chance.random() < 0.5:
                break
        if not killed:
            assert _objects(server, out) == wanted
            continue
        with server.client() as client:
            num_parts += len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", []))
        num_safe += _write(out, server.options())
        assert _objects(server, out) == wanted
        with server.client() as client:
            assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    # Some were killed within an upload, and some had shards behind them.
    assert num_parts > 0
    assert num_safe > 0
    store = open_store(whole, server.options())
    assert list(iterate_samples(store, load_index(whole, storage_options=server.options()))) == (
        _SAMPLES
    )
