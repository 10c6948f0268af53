"""Many processes in one folder, some of them killed: nothing hangs, is wrong, or stays.

A process that is killed at any moment leaves at most unfinished parts, which the next removes.
"""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.reader.cache.making import (
    NUM_SAMPLES,
    LoggedStore,
    Made,
    StuckStore,
    bytes_at_once,
    expected,
    folder_bytes,
    ids,
    make,
    names,
    open_descriptors,
    ordinary_files,
)
from tests.reader.waiting import until

from streaming_core.errors import AccessDeniedError, StoreError
from streaming_reader._cache import CacheGroup, ShardCache, SharedArrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess

_FORK = multiprocessing.get_context("fork")
_READERS = 8
_SECONDS = 120
_WATCHDOG_SECONDS = 280


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a plain dataset."""
    return make(tmp_path / "remote")


def _started(work: Callable[[], object]) -> BaseProcess:
    process = _FORK.Process(target=work)
    process.start()
    return process


def _run_with_kills(work: Callable[[int], object], kills: int, seed: int) -> int:
    """Keep eight processes at `work` until each has finished once; return how many were killed."""
    rng = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    running = [_started(partial(work, i)) for i in range(_READERS)]
    killed = 0
    end = time.monotonic() + _WATCHDOG_SECONDS
    pause = threading.Event()
    while any(process.is_alive() for process in running) or killed < kills:
        assert time.monotonic() < end, "the readers hang"
        pause.wait(rng.uniform(0.0, 0.03))
        at = rng.randrange(_READERS)
        if killed < kills and running[at].is_alive():
            os.kill(running[at].pid or 0, signal.SIGKILL)
            running[at].join(_SECONDS)
            killed += 1
            running[at] = _started(partial(work, at))
        elif killed < kills and not running[at].is_alive():
            running[at] = _started(partial(work, at))
    for process in running:
        process.join(_SECONDS)
    assert [process.exitcode for process in running] == [0] * _READERS
    return killed


@pytest.mark.kill
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_each_shard_is_fetched_once_plus_kills(tmp_path: Path, compression: str | None) -> None:
    """Without a limit a shard is fetched once for all processes, or once more for a kill."""
    made = make(tmp_path / "remote", compression=compression)
    local, log = tmp_path / "local", tmp_path / "log"

    def work(number: int) -> None:
        store = LoggedStore(made.folder, log, piece=100, seconds=0.001)
        cache = made.cache(local, remote=store)
        order = np.random.default_rng(number).permutation(made.num_shards)
        for shard in order.tolist():
            assert ids(cache.open(shard, timeout=_SECONDS)) == expected(made, shard)

    killed = _run_with_kills(work, kills=12, seed=5)
    fetched = Counter(log.read_text().split())
    assert len(fetched) == made.num_shards
    assert sum(fetched.values()) <= made.num_shards + killed
    assert len(ordinary_files(local)) == made.num_shards
    made.cache(local)  # removes what the killed have left
    assert names(local / ".streaming/parts") == []


@pytest.mark.kill
def test_a_tiny_limit_holds_under_kills(made: Made, tmp_path: Path) -> None:
    """Eight processes under a limit of four shards, killed at random: it holds at every moment."""
    local, log = tmp_path / "local", tmp_path / "log"
    limit = made.largest * 4 + 80 + made.num_shards * 32

    def work(number: int) -> None:
        store = LoggedStore(made.folder, log, piece=400, seconds=0.0005)
        cache = made.cache(local, remote=store, group=CacheGroup(limit), max_open=1)
        for shard in np.random.default_rng(number).integers(0, made.num_shards, 15).tolist():
            assert ids(cache.open(shard, timeout=_SECONDS)) == expected(made, shard)

    over: list[int] = []
    looks = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal looks
        while not done.wait(0.002):
            for parts, most in ((False, limit), (True, limit + _READERS * made.largest)):
                found = bytes_at_once(local, parts=parts)
                looks += found is not None
                if found is not None and found > most:
                    over.append(found)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _run_with_kills(work, kills=12, seed=6)
    finally:
        done.set()
        watcher.join(_SECONDS)
    assert not over
    assert looks
    made.cache(local)
    assert names(local / ".streaming/parts") == []
    assert folder_bytes(local, parts=True) <= limit


@pytest.mark.kill
@pytest.mark.essential
def test_a_kill_in_the_middle_of_a_fetch(made: Made, tmp_path: Path) -> None:
    """The next process finds the lock free, the half file gone, and fetches it whole."""
    for come in range(0, 600, 100):
        _kill_in_the_middle(made, tmp_path / f"local-{come}", come)


def _kill_in_the_middle(made: Made, local: Path, come: int) -> None:
    """Kill a process that fetches a shard, after so many bytes of it."""

    def work() -> None:
        made.cache(local, remote=StuckStore(made.folder, come)).open(0)

    process = _started(work)
    part = local / ".streaming/parts" / f"{made.table.shard(0).raw.basename}.raw"
    try:
        until(lambda: part.exists() and part.stat().st_size == come)
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(_SECONDS)
    assert part.exists()
    cache = made.cache(local)
    assert not part.exists()
    assert ids(cache.open(0, timeout=_SECONDS)) == expected(made, 0)
    assert ordinary_files(local) == {made.table.shard(0).raw.basename}


# --- what stays behind ----------------------------------------------------------------------------


def _state() -> dict[str, object]:
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "descriptors": open_descriptors(),
        # Not what lies in /dev/shm: that folder belongs to everybody.
        "mapped": [line for line in maps if "/shm/" in line],
        "temporary": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
    }


def leave_nothing(root: Path) -> None:
    """Print what 200 caches, used and dropped, leave in a process: before and after."""
    made = Made(root / "remote")
    (root / "blocked").write_bytes(b"")

    def use(number: int) -> None:
        local = root / f"local-{number % 5}"
        cache = made.cache(local, group=CacheGroup("1mb") if number % 2 else None)
        assert ids(cache.open(number % made.num_shards))
        cache.prepare(0)
        cache.evict(number % 3)
        SharedArrays(local)(f"{number}", 3, lambda: np.arange(3))
        try:
            made.cache(root / "blocked" / "below").open(0)
        except StoreError:
            return
        raise AssertionError

    for number in range(20):
        use(number)
    before = _state()
    for number in range(200):
        use(number)
    print(json.dumps([before, _state()]))  # noqa: T201 - for the test


@pytest.mark.process
def test_caches_leave_nothing_in_the_process(made: Made, tmp_path: Path) -> None:
    """Descriptors, threads, shared memory and temporary files are after 200 caches as before."""
    assert made.num_shards
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    code = (
        "import pathlib, sys; from tests.reader.cache.test_kills import leave_nothing; "
        "leave_nothing(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert after == before


def test_caches_that_live_hold_no_descriptors(made: Made, tmp_path: Path) -> None:
    """200 caches alive at once, each having fetched, hold nothing open but what is mapped."""
    gc.collect()
    before = open_descriptors()
    caches = [made.cache(tmp_path / f"local-{i % 4}") for i in range(200)]
    for i, cache in enumerate(caches):
        cache.prepare(i % made.num_shards)
    assert open_descriptors() == before
    mapped = [cache.open(0) for cache in caches[:10]]
    assert len(open_descriptors()) <= len(before) + 10
    del mapped, caches
    gc.collect()
    assert open_descriptors() == before


# --- other users ----------------------------------------------------------------------------------


def _as_nobody(work: Callable[[], object]) -> int | None:
    """Run `work` in a process of another user, for whom permissions count."""
    if os.getuid():
        pytest.skip("only root can become another user")

    def run() -> None:
        os.setgid(65534)
        os.setuid(65534)
        work()

    process = _started(run)
    process.join(_SECONDS)
    return process.exitcode


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.mark.process
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_read_only_folder_that_is_complete_works(public: Path, compression: str | None) -> None:
    """Who may only read opens all that is there, decompressed or not, with and without remote."""
    made = make(public / "remote", compression=compression)
    local = public / "local"
    cache = made.cache(local)
    for shard in range(made.num_shards):
        cache.open(shard)

    def work() -> None:
        for one in (made.cache(local), type(cache)(made.table, None, made.folder)):
            got = [i for shard in range(made.num_shards) for i in ids(one.open(shard))]
            assert got == list(range(NUM_SAMPLES))

    assert _as_nobody(work) == 0


@pytest.mark.process
def test_what_cannot_be_written_is_an_error_that_names_the_folder(public: Path) -> None:
    """A missing shard in a folder of another user: who, where, how much; and no limit there."""
    made = make(public / "remote")
    local = public / "local"
    made.cache(local).open(0)

    def work() -> None:
        cache = made.cache(local)
        assert ids(cache.open(0)) == expected(made, 0)
        with pytest.raises(StoreError, match=rf"{local}.*EACCES.*bytes are needed"):
            cache.open(1)
        with pytest.raises(StoreError, match="ledger"):
            made.cache(local, group=CacheGroup("1mb")).evict(0)

    assert _as_nobody(work) == 0


@pytest.mark.process
def test_a_limit_that_cannot_be_kept_is_told(public: Path) -> None:
    """In a folder of another user nothing can be removed."""
    made = make(public / "remote")
    local = public / "local"
    made.cache(local).open(0)

    def work() -> None:
        told: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("streaming_core.reader").addHandler(handler)
        made.cache(local, group=CacheGroup("1mb"))
        assert str(local) in told[0]
        assert "limit of 1048576 bytes is not kept" in told[0]

    assert _as_nobody(work) == 0


@pytest.mark.process
@pytest.mark.parametrize("writable", [False, True])
def test_a_shard_that_this_user_cannot_read(public: Path, writable: bool) -> None:
    """It is fetched again where the folder allows it; else the error says who is denied what."""
    made = make(public / "remote")
    local = public / "local"
    made.cache(local).open(0)
    path = local / made.table.shard(0).raw.basename
    path.chmod(0o600)
    if writable:
        for folder in (local, local / ".streaming", local / ".streaming/parts"):
            folder.chmod(0o777)

    def work() -> None:
        if writable:
            assert ids(made.cache(local).open(0)) == expected(made, 0)
        else:
            with pytest.raises(AccessDeniedError, match=rf"{local}.*EACCES.*local="):
                made.cache(local).open(0)
        alone = ShardCache(made.table, None, local)
        if not writable:
            with pytest.raises(AccessDeniedError, match=rf"{path.name}.*permissions"):
                alone.open(0)

    assert _as_nobody(work) == 0


@pytest.mark.process
def test_two_users_share_a_folder_that_both_may_write(public: Path) -> None:
    """In a folder that both may write to, each reads what either has fetched."""
    made = make(public / "remote")
    local = public / "local"
    (local / ".streaming/parts").mkdir(parents=True)
    for path in (local, local / ".streaming", local / ".streaming/parts"):
        path.chmod(0o777)
    made.cache(local).open(0)

    def work() -> None:
        cache = made.cache(local)
        assert ids(cache.open(0)) == expected(made, 0)
        assert ids(cache.open(1)) == expected(made, 1)

    assert _as_nobody(work) == 0
    assert ids(made.cache(local).open(1)) == expected(made, 1)
