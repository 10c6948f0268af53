"""How many samples of each stream an epoch has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streaming_core.errors import OrderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Weight", "Weights", "resolve_weights"]


@dataclass(frozen=True, slots=True)
class Weight:
    """What a user wants of one stream: at most one of the three."""

    proportion: float | None = None
    """Share of the epoch, relative to the other streams' proportions."""
    repeat: float | None = None
    """How many times the stream is seen per epoch; fractions are allowed."""
    choose: int | None = None
    """How many samples of the stream are seen per epoch."""

    def __post_init__(self) -> None:
        given = {
            name: value
            for name in ("proportion", "repeat", "choose")
            if (value := getattr(self, name)) is not None
        }
        if len(given) > 1:
            said = ", ".join(f"{name}={value}" for name, value in given.items())
            msg = f"a stream takes at most one of proportion, repeat and choose; {said} came"
            raise OrderError(msg)
        for name, value in given.items():
            if not (math.isfinite(value) and value >= 0):
                msg = f"{name} of a stream is a finite number of at least 0; {value} came"
                raise OrderError(msg)


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The same wish in all three forms, by stream."""

    proportion: NDArray[np.float64]
    """Share of the epoch."""
    repeat: NDArray[np.float64]
    """Times a sample is seen per epoch, on average."""
    choose: NDArray[np.int64]
    """Samples per epoch."""

    @property
    def epoch_size(self) -> int:
        """Number of samples of an epoch, repeated ones counted each time."""
        return int(self.choose.sum())


def resolve_weights(
    samples_per_stream: Sequence[int] | NDArray[np.int64],
    weights: Sequence[Weight],
    epoch_size: int | None,
    seed: int,
) -> Weights:
    """Settle how often each stream is used.

    Either every stream has a proportion, or none has; `epoch_size` is allowed with proportions,
    or where nothing at all is asked of any stream.

    Example:
        >>> resolve_weights([30, 10], [Weight(proportion=1), Weight(proportion=3)], 20, 0).choose
        array([ 5, 15])
    """
    samples = np.asarray(samples_per_stream, np.int64)
    if len(samples) != len(weights) or not len(samples):
        msg = f"one weight per stream and at least one stream: {len(samples)} streams came with "
        raise OrderError(msg + f"{len(weights)} weights")
    if epoch_size is not None and epoch_size < 0:
        msg = f"epoch_size is at least 0; {epoch_size} came"
        raise OrderError(msg)
    proportions = [weight.proportion for weight in weights if weight.proportion is not None]
    if proportions and len(proportions) < len(weights):
        msg = "either all streams have a proportion or none: "
        raise OrderError(msg + f"{len(proportions)} of {len(weights)} streams have one")
    if proportions:
        return _shared(samples, np.asarray(proportions, np.float64), epoch_size, seed)
    plain = all(weight.repeat is None and weight.choose is None for weight in weights)
    if plain and epoch_size is not None:
        return _shared(samples, samples.astype(np.float64), epoch_size, seed)
    if epoch_size is not None:
        msg = f"epoch_size={epoch_size} came with repeat or choose, which settle it already: "
        raise OrderError(msg + "leave it out, or give every stream a proportion")
    return _absolute(samples, weights)


def _shared(
    samples: NDArray[np.int64], wanted: NDArray[np.float64], epoch_size: int | None, seed: int
) -> Weights:
    total = wanted.sum()
    if not total > 0:
        msg = "an epoch cannot be divided: the proportions (or samples) of all streams are 0"
        raise OrderError(msg)
    size = int(samples.sum()) if epoch_size is None else epoch_size
    proportion = wanted / total
    choose = (size * proportion).astype(np.int64)
    lacking = size - int(choose.sum())
    if lacking:
        choose[np.random.default_rng(seed).choice(len(choose), lacking, replace=False)] += 1
    return Weights(proportion, _repeats(choose, samples), _checked(choose, samples))


def _absolute(samples: NDArray[np.int64], weights: Sequence[Weight]) -> Weights:
    choose = np.empty(len(samples), np.int64)
    for i, (weight, count) in enumerate(zip(weights, samples.tolist(), strict=True)):
        if weight.choose is not None:
            choose[i] = weight.choose
        else:
            choose[i] = count if weight.repeat is None else int(weight.repeat * count)
    total = choose.sum()
    proportion = choose / total if total else np.zeros(len(choose), np.float64)
    return Weights(proportion, _repeats(choose, samples), _checked(choose, samples))


def _repeats(choose: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(choose, samples, out=np.zeros(len(choose), np.float64), where=samples > 0)


def _checked(choose: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
    hollow = np.flatnonzero((choose > 0) & (samples == 0))
    if len(hollow):
        msg = f"stream {hollow[0]} has no samples, but {choose[hollow[0]]} of it are wanted: "
        raise OrderError(msg + "leave it out, or give it a weight of 0")
    return choose
