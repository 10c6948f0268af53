"""How many examples a property test tries, by hypothesis profile."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

__all__ = ["examples"]

_FULL_EXAMPLES: Final = 200
_FEWEST: Final = 5


def examples(full: int) -> int:
    """Return how many examples to try where the full profile tries `full`.

    For tests whose examples are expensive: others leave the number to the profile.
    """
    return max(_FEWEST, full * settings().max_examples // _FULL_EXAMPLES)
