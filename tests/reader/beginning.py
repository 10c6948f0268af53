"""What a process does that begins an epoch together with others; imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming_reader._shared import SharedBlock

__all__ = ["begin"]


def begin(block: SharedBlock, worker: int, iteration: str, answers: Any) -> None:
    """Begin an iteration as one of the workers, and put the position it has into `answers`."""
    block.counters(worker)[0] += worker + 1
    answers.put((worker, block.begin(worker=worker, iteration=iteration)))
