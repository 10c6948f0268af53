"""A script that makes many writers which end well, stop or fail, and prints what they left."""

from __future__ import annotations

import gc
import json
import os
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
    with MDSWriter(out=root / str(number), columns=COLUMNS, size_limit=400) as writer:
        for sample in SAMPLES[:30]:
            writer.write(sample)


def _abort(root: Path, number: int) -> None:
    with (
        suppress(KeyError),
        MDSWriter(out=root / str(number), columns=COLUMNS, size_limit=400) as writer,
    ):
        for sample in SAMPLES[:30]:
            writer.write(sample)
        raise KeyError


def _fail(root: Path, number: int) -> None:
    broken = Fault(Raise(StoreError("scripted")), verb="put", key="shard.*", times=None)
    register_store("faulty", lambda _: FaultStore(MemoryStore(), [broken]))
    with suppress(StoreError):
        writer = MDSWriter(out=(root / str(number), "faulty://"), keep_local=True, columns=COLUMNS)
        writer.write(SAMPLES[0])
        writer.finish()


def _refuse(root: Path, number: int) -> None:
    with MDSWriter(out=root / str(number), columns=COLUMNS), suppress(OutputBusyError):
        MDSWriter(out=root / str(number), columns=COLUMNS, exist_ok=True)


def _state() -> dict[str, object]:
    gc.collect()
    shared = Path("/dev/shm")  # noqa: S108 - looked at only
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "descriptors": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()),
        "temporary": sorted(os.listdir(tempfile.gettempdir())),  # noqa: PTH208 - names
        "shared": sorted(os.listdir(shared)) if shared.exists() else [],  # noqa: PTH208
    }


def _descriptors() -> list[int]:
    with os.scandir("/proc/self/fd") as entries:
        found = [int(entry.name) for entry in entries]
    return [fd for fd in found if Path(f"/proc/self/fd/{fd}").exists()]


def main() -> None:
    """Make writers below the given folder, with the temporary folder beside it."""
    root = Path(sys.argv[1])
    ways = (_finish, _abort, _fail, _refuse)
    for number, way in enumerate(ways):
        way(root, number)
    before = _state()
    for number in range(len(ways), 200):
        ways[number % len(ways)](root, number)
    print(json.dumps([before, _state()]))  # noqa: T201 - for the test


if __name__ == "__main__":
    main()
