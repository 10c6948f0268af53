"""A large conversion that is killed again and again loses nothing."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from tests.soak.common import Job, chance, gigabytes, say
from tests.soak.convert import MEAN_BYTES, sample

from streaming_core import LocalDataset

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.soak, pytest.mark.kill]

_KILLS = 20
_LOOK_SECONDS = 0.005


def _bytes_below(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size
        except OSError:
            continue  # it was renamed meanwhile
    return found


def test_a_large_conversion_killed_at_random_moments_ends_whole(tmp_path: Path) -> None:
    """Every run goes on behind what was safe, and in the end each sample is there, in order.

    The kills come when some of the output was written, and a moment more has passed.
    """
    count = max(1000, round(gigabytes() * 1e9 / MEAN_BYTES))
    total = count * MEAN_BYTES
    out = tmp_path / "out"
    assert shutil.disk_usage(tmp_path).free > 1.2 * total, "the disk is too small"
    random = chance()
    kills = safe = 0
    while True:
        before = _bytes_below(out)
        job = Job("tests.soak.convert", str(out), str(count), stdout=subprocess.PIPE)
        stdout = job.process.stdout
        assert stdout is not None
        found = int(stdout.readline())
        assert found >= safe, "samples that were safe are not any more"
        safe = found
        stop = random.uniform(0, 2 * total / _KILLS)
        while job.process.poll() is None and _bytes_below(out) - before < stop:
            time.sleep(_LOOK_SECONDS)
        time.sleep(random.uniform(0, 0.05))
        job.kill()
        job.wait_for_all()
        stdout.close()
        code = job.process.returncode
        assert code in {0, -9}
        if code == 0:
            break
        kills += 1
        written = _bytes_below(out) / 1e9
        say(f"kill {kills}: {safe:,} of {count:,} samples were safe, {written:.2f} GB written")
    assert kills > 0
    say("finished; every sample is compared")
    dataset = LocalDataset(out)
    assert len(dataset) == count
    for number in range(count):
        assert dataset[number] == sample(number), f"sample {number} is not what was written"
    names = {path.name for path in out.iterdir() if not path.name.startswith("shard.")}
    assert names == {"index.json"}
    say(f"{count:,} samples are whole after {kills} kills")
    shutil.rmtree(out)
