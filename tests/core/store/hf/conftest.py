"""What the tests of the hub's store share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.hf import Hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Give a hub with one repository, and an environment that knows no token."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with Hub("datasets/owner/name") as running:
        yield running
