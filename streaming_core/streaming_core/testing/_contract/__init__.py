"""The store contract as a test class that any backend inherits."""

from __future__ import annotations

from streaming_core.testing._contract._objects import ObjectContract
from streaming_core.testing._contract._places import PlaceContract
from streaming_core.testing._contract._sharing import SharingContract
from streaming_core.testing._contract._streams import StreamContract

__all__ = ["StoreContract"]


class StoreContract(ObjectContract, StreamContract, PlaceContract, SharingContract):
    """Tests that every store must pass; inherit, and give a fixture `store`: fresh and empty.

    Abilities that a backend cannot have are named in `unsupported` with the reason; their tests
    are skipped and show it.

    Example:
        >>> import pytest
        >>> from streaming_core.testing import MemoryStore
        >>> class TestMyStore(StoreContract):
        ...     unsupported = {"shared-between-processes": "the objects live in this process"}
        ...
        ...     @pytest.fixture
        ...     def store(self) -> MemoryStore:
        ...         return MemoryStore()
    """
