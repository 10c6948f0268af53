"""What the packaging tests look at: the sources, and the archives built from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "streaming_core" / "streaming_core",
    ROOT / "writer" / "streaming_writer",
    ROOT / "reader" / "streaming_reader",
)


class Archives(NamedTuple):
    """The two archives that one build makes."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def sources() -> list[Path]:
    """Return every Python file of the three packages."""
    found = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    assert found
    return found


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Build the sdist and, from the sources, the wheel."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel"]
    done = subprocess.run(
        [*command, "--outdir", str(out), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return Archives(wheel, sdist)
