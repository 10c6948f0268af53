"""Runs scenarios and compares their figures with the recorded ones."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.counts.material import make, objects
from tests.counts.server import REREAD, CountingServer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = ["RECORD", "Workplace", "differences", "workplace"]

ROOT: Final = Path(__file__).parents[2]
RECORD: Final = Path(__file__).with_name("recorded.json")
COMMAND: Final = "python -m tests.counts.record"
_SECONDS: Final = 120
_KEPT: Final = ("PATH", "SYSTEMROOT", "TMPDIR", "LD_LIBRARY_PATH")
"""Environment variables that scenarios see; the others could change what is requested."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """The datasets of all scenarios."""

    folder: Path
    served: Mapping[str, bytes]

    def run(self, name: str, *, patch: str = "") -> dict[str, int]:
        """Run a scenario in a new process and return its figures.

        `patch` is Python code that runs first, to show that a regression is found.
        """
        code = f"from tests.counts.scenarios import main\n{patch}\nmain()"
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as own,
            CountingServer(self.served) as web,
        ):
            kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
            done = subprocess.run(
                [sys.executable, "-c", code, name, own, str(self.folder / "data"), web.url],
                cwd=ROOT,
                env={**kept, "HOME": own, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"scenario {name}:\n{done.stderr}"
            figures: dict[str, int] = json.loads(done.stdout)
            return figures | web.figures


@contextmanager
def workplace() -> Generator[Workplace]:
    """Make the datasets, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="counts-") as folder:
        data = Path(folder, "data")
        make(data)
        yield Workplace(Path(folder), objects(data))


# --- comparison -----------------------------------------------------------------------------------

_ROUGH: Final = frozenset({"calls of open", "threads", REREAD})
"""Figures that depend on timing. A pool starts no thread while another one is idle, checked shards
are noted together if they arrive together, and the writer rereads its journal as time passes. What
is recorded is the most; up to twice as much passes, and fewer is nothing to record."""
_MEMORY: Final = frozenset({"bytes allocated at most", "memory blocks kept"})
_TOLERANCES: Final = {
    "bytes allocated at most": 0.10,
    "memory blocks kept": 0.10,
    "modules of our own": 0.05,
}
"""By how much figures may differ. In 10 runs with the same Python, memory differed by up to 2 %."""
_OTHER_PYTHON: Final = 0.5
"""By how much memory may differ with another minor version of Python than the recorded one."""
_SLACK: Final = {"memory blocks kept": 200}
"""What a figure may differ by in any case."""
_ROUGH_SLACK: Final = 4
_PARQUET: Final = 0.02
"""By how much bytes of Parquet files may differ: their footers depend on the version of pyarrow."""


def differences(name: str, recorded: Mapping[str, int], got: Mapping[str, int]) -> list[str]:
    """Return a sentence for each figure of a scenario that is not as recorded.

    Example:
        >>> differences("cold_epoch", {"GET requests": 10}, {"GET requests": 10})
        []
        >>> (found,) = differences("cold_epoch", {"GET requests": 10}, {"GET requests": 12})
        >>> found.partition(". ")[0]
        'cold_epoch, GET requests: recorded 10, got 12, which is more: a regression'
    """
    found: list[str] = []
    for figure in sorted({*recorded, *got}):
        before, now = recorded.get(figure, 0), got.get(figure, 0)
        room = _room(name, figure, before)
        if now > before + room:
            found.append(
                f"{name}, {figure}: recorded {before:,}, got {now:,}, which is more: a regression. "
                f"Find out why; if it is worth it, record again: {COMMAND} {name}"
            )
        elif now < before - room and figure not in _ROUGH:
            found.append(
                f"{name}, {figure}: recorded {before:,}, got {now:,}, which is fewer: an "
                f"improvement. Lower the record, so that it stays: {COMMAND} {name}"
            )
    return found


def _room(name: str, figure: str, before: int) -> float:
    """Return by how much a figure may differ from what was recorded."""
    if figure in _ROUGH:
        return before + _ROUGH_SLACK
    share = _TOLERANCES.get(figure, 0.0)
    if figure in _MEMORY and not _is_recorded_python():
        share = _OTHER_PYTHON
    if "parquet" in name and figure.startswith("bytes of"):
        share = _PARQUET
    return max(share * before, _SLACK.get(figure, 0))


def _is_recorded_python() -> bool:
    """Tell whether this Python has the minor version that the figures were recorded with."""
    if not RECORD.exists():
        return True
    recorded: str = json.loads(RECORD.read_text())["recorded with"]["python"]
    return recorded.split(".")[:2] == platform.python_version().split(".")[:2]
