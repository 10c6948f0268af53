"""What this machine allows: the same files by number and size through plain system calls.

Options: `what` is `files` (open, write, fsync, close) or `zstd` (compress whole shards in memory,
write nothing); `num_threads` share the files.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard
from _work import make_work

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from _spec import Task, Timed
    from _work import Work

__all__ = ["prepare"]


class _Files:
    distributions: tuple[str, ...] = ("streaming-core",)

    def __init__(self, work: Work, task: Task, shards: list[memoryview], num_threads: int) -> None:
        self.payload_bytes = work.payload_bytes
        self._num_samples = task.num_samples
        self._level = task.zstd_level
        self._shards = shards
        self._num_threads = num_threads

    def run(self, out: Path) -> None:
        out.mkdir()
        jobs = [(out / f"{number:05}", shard) for number, shard in enumerate(self._shards)]
        _share(_write_file, jobs, self._num_threads)

    def count(self, out: Path) -> int:
        sizes = sorted(path.stat().st_size for path in out.iterdir())
        assert sizes == sorted(map(len, self._shards))
        return self._num_samples


class _Zstd(_Files):
    distributions: tuple[str, ...] = ("streaming-core", "zstandard")

    def run(self, out: Path) -> None:
        out.mkdir()
        assert self._level is not None
        jobs = [(self._level, shard) for shard in self._shards]
        _share(_compress, jobs, self._num_threads)

    def count(self, out: Path) -> int:
        assert not any(out.iterdir())
        return self._num_samples


def _share(
    work: Callable[[Any, memoryview], None], jobs: list[tuple[Any, memoryview]], num_threads: int
) -> None:
    with ThreadPoolExecutor(num_threads) as pool:
        for done in [pool.submit(work, *job) for job in jobs]:
            done.result()


def _write_file(path: Path, shard: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        rest = shard
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compress(level: int, shard: memoryview) -> None:
    zstandard.ZstdCompressor(level=level).compress(shard)


def _write_ours(work: Work, compression: str | None, out: Path) -> list[Path]:
    """Let the project write the data; its files are what the system calls have to equal."""
    arguments: dict[str, Any] = {} if compression is None else {"compression": compression}
    with MDSWriter(
        out=str(out), columns=dict(work.columns), size_limit=1 << 26, **arguments
    ) as writer:
        for batch in work.batches():
            writer.write_batch(batch)
    return sorted(path for path in out.rglob("*") if path.is_file())


def prepare(task: Task, options: dict[str, Any], _shared: Path) -> Timed:
    """Write the data once to learn the files, then keep only what `run` needs."""
    work = make_work(task)
    num_threads: int = options["num_threads"]
    with tempfile.TemporaryDirectory() as folder:
        if options["what"] == "zstd":
            files = _write_ours(work, None, Path(folder) / "out")
            shards = [memoryview(path.read_bytes()) for path in files]
            return _Zstd(work, task, shards, num_threads)
        files = _write_ours(work, task.compression, Path(folder) / "out")
        return _Files(work, task, _slices([path.stat().st_size for path in files]), num_threads)


def _slices(sizes: list[int]) -> list[memoryview]:
    """One buffer per size, all out of one block: what the bytes are does not matter to a disk."""
    block = memoryview(np.random.default_rng(0).bytes(2 * max(sizes)))
    starts = (number % 7 * (max(sizes) // 7) for number in range(len(sizes)))
    return [block[start : start + size] for start, size in zip(starts, sizes, strict=True)]
