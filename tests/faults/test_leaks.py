"""Writers leave nothing behind in their process or on the machine, however they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.jobs import JOBS

_HOME = Path(__file__).parents[2]


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")
def test_many_writers_leave_no_thread_descriptor_or_file(tmp_path: Path) -> None:
    """Finished, aborted, failed and refused ones: the process is afterwards as it was before."""
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.leaks", str(tmp_path / "out")],
        cwd=_HOME,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert after == before
    assert before["threads"] == ["MainThread"]
    assert before["temporary"] == []
    assert not [path for path in tmp_path.rglob(".*") if path.name.endswith(".tmp")]


@pytest.mark.kill
def test_a_killed_writer_leaves_nothing_outside_its_output(tmp_path: Path) -> None:
    """No lock file, no named shared memory, nothing in the temporary folder."""
    (tmp_path / "tmp").mkdir()
    shared = Path("/dev/shm")  # noqa: S108 - looked at only
    before = set(shared.iterdir()) if shared.exists() else set()
    script = (
        "import os, sys; from pathlib import Path; from tests.faults.jobs import JOBS, SAMPLES\n"
        "left = len(SAMPLES) - 5\n"
        "def tick():\n"
        "    global left\n"
        "    left -= 1\n"
        "    left or os.kill(os.getpid(), 9)\n"
        "JOBS['pair'].run(Path(sys.argv[1]), tick)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "root")],
        cwd=_HOME,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        check=False,
    )
    assert done.returncode == -9
    assert list((tmp_path / "tmp").iterdir()) == []
    if shared.exists():
        ours = {path for path in set(shared.iterdir()) - before if "streaming" in path.name}
        assert ours == set()
    assert JOBS["pair"].run(tmp_path / "root") > 0
