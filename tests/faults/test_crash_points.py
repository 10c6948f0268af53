"""A kill at each system call that changes the disk, in turn, leaves the old state or the new."""

from __future__ import annotations

from shutil import copytree
from typing import TYPE_CHECKING

import pytest
from tests.faults.forks import Inject, Server
from tests.faults.jobs import JOBS, check_consistent, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.kill, pytest.mark.process]

_CALLS = ("fsync", "mkdir", "rename", "rmdir", "unlink", "write")
_MOST = 40
"""More calls of one kind than a small conversion makes in a thread."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return a parent whose children die at the call they are armed for, before it acts."""
    with Server(Inject("signal=KILL", _CALLS)) as started:
        yield started


@pytest.mark.parametrize("name", ["small", "small-append", "small-pair"])
@pytest.mark.parametrize("call", _CALLS)
def test_killed_at_each_call_the_writer_goes_on(
    tmp_path: Path, server: Server, name: str, call: str
) -> None:
    """For every n, until the conversion survives: nothing is torn and resuming gives the whole."""
    job = JOBS[name]
    job.prepare(tmp_path / "base")
    before = tree(tmp_path / "base")
    copytree(tmp_path / "base", tmp_path / "whole")
    job.run(tmp_path / "whole")
    wanted = tree(tmp_path / "whole")
    killed = {"main": 0, "worker": 0, "request": 0}
    for thread in killed:
        for nth in range(1, _MOST):
            root = tmp_path / f"{thread}-{nth}"
            copytree(tmp_path / "base", root)
            outcome = server.run(name, root, fail=(call, nth, thread))
            check_consistent(job, root, before, wanted)
            if outcome["code"] == 0:
                break
            assert outcome["code"] == -9, outcome["error"]
            killed[thread] += 1
            if not job.is_over(root, wanted):
                job.run(root)
            left = tree(root)
            if job.appends:
                left.pop("out/.writing", None)
            assert left == wanted, f"killed at {call} {nth} of the {thread} thread"
        else:
            pytest.fail(f"a small conversion makes {_MOST} times {call}")
    assert killed["main"] > 0
    assert (killed["worker"] > 0) == (call in {"fsync", "rename", "write"})
    assert (killed["request"] > 0) == (call in {"fsync", "unlink"})
