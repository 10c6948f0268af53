"""A script that makes many writers which end well, stop or fail, and prints what they left."""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from tests.faults.jobs import COLUMNS, SAMPLES

from streaming_core import MDSWriter, register_store
from streaming_core.errors import OutputBusyError, StoreError
from streaming_core.testing import Fault, FaultStore, MemoryStore, Raise

__all__: list[str] = []


def _finish(root: Path, number: int) -> None:
    with MDSWriter(out=root / str(number), columns=COLUMNS, size_limit=200) as writer:
        for sample in SAMPLES[:10]:
            writer.write(sample)


def _abort(root: Path, number: int) -> None:
    with (
        suppress(KeyError),
        MDSWriter(out=root / str(number), columns=COLUMNS, size_limit=200) as writer,
    ):
        for sample in SAMPLES[:10]:
            writer.write(sample)
        raise KeyError


def _fail(root: Path, number: int) -> None:
    broken = Fault(Raise(StoreError("scripted")), verb="put", key="shard.*", times=None)
    register_store("faulty", lambda _: FaultStore(MemoryStore(), [broken]))
    with suppress(StoreError):
        writer = MDSWriter(
            out=(root / str(number), "faulty://"), keep_local=True, columns=COLUMNS, retry=1
        )
        writer.write(SAMPLES[0])
        writer.finish()


def _refuse(root: Path, number: int) -> None:
    with MDSWriter(out=root / str(number), columns=COLUMNS), suppress(OutputBusyError):
        MDSWriter(out=root / str(number), columns=COLUMNS, exist_ok=True)


def _state() -> dict[str, object]:
    gc.collect()
    own = Path("/proc/self")
    opened = [str(link.readlink()) for link in own.glob("fd/*") if link.is_symlink()]
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        # Of what lists the folder, and of nothing else, the descriptor comes and goes.
        "descriptors": sorted(name for name in opened if not name.startswith("/proc/")),
        "shared": [line for line in (own / "maps").read_text().splitlines() if "/shm/" in line],
        "temporary": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
    }


def main() -> None:
    """Make writers below the given folder, with the temporary folder beside it."""
    root = Path(sys.argv[1])
    ways = (_finish, _abort, _fail, _refuse)
    for number, way in enumerate(ways):
        way(root, number)
    before = _state()
    for number in range(len(ways), 80):
        ways[number % len(ways)](root, number)
    print(json.dumps([before, _state()]))  # noqa: T201 - for the test


if __name__ == "__main__":
    main()
