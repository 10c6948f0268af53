"""What helps to test code that stores data: a slow store, a failing one, and the store contract.

Shipped for users of this package who write their own backends or test their own pipelines. Only
`StoreContract` needs pytest, and is imported when it is first named.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from streaming_core._extras import require
from streaming_core._store import MemoryStore
from streaming_core.testing._faults import (
    Action,
    Call,
    Delay,
    Die,
    Fault,
    FlipBit,
    Kill,
    LoseResponse,
    Raise,
    Truncate,
    Verb,
)
from streaming_core.testing._faultstore import FaultStore
from streaming_core.testing._latency import LatencyStore

if TYPE_CHECKING:
    from streaming_core.testing._contract import StoreContract

__all__ = [
    "Action",
    "Call",
    "Delay",
    "Die",
    "Fault",
    "FaultStore",
    "FlipBit",
    "Kill",
    "LatencyStore",
    "LoseResponse",
    "MemoryStore",
    "Raise",
    "StoreContract",
    "Truncate",
    "Verb",
]

_CONTRACT = "streaming_core.testing._contract"


def __getattr__(name: str) -> object:
    """Import `StoreContract`, and with it pytest, when it is first asked for."""
    if name != "StoreContract":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    pytest = require("pytest", extra="test", purpose="streaming_core.testing.StoreContract")
    if _CONTRACT not in sys.modules:
        # Only possible before the import: it makes a failed assertion show its operands.
        pytest.register_assert_rewrite(_CONTRACT)
    return importlib.import_module(_CONTRACT).StoreContract
