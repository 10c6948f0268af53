"""Checkpoints: where an epoch stands, as JSON that the reference reads too."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np

from streaming_core.errors import CheckpointError
from streaming_reader._shared import Position

__all__ = ["make_state", "parse_state"]

_OURS: Final = "streaming_core"
"""Holds what the reference knows nothing of; it reads past it."""
_BEGAN: Final = "epoch_began_on"
_PLACES: Final = "places"
"""Where the data lay, which is only shown."""
_BEGAN_KEYS: Final = ("nodes", "ranks_per_node", "batch_size")
_REQUIRED: Final = ("epoch", "sample_in_epoch", "num_canonical_nodes", "shuffle_seed")
_MOST: Final = 1 << 62
"""Numbers of 64 bits are shared by the processes of a rank, and epochs are counted on."""
_MOST_SEED: Final = (1 << 63) - 1
_MOST_NODES: Final = 1 << 16
"""Canonical nodes that a checkpoint may bring: memory and time of an epoch grow with them.

By default as many as 1,024 nodes have with `py1s`.
"""


def make_state(
    position: Position, facts: Mapping[str, Any], places: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the checkpoint of a position whose numbers are all known.

    `facts` are what the order depends on beyond it; `parse_state` compares them. `places` are where
    the data lies.

    Example:
        >>> make_state(Position(1, 512, 2, 9176, 1), {"shuffle": True})["sample_in_epoch"]
        512
    """
    began = {}
    if position.began is not None:
        began[_BEGAN] = dict(zip(_BEGAN_KEYS, position.began, strict=True))
    return {
        "epoch": position.epoch,
        "sample_in_epoch": position.sample,
        "num_canonical_nodes": position.canonical_nodes,
        "shuffle_seed": position.seed,
        "initial_physical_nodes": position.initial_nodes,
        _OURS: {**facts, **began, **({_PLACES: [*places]} if places else {})},
    }


def parse_state(
    state: Any,  # noqa: ANN401 - from a user's file
    facts: Mapping[str, Any],
    *,
    places: Sequence[str] = (),
    num_samples: int,
    num_ranks: int,
    canonical_nodes: int,
) -> Position:
    """Return the position of a checkpoint, ours or the reference's.

    The numbers are those of this run: samples of an epoch, ranks, and its own canonical nodes.

    Raises:
        CheckpointError: It is none, or what it was made with differs from `facts`; lists all.
    """
    try:
        most_nodes = max(canonical_nodes, _MOST_NODES)
        position, is_ours = _position(state, facts, places, most_nodes)
    except CheckpointError:
        raise
    except Exception as error:
        # The values' own methods may raise whatever they like.
        msg = f"the checkpoint cannot be read: looking at it raised {type(error).__name__}"
        raise CheckpointError(msg) from error
    # Padding to canonical nodes and ranks gives some samples twice.
    most = 2 * (max(num_samples, position.canonical_nodes or 0) + num_ranks)
    if not is_ours and position.sample > most:
        msg = (
            f"the checkpoint was taken after {position.sample} samples of an epoch that has "
            f"{num_samples} here; it belongs to more data, or to other weights"
        )
        raise CheckpointError(msg)
    return position


def _position(
    state: Any,  # noqa: ANN401 - from a user's file
    facts: Mapping[str, Any],
    places: Sequence[str],
    most_nodes: int,
) -> tuple[Position, bool]:
    """Return the position of a checkpoint, and whether it says which data it belongs to."""
    given = _mapping(state, f"a checkpoint is a mapping with {', '.join(_REQUIRED)}")
    missing = [key for key in _REQUIRED if key not in given]
    if missing:
        msg = f"this is no checkpoint of a data set: {', '.join(missing)} missing"
        raise CheckpointError(msg)
    initial = given.get("initial_physical_nodes")
    # The reference says -1 before the first epoch was begun.
    epoch = _number(given, "epoch", 0 if _OURS in given else -1)
    found = Position(
        epoch=max(0, epoch),
        sample=_number(given, "sample_in_epoch", 0, _MOST if epoch >= 0 else 0),
        canonical_nodes=_number(given, "num_canonical_nodes", 1, most_nodes),
        seed=_number(given, "shuffle_seed", 0, _MOST_SEED),
        initial_nodes=None if initial is None else _number(given, "initial_physical_nodes", 1),
    )
    own = given.get(_OURS)
    if own is None:
        return found, False
    then = _mapping(own, f"the checkpoint's {_OURS} is a mapping of what it was made with")
    _compare(then, facts, places)
    if then.get(_BEGAN) is not None:
        began = _mapping(then[_BEGAN], f"the checkpoint's {_BEGAN} is a mapping")
        nodes, ranks, batch = (_number(began, key, 1) for key in _BEGAN_KEYS)
        found = replace(found, began=(nodes, ranks, batch))
    return found, "data" in then


def _compare(then: Mapping[str, Any], facts: Mapping[str, Any], places: Sequence[str]) -> None:
    differing = [
        f"{key} was {_shown(then[key])} and is {now!r:.80}"
        for key, now in facts.items()
        if key in then and not _is_equal(then[key], now)
    ]
    if differing and not _is_equal(then.get("data"), facts.get("data")) and _PLACES in then:
        differing[0] = (
            f"data was what lay at {_listed(then[_PLACES])} and is what lies at {_listed(places)}"
        )
    if differing:
        msg = (
            "the checkpoint belongs to other data or settings, and going on would repeat some "
            f"samples and leave out others: {'; '.join(differing)}. Restore them, or start anew "
            "without the checkpoint"
        )
        raise CheckpointError(msg)


def _listed(value: Any) -> str:  # noqa: ANN401 - from a user's file
    if not isinstance(value, list):
        return _shown(value)
    places = cast("list[object]", value)
    if not all(type(one) is str for one in places):
        return _shown(places)
    return ", ".join(f"{one:.200}" for one in places[:3]) + (" and others" if places[3:] else "")


def _is_equal(then: Any, now: Any) -> bool:  # noqa: ANN401 - a setting, or what a file holds instead
    try:
        return bool(then == now)
    except Exception:  # noqa: BLE001 - arrays are neither equal nor not, others raise what they like
        return False


def _mapping(value: Any, wanted: str) -> Mapping[str, Any]:  # noqa: ANN401 - from a user's file
    if not isinstance(value, Mapping):
        msg = f"{wanted}; came {type(value).__name__}"
        raise CheckpointError(msg)
    return cast("Mapping[str, Any]", value)


def _number(given: Mapping[str, Any], key: str, least: int, most: int = _MOST) -> int:
    value: Any = given.get(key)
    if (
        isinstance(value, (int, np.integer))
        and not isinstance(value, bool)
        and least <= value <= most
    ):
        return int(cast("int", value))
    msg = (
        f"the checkpoint's {key} must be a whole number from {least} to {most}, "
        f"came {_shown(value)}"
    )
    raise CheckpointError(msg)


def _shown(value: Any) -> str:  # noqa: ANN401 - from a user's file
    """Return a value as text, in bounded time whatever it is."""
    try:
        return f"{reprlib.repr(value):.80}"
    except Exception:  # noqa: BLE001 - its own method may raise whatever it likes
        return f"a value of type {type(value).__name__}"
