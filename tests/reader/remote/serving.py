"""Data sets behind web servers, and processes that read them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.web import Asked, Said

from streaming_core import MDSWriter, StreamingDataset

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Throttle", "dataset", "read", "run_processes", "write"]

_ROOT = Path(__file__).parents[3]


def write(folder: Path, samples: int, *, size: int = 100, shard: int = 1000) -> None:
    """Write samples of about `size` bytes to shards of about `shard` bytes."""
    with MDSWriter(
        out=str(folder), columns={"id": "int", "body": "bytes"}, size_limit=shard, checksums=True
    ) as out:
        for i in range(samples):
            out.write({"id": i, "body": (i % 251).to_bytes(1, "little") * size})


def dataset(url: str, local: Path, **settings: Any) -> StreamingDataset:
    """Return a data set of one stream."""
    return StreamingDataset(remote=url, local=str(local), batch_size=8, **settings)


def read(url: str, local: Path, **settings: Any) -> list[int]:
    """Return the ids of an epoch."""
    return [sample["id"] for sample in dataset(url, local, **settings)]


class Throttle:
    """Lets so many requests a second through, and refuses the others for a while."""

    def __init__(
        self, per_second: float, *, status: int = 429, retry_after: str = "1", burst: float = 5.0
    ) -> None:
        self._per_second = per_second
        self._said = Said(status, b"slow down", {"Retry-After": retry_after} if retry_after else {})
        self._burst = burst
        self._tokens, self._last = burst, time.monotonic()
        self._guard = threading.Lock()
        self.refused = 0
        self.answered = 0

    def __call__(self, asked: Asked) -> Said | None:
        """Return the refusal, or None."""
        del asked
        with self._guard:
            now = time.monotonic()
            self._tokens += (now - self._last) * self._per_second
            self._tokens, self._last = min(self._tokens, self._burst), now
            if self._tokens < 1:
                self.refused += 1
                return self._said
            self._tokens -= 1
            self.answered += 1
            return None


def _kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


def run_processes(
    code: str, arguments: Sequence[Sequence[str]], *, seconds: float = 240.0
) -> list[Any]:
    """Run Python code in processes at once; return what each prints, as JSON.

    All have imported what they need before any goes on. Where the code waits for a line of input,
    all have printed before any ends.
    """
    lead = "import sys, json\nfrom tests.reader.remote.serving import *\n"
    lead += "print('ready', flush=True); sys.stdin.readline()\n"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", lead + code, *map(str, each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        for each in arguments
    ]
    out: list[Any] = []
    late = threading.Timer(seconds, _kill, [processes])
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        late.start()
        # None may end, as it does when its input ends, before all have printed: they are one job.
        printed = [process.stdout.readline() for process in processes if process.stdout is not None]
        for process, line in zip(processes, printed, strict=True):
            rest, _ = process.communicate()
            assert process.returncode == 0
            out.append(json.loads(line + rest))
    finally:
        late.cancel()
        for process in processes:
            process.kill()
            process.communicate()
    return out
