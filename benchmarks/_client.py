"""What bare clients are asked to do: whole shards into files, or many small ranges."""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from _remote import Served
from _spec import Outcome
from _truth import shared_data, truth_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _spec import Task, Timed
    from _work import Work

__all__ = ["Client", "prepared"]

_FILE_THREADS = 4
_RANGE_THREADS = 8
_RANGE_BYTES = 16 << 10


class Client(ABC):
    """One client of the bucket, made anew for each run; threads share it."""

    distributions: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, endpoint: str) -> None: ...

    @abstractmethod
    def fetch(self, key: str, path: Path) -> None:
        """Bring an object into a file."""

    @abstractmethod
    def read(self, key: str, start: int, stop: int) -> bytes:
        """Return some bytes of an object."""


class _Files:
    def __init__(
        self, folder: Path, task: Task, payload_bytes: int, make: Callable[[str], Client]
    ) -> None:
        index = json.loads((folder / "index.json").read_bytes())
        files = [shard["raw_data"] for shard in index["shards"]]
        self._sizes = {file["basename"]: int(file["bytes"]) for file in files}
        self._folder = folder
        self._task = task
        self._served = Served(folder.parent, task.latency_ms or 0)
        self._make = make
        self.payload_bytes = payload_bytes
        self.distributions = make(self._served.endpoint).distributions

    def run(self, out: Path) -> Outcome:
        before = self._served.traffic()
        out.mkdir(exist_ok=True)
        start = time.perf_counter()
        num_done = self._work(self._make(self._served.endpoint), out)
        seconds = time.perf_counter() - start
        after = self._served.traffic()
        requests, nbytes = after.requests - before.requests, after.nbytes - before.nbytes
        return Outcome(num_done, seconds, requests, nbytes)

    def _work(self, client: Client, out: Path) -> int:
        with ThreadPoolExecutor(_FILE_THREADS) as pool:
            list(
                pool.map(
                    lambda name: client.fetch(f"{self._folder.name}/{name}", out / name),
                    self._sizes,
                )
            )
        return self._task.num_samples

    def count(self, out: Path) -> None:
        """Every file has to be there, whole."""
        assert {path.name: path.stat().st_size for path in out.iterdir()} == self._sizes


class _Ranges(_Files):
    def __init__(
        self,
        folder: Path,
        task: Task,
        payload_bytes: int,
        make: Callable[[str], Client],
        *,
        num_ranges: int,
    ) -> None:
        super().__init__(folder, task, payload_bytes, make)
        self.payload_bytes = num_ranges * _RANGE_BYTES
        draw = random.Random(task.seed)
        names = list(self._sizes)
        self._picks = [
            (name, draw.randrange(max(1, self._sizes[name] - _RANGE_BYTES)))
            for name in draw.choices(names, k=num_ranges)
        ]

    def _work(self, client: Client, out: Path) -> int:
        del out

        def read(pick: tuple[str, int]) -> int:
            name, start = pick
            stop = min(start + _RANGE_BYTES, self._sizes[name])
            return len(client.read(f"{self._folder.name}/{name}", start, stop))

        with ThreadPoolExecutor(_RANGE_THREADS) as pool:
            return len(list(pool.map(read, self._picks)))

    def count(self, out: Path) -> None:
        """Compare some of the ranges with the files."""
        del out
        client = self._make(self._served.endpoint)
        for name, start in self._picks[:20]:
            stop = min(start + _RANGE_BYTES, self._sizes[name])
            with (self._folder / name).open("rb") as file:
                file.seek(start)
                right = file.read(stop - start)
            assert client.read(f"{self._folder.name}/{name}", start, stop) == right


def prepared(
    task: Task,
    shared: Path,
    write: Callable[[Work, Path], None],
    make: Callable[[str], Client],
    num_ranges: int | None,
) -> Timed:
    """Return what times a client on the shards of a task."""
    payload_bytes = truth_of(task, shared).payload_bytes
    folder = shared_data(task, shared, "mds", write)
    kind = _Files if num_ranges is None else partial(_Ranges, num_ranges=num_ranges)
    return kind(folder, task, payload_bytes, make)
