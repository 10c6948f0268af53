"""What the tests of upgrade fixtures share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keep the user's cache out of it, and record what the product logs."""
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "user-cache"))
    caplog.set_level(logging.INFO, "streaming_core")
