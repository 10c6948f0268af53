"""Medians and how far to trust them."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Estimate", "estimate"]

_NUM_RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median with the interval that holds it with 95 % confidence."""

    median: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the median of `values` by bootstrap, the same way for the same values.

    With the five to ten values of a benchmark the interval reaches close to the extremes: that is
    all that so few runs can promise.

    Raises:
        ValueError: There are no values.

    Example:
        >>> estimate([3.0, 1.0, 2.0, 2.0, 2.0]).median
        2.0
    """
    if not values:
        msg = "no values to estimate a median from; at least one run is needed"
        raise ValueError(msg)
    rng = random.Random(0)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(_NUM_RESAMPLES)
    )
    edge = round(_NUM_RESAMPLES * 0.025)
    return Estimate(statistics.median(values), medians[edge], medians[-1 - edge])
