"""A data set of 100,000 shards and 1.3 billion samples opens at once and costs little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streaming_core import MDSWriter

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

_SHARDS, _SAMPLES = 100_000, 13_000

_STATUS = """
def resident(field, pid="self"):
    with open(f"/proc/{pid}/{field.split()[0]}") as file:
        for line in file:
            if line.startswith(field.split()[1]):
                return int(line.split()[1]) / 1024
"""
_FIRST = (
    _STATUS
    + """
import json, sys, time
before = resident("status VmHWM")
from streaming_core import StreamingDataset
start = time.process_time()
dataset = StreamingDataset(
    local=sys.argv[1], batch_size=256, shuffle=True, shuffle_algo="windowed"
)
state = dataset.state_dict()
state["sample_in_epoch"] = int(sys.argv[2])
dataset.load_state_dict(state)
sample = next(iter(dataset))
print(json.dumps({
    "seconds": time.process_time() - start,
    "megabytes": resident("status VmHWM") - before,
    "samples": len(dataset),
    "torch": "torch" in sys.modules,
}))
"""
)
_WORKERS = (
    _STATUS
    + """
import json, os, sys
from streaming_core import StreamingDataset, World
dataset = StreamingDataset(
    local=sys.argv[1], batch_size=256, shuffle=True, shuffle_algo="windowed",
    world=World(0, 1, 1, 0, 64), predownload=0,
)
stop_read, stop_write = os.pipe()
said_read, said_write = os.pipe()
children = []
for worker in range(64):
    pid = os.fork()
    if not pid:
        os.close(stop_write)
        dataset._streaming_engine.named_world = World(0, 1, 1, worker, 64)
        next(iter(dataset))
        os.write(said_write, b"x")
        os.read(stop_read, 1)
        os._exit(0)
    children.append(pid)
os.close(said_write)
said = 0
while said < 64:
    got = os.read(said_read, 64)
    if not got:
        break
    said += len(got)
private = [resident("smaps_rollup Private_Dirty", pid) for pid in children]
os.close(stop_write)
for pid in children:
    os.waitpid(pid, 0)
print(json.dumps({"said": said, "private": sum(private) / 64}))
"""
)


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of so many shards, which are all the same file."""
    root = tmp_path_factory.mktemp("huge")
    with MDSWriter(out=root / "one", columns={"x": "uint8"}, size_limit=None) as writer:
        writer.write_batch({"x": np.arange(_SAMPLES, dtype=np.uint8)})
    (entry,) = json.loads((root / "one" / "index.json").read_text())["shards"]
    folder = root / "all"
    folder.mkdir()
    shards = []
    for number in range(_SHARDS):
        basename = f"shard.{number:06d}.mds"
        if number % 50_000 == 0:  # a file can have only so many names
            source = folder / basename
            source.write_bytes((root / "one" / "shard.00000.mds").read_bytes())
        else:
            (folder / basename).hardlink_to(source)
        shards.append({**entry, "raw_data": {**entry["raw_data"], "basename": basename}})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder


def _run(code: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("position", [0, _SHARDS * _SAMPLES // 2])
def test_the_first_sample_comes_at_once(huge: Path, position: int) -> None:
    """From the beginning and from the middle: below 2 s of work and 200 MB, and without torch."""
    answer = _run(_FIRST, str(huge), str(position))
    assert answer["samples"] == _SHARDS * _SAMPLES
    assert answer["seconds"] < 2
    assert answer["megabytes"] < 200
    assert not answer["torch"]


def test_workers_share_what_is_not_theirs(huge: Path) -> None:
    """Each of 64 forked workers adds a few tens of megabytes, whatever the index takes."""
    answer = _run(_WORKERS, str(huge))
    assert answer["said"] == 64
    assert answer["private"] < 40
