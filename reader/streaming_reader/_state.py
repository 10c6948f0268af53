"""Checkpoints: where an epoch stands, as JSON that the reference reads too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from streaming_core.errors import CheckpointError
from streaming_reader._shared import Position

__all__ = ["make_state", "parse_state"]

_OURS: Final = "streaming_core"
"""Holds what the reference knows nothing of; it reads past it."""
_REQUIRED: Final = ("epoch", "sample_in_epoch", "num_canonical_nodes", "shuffle_seed")


def make_state(position: Position, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint of a position whose numbers are all known.

    `facts` are what the order depends on beyond it; `parse_state` compares them.

    Example:
        >>> make_state(Position(1, 512, 2, 9176, 1), {"shuffle": True})["sample_in_epoch"]
        512
    """
    return {
        "epoch": position.epoch,
        "sample_in_epoch": position.sample,
        "num_canonical_nodes": position.canonical_nodes,
        "shuffle_seed": position.seed,
        "initial_physical_nodes": position.initial_nodes,
        _OURS: dict(facts),
    }


def parse_state(state: Any, facts: Mapping[str, Any]) -> Position:  # noqa: ANN401 - from a user's file
    """Return the position of a checkpoint, ours or the reference's.

    Raises:
        CheckpointError: It is none, or what it was made with differs from `facts`; lists all.
    """
    if not isinstance(state, Mapping):
        msg = f"a checkpoint is a mapping with {', '.join(_REQUIRED)}; came {type(state).__name__}"
        raise CheckpointError(msg)
    given = cast("Mapping[str, Any]", state)
    missing = [key for key in _REQUIRED if key not in given]
    if missing:
        msg = f"this is no checkpoint of a data set: {', '.join(missing)} missing"
        raise CheckpointError(msg)
    then: Mapping[str, Any] = given.get(_OURS) or {}
    differing = [
        f"{key} was {then[key]!r:.80} and is {now!r:.80}"
        for key, now in facts.items()
        if key in then and then[key] != now
    ]
    if differing:
        msg = (
            "the checkpoint belongs to other data or settings, and going on would repeat some "
            f"samples and leave out others: {'; '.join(differing)}. Restore them, or start anew "
            "without the checkpoint"
        )
        raise CheckpointError(msg)
    return Position(
        epoch=_number(given, "epoch", 0),
        sample=_number(given, "sample_in_epoch", 0),
        canonical_nodes=_number(given, "num_canonical_nodes", 1),
        seed=_number(given, "shuffle_seed", 0),
        initial_nodes=(
            None
            if given.get("initial_physical_nodes") is None
            else _number(given, "initial_physical_nodes", 1)
        ),
    )


def _number(given: Mapping[str, Any], key: str, least: int) -> int:
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        msg = f"the checkpoint's {key} must be a whole number from {least} on, came {value!r:.80}"
        raise CheckpointError(msg)
    return value
