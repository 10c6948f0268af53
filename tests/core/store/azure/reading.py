"""What other processes of the tests do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming_core._store import Store

__all__ = ["read"]


def read(store: Store, expected: bytes) -> None:
    """Read an object, or raise."""
    assert store.get("a") == expected
