"""Samples that know how many of them were taken, for loaders that ask each worker where it stands.

torchdata's StatefulDataLoader keeps a state of every worker: of its data set, which says where the
epoch began, and of its iterator, which says how far this one worker has come.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self, cast

from streaming_core.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["CountedSamples", "is_asked_for"]

_SAMPLES: Final = "samples"


def is_asked_for() -> bool:
    """Tell whether somebody may ask iterators for their state; counting costs a little."""
    return "torchdata.stateful_dataloader" in sys.modules


class CountedSamples:
    """An iterator over one worker's samples of an epoch, which can go on where another stopped."""

    __slots__ = ("_begin", "_place", "_samples", "_taken")

    def __init__(
        self, begin: Callable[[int], Generator[dict[str, Any]]], place: Mapping[str, Any]
    ) -> None:
        """Give what `begin` gives when it is told how many samples to leave out.

        `place` names the sequence: equal places have equal samples.
        """
        self._begin = begin
        self._place = dict(place)
        self._samples: Generator[dict[str, Any]] = begin(0)
        self._taken = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        """Return the next sample."""
        sample = next(self._samples)
        self._taken += 1
        return sample

    def close(self) -> None:
        """Give no more, and fetch no more."""
        self._samples.close()

    def state_dict(self) -> dict[str, Any]:
        """Return how many samples were taken, and of which sequence."""
        return {**self._place, _SAMPLES: self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the samples that were taken when `state` was.

        Raises:
            CheckpointError: It is of another sequence: another number of workers or ranks, another
                batch size, another epoch; says what differs.
        """
        taken = _taken(state)
        differing = [
            f"{name} was {state.get(name)!r:.40} and is {now!r:.40}"
            for name, now in self._place.items()
            if state.get(name) != now
        ]
        if differing:
            msg = (
                "a worker's state goes on only where everything that deals out samples is as it "
                f"was: {'; '.join(differing)}. Restore that, or use StreamingDataLoader, whose "
                "states go on with any number of workers and ranks"
            )
            raise CheckpointError(msg)
        self.close()
        self._samples = self._begin(taken)
        self._taken = taken


def _taken(state: object) -> int:
    taken = cast("Mapping[str, Any]", state).get(_SAMPLES) if isinstance(state, Mapping) else None
    if isinstance(taken, bool) or not isinstance(taken, int) or taken < 0:
        msg = (
            "a worker's state is a mapping that says how many samples were taken; came "
            f"{state!r:.80}"
        )
        raise CheckpointError(msg)
    return taken
