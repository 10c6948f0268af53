"""What the tests of all stores share."""

from __future__ import annotations

import platform

import pytest


@pytest.fixture(scope="session", autouse=True)
def _known_platform() -> None:
    """Ask once what machine this is: cloud SDKs do, which starts a process the first time."""
    platform.processor()
