"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "data" / "golden" / "datasets"

# A deadline per example measures the machine. Without one, a hang is caught by the test's timeout.
settings.register_profile("dev", deadline=None)
# The same examples in every run, so that a red run can be repeated.
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """Return the folder of data sets that mosaicml-streaming wrote, one per sub-folder."""
    return GOLDEN
