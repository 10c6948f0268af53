"""What a scenario found, and how it is said; needs the standard library only."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Found", "big_array", "launch", "memory_against", "paused", "raised", "rows"]

_DEADLINE_SECONDS = 120


class Found(NamedTuple):
    """Whether the promise held, and what was seen."""

    kept: bool
    text: str


def rows(ids: Iterable[int], wanted: Iterable[int]) -> Found:
    """Compare the rows that came with those that should have come, each once."""
    came, should = Counter(int(i) for i in ids), Counter(wanted)
    lost, extra = (should - came).total(), (came - should).total()
    said = [f"{came.total():,} rows for {should.total():,}"]
    said += [f"{lost:,} lost"] if lost else []
    said += [f"{extra:,} too many"] if extra else []
    return Found(not lost and not extra, ", ".join(said))


def raised(error: BaseException) -> str:
    """Name an error by its type and the beginning of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def paused(batches: Iterable[Any], stop: int, seconds: float = 0.0) -> Iterator[Any]:
    """Yield `stop` batches, and wait after the last so that workers get ahead."""
    for number, batch in enumerate(itertools.islice(batches, stop), 1):
        if number == stop:
            time.sleep(seconds)
        yield batch


def launch(side: str, name: str, data: Path, work: Path, ranks: int = 2) -> list[Any]:
    """Run a function of a side once for each rank, as a launcher would; return what each gave."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    child = Path(__file__).with_name("_child.py")
    outs = [work / f"{name}.{rank}.json" for rank in range(ranks)]
    running = [
        subprocess.Popen(
            [sys.executable, child, side, name, data, work, out],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    try:
        said = [process.communicate(timeout=_DEADLINE_SECONDS)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    found: list[Any] = []
    for process, out, text in zip(running, outs, said, strict=True):
        if not out.exists():  # how it ends afterwards is not what is asked about
            lines = [line for line in text.splitlines() if "Error" in line] or text.splitlines()
            raise RuntimeError(lines[-1] if lines else f"exit status {process.returncode}")
        found.append(json.loads(out.read_text()))
    return found


def big_array(work: Path) -> Path:
    """Write a JSON array of some 120 MB and return its path."""
    path = work / "big.json"
    text = "x" * 100
    with path.open("w") as file:
        for i in range(900_000):
            file.write(f'{"," if i else "["}{{"id": {i}, "text": "{text}"}}')
        file.write("]")
    return path


def memory_against(path: Path, action: Callable[[], object]) -> Found:
    """Compare the memory of its own that the process grew by, at most, with the size of a file."""
    before, most, done = _own_bytes(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], _own_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        action()
    finally:
        done.set()
        watching.join()
    times = (most[0] - before) / path.stat().st_size
    return Found(times < 1, f"{times:.1f} x the file in memory for its first rows")


def _own_bytes() -> int:
    """Return what the process holds, mapped files left out."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) << 10
