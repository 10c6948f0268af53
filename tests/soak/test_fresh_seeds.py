"""Property tests and kill tests, again and again, each time with seeds that none had before."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest
from tests.soak.common import ROOT, minutes, say

pytestmark = [pytest.mark.soak, pytest.mark.kill]

_PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "--import-mode=importlib",
]
_CHOSEN = "(hypothesis or kill) and not (soak or server or framework)"


def _tests() -> list[str]:
    """Return the tests to repeat, each with all its parameters."""
    command = [*_PYTEST, "--collect-only", "-m", _CHOSEN, "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    return sorted(names)


def test_properties_and_kills_hold_for_fresh_seeds() -> None:
    """Each round takes one test; its seeds are printed, so that a failure can be repeated."""
    end = time.monotonic() + 60 * minutes()
    tests = _tests()
    assert any("kill" in name for name in tests)
    choose = random.SystemRandom()
    failures: list[str] = []
    rounds = 0
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    while rounds == 0 or time.monotonic() < end:
        rounds += 1
        test, seed = choose.choice(tests), choose.randrange(1 << 32)
        say(f"round {rounds}: {test}, seed {seed}")
        done = subprocess.run(
            [*_PYTEST, "--hypothesis-profile=full", f"--hypothesis-seed={seed}", test],
            cwd=ROOT,
            env={**environment, "FAULTS_SEED": str(seed)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            failures.append(f"{test}, seed {seed}")
            say(done.stdout + done.stderr)
    say(f"{rounds} rounds, {len(failures)} failed")
    assert not failures
