"""The cache against a model: whatever two processes, users and crashes do, every read is right."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.profiles import examples
from tests.reader.cache.making import (
    LoggedStore,
    Made,
    expected,
    folder_bytes,
    ids,
    make,
    ordinary_files,
)

from streaming_core.testing import Die, Fault, FaultStore, FlipBit, Truncate
from streaming_reader._cache import CacheGroup

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from streaming_core._format import Shard
    from streaming_reader._cache import ShardCache

pytestmark = [
    pytest.mark.kill,
    pytest.mark.essential,
]

_SHARDS = st.integers(0, 11)
_FORK = multiprocessing.get_context("fork")
_SECONDS = 120


@lru_cache(maxsize=2)
def _made(compression: str | None) -> Made:
    return make(Path(tempfile.mkdtemp(dir=_root())) / "remote", compression=compression)


@lru_cache(maxsize=1)
def _root() -> str:
    return tempfile.mkdtemp(prefix="cache-machine-")


@pytest.fixture(autouse=True, scope="module")
def _no_remains() -> Any:
    yield
    shutil.rmtree(_root(), ignore_errors=True)


def _serve(made: Made, local: Path, limit: int | None, wire: Connection, near: Connection) -> None:
    """Do in another process what the machine asks for, and end with it."""
    near.close()
    cache = made.cache(local, group=None if limit is None else CacheGroup(limit), max_open=2)
    while (order := _next(wire)) is not None:
        verb, shard = order
        result = getattr(cache, verb)(*shard)
        wire.send(ids(result) if verb == "open" else result)


def _next(wire: Connection) -> Any:
    try:
        return wire.recv()
    except EOFError:
        return None


class CacheMachine(RuleBasedStateMachine):
    """Two processes with a cache each in one folder, and somebody who spoils files in it."""

    @initialize(
        compression=st.sampled_from([None, "zstd"]),
        limited=st.booleans(),
        keep_zip=st.booleans(),
    )
    def begin(self, *, compression: str | None, limited: bool, keep_zip: bool) -> None:
        """Start with an empty folder and a second process."""
        self.made = _made(compression)
        self.local = Path(tempfile.mkdtemp(dir=_root()))
        room = self.made.largest * 4 + 80 + self.made.num_shards * 32
        self.limit = room if limited else None
        self.keep_zip = keep_zip
        self.held: dict[int, Shard] = {}
        # Of a decompressed file only the ledger knows a hash: without it a flip cannot be seen.
        self.knows_by_ledger = compression is not None
        self.flipped = self.ledger_lost = False
        self.wire, far = _FORK.Pipe()
        self.other = _FORK.Process(
            target=_serve, args=(self.made, self.local, self.limit, far, self.wire), daemon=True
        )
        self.other.start()
        self.restart()

    def teardown(self) -> None:
        """Stop the second process."""
        if hasattr(self, "other"):
            self.wire.send(None)
            self.other.join(_SECONDS)
            assert self.other.exitcode == 0
            shutil.rmtree(self.local, ignore_errors=True)

    def _cache(self, remote: Any = None) -> ShardCache:
        group = None if self.limit is None else CacheGroup(self.limit)
        return self.made.cache(
            self.local, remote=remote, group=group, keep_zip=self.keep_zip, max_open=2
        )

    @rule()
    def restart(self) -> None:
        """Go on with a new cache, as a new job does."""
        self.cache = self._cache()

    @rule(shard=_SHARDS)
    def open(self, shard: int) -> None:
        """Every read is right."""
        opened = self.cache.open(shard % self.made.num_shards, timeout=_SECONDS)
        assert ids(opened) == expected(self.made, shard % self.made.num_shards)

    @rule(shard=_SHARDS)
    def hold(self, shard: int) -> None:
        """Keep a shard in use, as a reader does."""
        number = shard % self.made.num_shards
        self.held[number] = self.cache.open(number, timeout=_SECONDS)

    @precondition(lambda self: self.held)
    @rule()
    def release(self) -> None:
        """Let go of what was in use, which was readable all the time."""
        for number, opened in self.held.items():
            assert ids(opened) == expected(self.made, number)
        self.held.clear()

    @rule(shard=_SHARDS)
    def open_there(self, shard: int) -> None:
        """Every read of the other process is right."""
        assert self._ask("open", shard) == expected(self.made, shard % self.made.num_shards)

    @rule(shard=_SHARDS, there=st.booleans())
    def evict(self, shard: int, *, there: bool) -> None:
        """What was evicted is gone, in both processes."""
        number = shard % self.made.num_shards
        removed = self._ask("evict", shard) if there else self.cache.evict(number)
        assert removed in {True, False}
        assert not self.cache.has(number)
        assert not set(self._names(number)) & ordinary_files(self.local)

    @rule(there=st.booleans())
    def evict_coldest(self, *, there: bool) -> None:
        """A shard goes if there is any."""
        before = self.cache.usage()
        coldest = self._ask("evict_coldest", None) if there else self.cache.evict_coldest()
        assert (coldest is None) == (before == 0)
        if coldest is not None:
            assert self.cache.usage() < before

    @rule(shard=_SHARDS, way=st.sampled_from(["flip", "cut", "empty", "gone", "junk"]))
    def spoil(self, shard: int, way: str) -> None:
        """Replace a file by a wrong one, as another program might."""
        if way == "flip" and self.knows_by_ledger and self.ledger_lost:
            return
        self.flipped |= way == "flip"
        for name in self._names(shard % self.made.num_shards):
            path = self.local / name
            if not path.exists():
                continue
            data = path.read_bytes()
            flipped = bytearray(data)
            if flipped:
                flipped[len(data) // 2] ^= 4
            path.unlink()
            if way != "gone":
                path.write_bytes(
                    {"flip": bytes(flipped), "cut": data[:-5], "empty": b"", "junk": b"junk"}[way]
                )

    @rule(way=st.sampled_from(["cut", "gone", "junk"]))
    def spoil_ledger(self, way: str) -> None:
        """Replace the ledger by a wrong one."""
        path = self.local / ".streaming/ledger"
        if path.exists() and not (self.flipped and self.knows_by_ledger):
            self.ledger_lost = True
            data = path.read_bytes()
            path.unlink()
            if way != "gone":
                path.write_bytes(data[:70] if way == "cut" else bytes(len(data)))

    @rule(shard=_SHARDS, action=st.sampled_from([FlipBit(901), Truncate(80), Die(60)]))
    def open_through_faults(self, shard: int, action: Any) -> None:
        """One fault of the store is survived."""
        number = shard % self.made.num_shards
        cache = self._cache(FaultStore(self.made.store, [Fault(action, verb="stream")]))
        assert ids(cache.open(number, timeout=_SECONDS)) == expected(self.made, number)

    @rule(shard=_SHARDS, milliseconds=st.integers(0, 12))
    def crash(self, shard: int, milliseconds: int) -> None:
        """A process is killed while it fetches."""
        number = shard % self.made.num_shards

        def fetch() -> None:
            log = self.local.parent / "log"
            store = LoggedStore(self.made.folder, log, piece=100, seconds=0.001)
            self._cache(store).open(number)

        process = _FORK.Process(target=fetch)
        process.start()
        threading.Event().wait(milliseconds / 1000)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(_SECONDS)

    @invariant()
    def nothing_else_lies_about(self) -> None:
        """The folder has files of the index only, and no lock that is not held."""
        if not hasattr(self, "local"):
            return
        names = {name for i in range(self.made.num_shards) for name in self._names(i)}
        assert ordinary_files(self.local) <= names

    @invariant()
    def the_limit_holds(self) -> None:
        """What is in place never exceeds the limit."""
        if getattr(self, "limit", None) is not None:
            assert folder_bytes(self.local) <= (self.limit or 0)

    def _names(self, number: int) -> list[str]:
        return [file.basename for file in self.made.table.shard(number).files().values()]

    def _ask(self, verb: str, shard: int | None) -> Any:
        self.wire.send((verb, () if shard is None else (shard % self.made.num_shards,)))
        end = time.monotonic() + _SECONDS
        assert self.wire.poll(end - time.monotonic()), f"the other process hangs at {verb}"
        return self.wire.recv()


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=examples(25),
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
