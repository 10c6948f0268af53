"""What every test and doctest of the project runs under."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that `make test-all` gives."""
    what = "also run what needs the servers that only `make test-all` installs"
    parser.addoption("--all-servers", action="store_true", help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker of tests that wait for the option."""
    config.addinivalue_line("markers", "all_servers: runs with --all-servers only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what was not asked for, and say how it is."""
    if config.getoption("--all-servers"):
        return
    skip = pytest.mark.skip(reason="its server takes long to install; `make test-all` runs it")
    for item in items:
        if item.get_closest_marker("all_servers"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _doctest_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run doctests in a folder of their own, so that an example may write where it stands."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    before = Path.cwd()
    os.chdir(request.getfixturevalue("tmp_path"))
    try:
        yield
    finally:
        os.chdir(before)
