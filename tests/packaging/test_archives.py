"""What users install holds every module, nothing else, and asks for the base dependencies only."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

import streaming_core

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packaging.conftest import Archives

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("archives")]

PACKAGE_NAMES = ("streaming_core", "streaming_reader", "streaming_writer")
OUTER_FOLDERS = ("streaming_core", "writer", "reader")
BESIDE_THE_PACKAGES = {
    ".gitignore",  # hatchling adds it, so that a build from the sdist selects the same files
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "reader/README.md",
    "streaming_core/README.md",
    "writer/README.md",
}


def _tree(root: Path, *, inner: bool) -> set[str]:
    """Return the files that make up the packages, as paths below the outer or the inner folders."""
    found: set[str] = set()
    for outer in OUTER_FOLDERS:
        base = root / outer
        for path in base.glob("*/**/*"):
            if path.suffix == ".py" or path.name == "py.typed":
                found.add(path.relative_to(base if inner else root).as_posix())
    return found


def test_wheel_holds_every_module_and_nothing_stray(root: Path, archives: Archives) -> None:
    """The wheel is the three packages, each with its `py.typed`, and its own metadata."""
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    metadata = {name for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
    assert names - metadata == _tree(root, inner=True)
    assert {f"{name}/py.typed" for name in PACKAGE_NAMES} <= names
    assert {PurePosixPath(name).name for name in metadata} == {
        "LICENSE",
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
    }


def test_sdist_holds_every_module_and_nothing_stray(root: Path, archives: Archives) -> None:
    """The sdist is the three packages and the few files that building and reading them needs."""
    with tarfile.open(archives.sdist) as sdist:
        names = {member.name.partition("/")[2] for member in sdist if member.isfile()}
    tree = _tree(root, inner=False)
    assert tree <= names
    assert names - tree <= BESIDE_THE_PACKAGES
    assert {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"} <= names


@pytest.fixture(scope="module")
def requirements(archives: Archives) -> list[Requirement]:
    """Return what the wheel's metadata asks for."""
    with zipfile.ZipFile(archives.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Version"] == streaming_core.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    return [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]


def test_a_plain_install_brings_the_base_dependencies_only(requirements: list[Requirement]) -> None:
    """Whatever is not numpy, a codec, a lock or the index parser belongs to an extra."""
    base = {
        one.name for one in requirements if one.marker is None or "extra" not in str(one.marker)
    }
    assert base == {"msgspec", "numpy", "xxhash", "zstandard"}


def test_zstandard_is_asked_for_only_where_python_lacks_it(requirements: list[Requirement]) -> None:
    """From Python 3.14 on the standard library's zstd is used."""
    (zstandard,) = (one for one in requirements if one.name == "zstandard")
    assert zstandard.marker is not None
    assert zstandard.marker.evaluate({"python_version": "3.13"})
    assert not zstandard.marker.evaluate({"python_version": "3.14"})
