"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "data" / "golden" / "datasets"


@pytest.fixture(scope="session")
def golden() -> Path:
    """Return the folder of datasets that mosaicml-streaming wrote, one per subfolder."""
    return GOLDEN
