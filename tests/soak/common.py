"""What the soak tests share: their sizes, their progress, and what processes leave behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.reader.waiting import until

__all__ = [
    "ROOT",
    "Job",
    "Random",
    "chance",
    "gigabytes",
    "minutes",
    "say",
]

ROOT: Final = Path(__file__).parents[2]
Random = random.Random


def gigabytes() -> float:
    """Return how much a large conversion writes."""
    return float(os.environ.get("STREAMING_SOAK_GB", "20"))


def minutes() -> float:
    """Return how long a long run takes."""
    return float(os.environ.get("STREAMING_SOAK_MINUTES", "60"))


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201 - `make soak` shows it


def chance() -> Random:
    """Return random numbers, whose seed is printed, so that a failed run can be repeated."""
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(1 << 32)))
    say(f"FAULTS_SEED={seed}")
    return Random(seed)


def processes_of(session: int) -> list[int]:
    """Return the living processes of a session, those that merely wait to be reaped left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


class Job:
    """A process in a session of its own, in which its children stay."""

    def __init__(self, module: str, *arguments: str, **options: Any) -> None:
        """Start `python -m module` with arguments; `options` are as for `Popen`."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            start_new_session=True,
            text=True,
            **options,
        )

    @property
    def pid(self) -> int:
        """The process, and its session."""
        return self.process.pid

    def kill(self) -> None:
        """Kill the process alone: its children have to notice."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait_for_all(self) -> None:
        """Wait until neither the process nor any child of it is left."""
        self.process.wait()
        until(lambda: not processes_of(self.pid), "children of an ended process live on")
