"""What every test and doctest of the project runs under."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


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
