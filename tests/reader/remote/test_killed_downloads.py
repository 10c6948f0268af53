"""Readers that share a cache are killed at forty moments; nothing wrong is in it afterwards."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.remote.serving import write
from tests.servers.faults import Latency, Slow
from tests.servers.nginx import nginx
from tests.servers.proxy import Proxy

from streaming_core import StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess
    from pathlib import Path

pytestmark = [
    pytest.mark.kill,
    pytest.mark.timeout(900),
    pytest.mark.server,
]

_KILLS = 44
_NUM_SAMPLES = 96
_SIZE = 6000
_SHARD = 8 * _SIZE
_LIMIT = 8 * _SHARD
"""Half of all, so that shards are removed while others come."""
_SECONDS = 200
_CONTEXT: Any = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Proxy]]:
    """Return a data set's folder, and the way to it through nginx and a slow line."""
    with nginx(tmp_path_factory.mktemp("nginx")) as server:
        folder = server.files / "set"
        write(folder, _NUM_SAMPLES, size=_SIZE, shard=_SHARD)
        with Proxy(server.url) as proxy:
            yield folder, proxy


def _dataset(proxy: Proxy, local: Path, shuffle_seed: int, limit: int = _LIMIT) -> StreamingDataset:
    return StreamingDataset(
        remote=f"{proxy.url}/data/set",
        local=str(local),
        batch_size=4,
        shuffle=True,
        shuffle_seed=shuffle_seed,
        cache_limit=limit,
        predownload=24,
        download_retry=0,
    )


def _read(proxy: Proxy, local: Path, shuffle_seed: int) -> None:
    """Read an epoch, of which every sample is right."""
    seen = []
    for sample in _dataset(proxy, local, shuffle_seed):
        assert sample["body"] == (sample["id"] % 251).to_bytes(1, "little") * _SIZE
        seen.append(sample["id"])
    assert sorted(seen) == list(range(_NUM_SAMPLES))


def _started(proxy: Proxy, local: Path, shuffle_seed: int) -> BaseProcess:
    process: BaseProcess = _CONTEXT.Process(target=_read, args=(proxy, local, shuffle_seed))
    process.start()
    return process


def _check(folder: Path, local: Path) -> int:
    """Assert that what stands under its final name is right; return its bytes."""
    num_bytes = 0
    for path in local.glob("*.mds"):
        data = path.read_bytes()
        assert data == (folder / path.name).read_bytes(), path.name
        num_bytes += len(data)
    if (local / "index.json").exists():
        assert (local / "index.json").read_bytes() == (folder / "index.json").read_bytes()
    assert not list((local / ".streaming/parts").glob("*.bad"))
    return num_bytes


@pytest.mark.parametrize("half", [0, 1])
def test_forty_kills_leave_nothing_wrong_in_the_cache(
    remote: tuple[Path, Proxy], tmp_path: Path, half: int
) -> None:
    """Of two readers one or both are killed; the other is right, and so is who comes after them.

    Every second kill comes at a share of the time that an epoch takes, the others when a request
    has arrived. A part of the rounds goes on in the cache that the round before has left.
    """
    folder, proxy = remote
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"FAULTS_SEED={seed}")  # noqa: T201 - to repeat a failed run
    chance = random.Random(f"{seed} {half}")  # noqa: S311 - repeatable, not secret
    proxy.heal()
    proxy.hurt(Slow(4_000_000), path="*.mds")
    proxy.hurt(Latency(0.004))
    proxy.forget()
    began = time.monotonic()
    _read(proxy, tmp_path / "first", 0)
    seconds, num_requests = time.monotonic() - began, proxy.num_requests
    kills = rounds = parts = 0
    while kills < _KILLS // 2:
        rounds += 1
        assert rounds < 5 * _KILLS, "the kills come too late"
        local = tmp_path / f"local-{rounds // 4}"
        proxy.forget()
        readers = [_started(proxy, local, rounds * 2 + number) for number in range(2)]
        _wait(proxy, chance, seconds, num_requests, by_time=bool(rounds % 2))
        victims = readers[: chance.choice([1, 1, 2])]
        for victim in victims:
            if victim.is_alive():
                os.kill(victim.pid or 0, signal.SIGKILL)
        for reader in readers:
            reader.join(_SECONDS)
        assert all(reader.exitcode == 0 for reader in readers if reader not in victims)
        assert {victim.exitcode for victim in victims} <= {0, -signal.SIGKILL}
        kills += sum(victim.exitcode != 0 for victim in victims)
        parts += len([*(local / ".streaming/parts").glob("*")])
        _check(folder, local)
        _read(proxy, local, rounds)
        assert _check(folder, local) <= _LIMIT
        left = [path.name for path in (local / ".streaming/parts").glob("*")]
        assert not left, left
    assert parts > 0  # some were killed within a download


def _wait(
    proxy: Proxy, chance: random.Random, seconds: float, num_requests: int, *, by_time: bool
) -> None:
    end = time.monotonic() + chance.uniform(0, seconds)
    nth = 1 if by_time else chance.randint(1, num_requests)
    while time.monotonic() < end + (0 if by_time else 2 * seconds):
        if not by_time and proxy.num_requests >= nth:
            return
        time.sleep(0.001)
