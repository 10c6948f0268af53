"""Killed at any moment, a job leaves nothing that the next one meets; open ones cost nothing."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.reader.waiting import until

from streaming_core import LocalDataset, StreamingDataset

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")

_JOB = """
import json, multiprocessing, os, sys
from streaming_core import StreamingDataLoader, StreamingDataset

def main():
    remote, local, method = sys.argv[1:4]
    dataset = StreamingDataset(
        remote=remote, local=local, batch_size=4, shuffle=True, cache_limit="1mb"
    )
    loader = StreamingDataLoader(
        dataset, batch_size=4, num_workers=2, multiprocessing_context=method
    )
    seen = []
    for batch in loader:
        seen += batch["id"].tolist()
        children = [child.pid for child in multiprocessing.active_children()]
        print(json.dumps({"seen": len(seen), "children": children}), flush=True)
    print(json.dumps({"all": sorted(seen)}), flush=True)

if __name__ == "__main__":
    main()
"""
_SHM = Path("/dev/shm")  # noqa: S108 - looked into, not written to


def _shared_memory() -> set[str]:
    """Return the names in shared memory, those of semaphores left out: others make some all day."""
    return {path.name for path in _SHM.glob("*") if not path.name.startswith("sem.")}


def _is_gone(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    return "State:\tZ" in status  # dead, and its new parent has not looked yet


@pytest.mark.kill
@pytest.mark.timeout(1200)  # eight processes that each import torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_trainer_leaves_nothing(ids_folder: Path, tmp_path: Path, method: str) -> None:
    """No process, no shared memory, no temporary file, no lock; and the next job reads it all."""
    script = tmp_path / "job.py"
    script.write_text(_JOB)
    command = [sys.executable, str(script), str(ids_folder), str(tmp_path / "cache"), method]
    # A folder of its own, because others on this machine use the common one at the same time.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    before = _shared_memory()
    children: list[int] = []
    new: set[str] = set()  # those of this job, and of others that ran beside it
    for stop_after in (4, 44, 88):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
            for line in job.stdout or ():
                told = json.loads(line)
                new |= _shared_memory() - before
                children += told.get("children", [])
                if told.get("seen", 0) >= stop_after:
                    os.kill(job.pid, signal.SIGKILL)
                    break
    until(lambda: all(map(_is_gone, children)), "the workers of a killed trainer live on")
    until(lambda: not list(temporary.iterdir()), "a temporary file was left")
    until(lambda: not new & _shared_memory(), "something was left in shared memory")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout.splitlines()[-1])["all"] == list(range(101))
    assert not list((tmp_path / "cache" / ".streaming" / "parts").iterdir())
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_open_data_sets_cost_no_descriptors(ids_folder: Path, tmp_path: Path) -> None:
    """Two hundred at once; and what reading took goes with them."""
    StreamingDataset(local=ids_folder, batch_size=4)[0]  # whatever is loaded once
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    opened = [StreamingDataset(local=ids_folder, batch_size=4) for _ in range(100)]
    opened += [
        StreamingDataset(remote=ids_folder, local=tmp_path / "cache", batch_size=4)
        for _ in range(100)
    ]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    for dataset in opened:
        assert dataset[50]["id"] == 50
    assert [s["id"] for s in LocalDataset(ids_folder)] == list(range(101))
    del dataset, opened
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
