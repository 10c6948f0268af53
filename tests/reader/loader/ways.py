"""Ways of starting workers, and what tests read out of batches."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["FORKED", "HERE", "IN_PROCESS_AND_FORKED", "PERSISTENT", "SPAWNED", "ids_of"]

HERE: dict[str, Any] = {"num_workers": 0}
FORKED: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}
PERSISTENT: dict[str, Any] = {**FORKED, "persistent_workers": True}
SPAWNED: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "spawn"}
IN_PROCESS_AND_FORKED = [
    pytest.param(0, id="in process"),
    pytest.param(2, id="forked", marks=pytest.mark.process),
]


def ids_of(batches: Any) -> list[int]:
    """Return the ids in all batches, in order."""
    return [int(i) for batch in batches for i in batch["id"]]
