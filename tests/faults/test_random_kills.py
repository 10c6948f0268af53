"""SIGKILL at any moment loses no durable sample, tears no file, and hinders no later run."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.faults.forks import Outcome, Server
from tests.faults.jobs import JOBS, SAMPLES, check_consistent, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kill

_KILLS = 9
"""For each of the seven kinds of conversion, 63 in all."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return the parent of the conversions."""
    with Server() as started:
        yield started


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rows", marks=pytest.mark.essential),
        *("rows-zstd", "batches", "batches-zstd", "append", "part", "pair"),
    ],
)
def test_a_conversion_killed_again_and_again_ends_as_if_it_never_was(
    tmp_path: Path, server: Server, name: str
) -> None:
    """After each kill all that is there is whole, and the last run leaves the uninterrupted tree.

    Every second kill comes at a share of the time of an uninterrupted run, the others when the
    child has told of a number of writes. A killed conversion is resumed, and perhaps killed again.
    """
    job = JOBS[name]
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"FAULTS_SEED={seed}")  # noqa: T201 - to repeat a failed run
    chance = random.Random(f"{seed} {name}")  # noqa: S311 - repeatable, not secret
    job.prepare(tmp_path / "whole")
    before = tree(tmp_path / "whole")
    whole = server.run(name, tmp_path / "whole")
    assert whole["code"] == 0, whole["error"]
    wanted = tree(tmp_path / "whole")

    kills = rounds = 0
    while kills < _KILLS:
        rounds += 1
        assert rounds < 20 * _KILLS, "the kills come too late"
        root = tmp_path / f"killed-{rounds}"
        job.prepare(root)
        while not job.is_over(root, wanted):
            outcome = server.run(name, root, **_moment(chance, whole, by_time=rounds % 2 == 0))
            check_consistent(job, root, before, wanted)
            if outcome["code"] == 0:
                break
            assert outcome["code"] == -9, outcome["error"]
            kills += 1
            if chance.random() < 0.5:
                assert job.is_over(root, wanted) or job.run(root) <= len(SAMPLES)
                break
        left = tree(root)
        if job.appends:
            # A kill may leave the empty folder of the notes, which the next append removes.
            left.pop("out/.writing", None)
        assert left == wanted


def _moment(chance: random.Random, whole: Outcome, *, by_time: bool) -> dict[str, float]:
    if by_time:
        return {"kill_after_seconds": chance.uniform(0, 1.1 * whole["seconds"])}
    return {"kill_after_ticks": chance.randint(1, whole["ticks"])}
