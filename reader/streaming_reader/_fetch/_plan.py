"""Which shards the coming samples need, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["first_uses"]


def first_uses(shards: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each shard once, in order of its first use.

    Example:
        >>> first_uses(np.array([5, 2, 5, 9, 2])).tolist()
        [5, 2, 9]
    """
    if not len(shards):
        return shards
    changes = np.flatnonzero(np.diff(shards)) + 1  # runs are common, and cheap to leave out
    firsts = shards[np.concatenate([np.zeros(1, np.int64), changes])]
    found, at = np.unique(firsts, return_index=True)
    ordered: NDArray[np.int64] = found[np.argsort(at)]
    return ordered
