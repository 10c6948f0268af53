"""What the shipped test kit offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import streaming_core.testing as kit


def test_every_public_name_is_there() -> None:
    """Each name of `__all__` resolves, the late one too; others are refused."""
    for name in kit.__all__:
        assert getattr(kit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kit.nonsense


@pytest.mark.process
def test_only_the_contract_needs_pytest() -> None:
    """The stores work without pytest; the contract names the extra that brings it."""
    script = """
import sys
sys.modules["pytest"] = None
import streaming_core.testing as kit
from streaming_core.errors import MissingExtraError
kit.FaultStore(kit.MemoryStore()).put("a", [b"body"])
try:
    kit.StoreContract
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200
    )
    assert "streaming-core[test]" in done.stdout
