"""Long training over HTTP with a small cache, killed and resumed on changing worlds."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.waiting import until
from tests.servers.web import WebServer
from tests.soak.common import Job, Random, chance, minutes, say
from tests.soak.train import GLOBAL_BATCH

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.soak, pytest.mark.kill]

_SAMPLES = 96 * GLOBAL_BATCH
_BODY = bytes(range(256)) * 16
_STEPS_BETWEEN_STATES = 5
_SHARED = Path("/dev/shm")  # noqa: S108 - looked into, not written to
# Ranks, ranks of a node, workers of a rank, and how these are started.
_WORLDS = [
    (1, 1, 2, "fork"),
    (2, 2, 2, "spawn"),
    (2, 1, 1, "fork"),
    (4, 2, 2, "fork"),
    (4, 4, 0, ""),
]
_MOST_WORKERS_OF_A_NODE = 4


class _KilledError(Exception):
    """A rank did not answer."""


class _Limit:
    """Observes what the caches hold."""

    def __init__(self, folder: Path, allowed: int) -> None:
        self._folder = folder
        self._allowed = allowed
        self.highest = 0
        self.exceeded: list[int] = []

    def look(self) -> None:
        """Add up the files of each node, each file once however often it is renamed meanwhile."""
        for node in self._folder.glob("node-*"):
            sizes = {}
            for path in node.rglob("*"):
                try:
                    stat = path.stat()
                except OSError:
                    continue
                if path.is_file():
                    sizes[stat.st_ino] = stat.st_size
            held = sum(sizes.values())
            self.highest = max(self.highest, held)
            if held > self._allowed:
                self.exceeded.append(held)

    @contextmanager
    def watched(self) -> Generator[None]:
        """Look all the time while the block runs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                self.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class _Ranks:
    """The processes of one world, which do a step together."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs

    def ask(self, job: Job, line: str) -> None:
        stdin = job.process.stdin
        assert stdin is not None
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except OSError as error:
            raise _KilledError from error

    def answer(self, job: Job) -> dict[str, Any]:
        stdout = job.process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line.endswith("\n"):
            raise _KilledError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def step(self) -> tuple[int, list[int]]:
        """Return the epoch and the samples of one step of all ranks."""
        for job in self.jobs:
            self.ask(job, "step")
        answers = [self.answer(job) for job in self.jobs]
        (epoch,) = {answer["epoch"] for answer in answers}
        return epoch, [number for answer in answers for number in answer["ids"]]

    def state(self) -> Any:
        """Return the state of one rank, after steps that all ranks have done."""
        self.ask(self.jobs[0], "state")
        return self.answer(self.jobs[0])["state"]


def _write(folder: Path) -> int:
    """Write the dataset, and return the size of its largest shard."""
    with MDSWriter(
        out=folder, columns={"id": "int", "body": "bytes"}, compression="zstd:1", size_limit="200kb"
    ) as writer:
        for number in range(_SAMPLES):
            writer.write({"id": number, "body": number.to_bytes(8) + _BODY})
    entries = json.loads((folder / "index.json").read_bytes())["shards"]
    sizes: list[int] = [e["raw_data"]["bytes"] + e["zip_data"]["bytes"] for e in entries]
    return max(sizes)


def _start(
    stack: ExitStack, tmp_path: Path, world: tuple[int, int, int, str], settings: dict[str, Any]
) -> list[Job]:
    ranks, per_node, workers, method = world
    jobs = []
    for rank in range(ranks):
        local = tmp_path / "caches" / f"node-{rank // per_node}"
        own = {"rank": rank, "num_ranks": ranks, "ranks_per_node": per_node, "local": str(local)}
        argument = json.dumps({**settings, **own, "workers": workers, "method": method})
        job = Job(
            "tests.soak.train",
            argument,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "OMP_NUM_THREADS": "1"},
        )
        stack.callback(_close, job)
        jobs.append(job)
    return jobs


def _close(job: Job) -> None:
    job.kill()
    job.process.communicate()


def _kill_some(jobs: list[Job], random: Random) -> None:
    """Kill all ranks, or one and then the others, as launchers do."""
    order = random.sample(jobs, len(jobs))
    order[0].kill()
    time.sleep(random.choice([0.0, 0.0, random.uniform(0, 0.5)]))
    for job in order[1:]:
        job.kill()


def _run(
    ranks: _Ranks, given: list[tuple[int, list[int]]], saved: dict[str, Any], end: float
) -> None:
    """Do steps until the ranks are killed or time is over, at the end of an epoch."""
    while True:
        epoch, ids = ranks.step()
        given.append((epoch, ids))
        if len(given) % _STEPS_BETWEEN_STATES == 0:
            saved.update(state=ranks.state(), steps=len(given))
        is_end = len(given) * GLOBAL_BATCH % _SAMPLES == 0
        if is_end and time.monotonic() > end:
            return


def _check_epochs(given: list[tuple[int, list[int]]]) -> int:
    """Assert that each epoch has each sample exactly once, in one piece; return how many."""
    steps = _SAMPLES // GLOBAL_BATCH
    assert [epoch for epoch, _ in given] == [step // steps for step in range(len(given))]
    for start in range(0, len(given), steps):
        counts = Counter(number for _, ids in given[start : start + steps] for number in ids)
        assert counts == dict.fromkeys(range(_SAMPLES), 1), f"epoch {start // steps}"
    return len(given) // steps


def test_training_killed_on_changing_worlds_gives_each_sample_once(tmp_path: Path) -> None:
    """Each epoch is whole, no cache exceeds its limit, and nothing is left behind."""
    random = chance()
    largest = _write(tmp_path / "remote")
    limit = 12 * largest
    (tmp_path / "temporary").mkdir()
    watch = _Limit(tmp_path / "caches", limit + _MOST_WORKERS_OF_A_NODE * largest)
    before = set(_SHARED.glob("*"))
    given: list[tuple[int, list[int]]] = []
    saved: dict[str, Any] = {"state": None, "steps": 0}
    settings = {
        "shuffle_algo": random.choice(["py1e", "windowed"]),
        "cache_limit": limit,
    }
    say(f"settings: {settings}, {_SAMPLES} samples")
    end = time.monotonic() + 60 * minutes()
    kills, sessions, is_over = 0, list[int](), False
    with WebServer(tmp_path / "remote") as server, watch.watched():
        while not is_over:
            del given[saved["steps"] :]
            world = random.choice(_WORLDS)
            with ExitStack() as stack:
                jobs = _start(
                    stack,
                    tmp_path,
                    world,
                    {**settings, "remote": server.url, "state": saved["state"]},
                )
                sessions += [job.pid for job in jobs]
                moment = random.uniform(3, min(40, 20 * minutes()))
                killer = threading.Timer(moment, _kill_some, (jobs, random))
                if time.monotonic() < end:
                    killer.start()
                try:
                    _run(_Ranks(jobs), given, saved, end)
                    is_over = True
                except _KilledError:
                    kills += 1
                finally:
                    killer.cancel()
                    if killer.ident is not None:
                        killer.join()
            for job in jobs:
                job.wait_for_all()
            done = len(given) * GLOBAL_BATCH / _SAMPLES
            say(f"{kills} kills, {done:.2f} epochs, the last on {world}; cache {watch.highest:,} B")
    assert _check_epochs(given) >= 1
    assert kills > 0
    assert not watch.exceeded, f"{max(watch.exceeded):,} B where {limit:,} are the limit"
    _check_nothing_is_left(tmp_path, before, sessions)


def _check_nothing_is_left(tmp_path: Path, before: set[Path], sessions: list[int]) -> None:
    """Assert that no shared memory, temporary file, or half a download is left."""

    def shared() -> list[Path]:
        ours = tuple(f"{session}" for session in sessions)
        new = set(_SHARED.glob("*")) - before
        return [path for path in new if "streaming" in path.name or path.name.endswith(ours)]

    until(lambda: not shared(), "something was left in shared memory")
    until(lambda: not list((tmp_path / "temporary").iterdir()), "a temporary file was left")
    for node in (tmp_path / "caches").glob("node-*"):
        locked = [path for path in node.rglob("*.tmp") if path.is_file()]
        assert not locked
