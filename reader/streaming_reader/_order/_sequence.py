"""A sequence gives the sample id of each big position; how it is held is its own affair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from streaming_core._mapping import is_cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ArrayMaker", "ArraySequence", "PlainSequence", "Sequence", "in_memory"]


class ArrayMaker(Protocol):
    """Where arrays as long as an epoch are kept.

    The key names everything that the array depends on, so that whoever asks with an equal key may
    be given the array that another one made.
    """

    def __call__(
        self, key: str, count: int, make: Callable[[], NDArray[np.int64]], /
    ) -> NDArray[np.int64]:
        """Return the read-only array of `count` numbers for `key`, calling `make` if need be."""
        ...


def in_memory(key: str, count: int, make: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Make the array anew each time: the `ArrayMaker` of a single process."""
    del key, count
    array = make()
    array.flags.writeable = False
    return array


class Sequence(Protocol):
    """Big position to sample id, for positions from 0 up to the number of samples of an epoch."""

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids at `positions`, an array of any shape, in that shape."""
        ...

    def find(self, sample: int) -> NDArray[np.int64]:
        """Return the positions of a sample id, ascending; none if it does not occur."""
        ...


@final
class PlainSequence:
    """Samples as they are stored: `count` ids from `first` on."""

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids at `positions`."""
        return positions + self._first if self._first else positions

    def find(self, sample: int) -> NDArray[np.int64]:
        """Return the one position of `sample`, or none."""
        position = sample - self._first
        return np.array([position] if 0 <= position < self._count else [], np.int64)


@final
class ArraySequence:
    """Sample ids in an array, which is made (or found) when it is first needed."""

    def __init__(
        self, arrays: ArrayMaker, key: str, count: int, make: Callable[[], NDArray[np.int64]]
    ) -> None:
        self._arrays = arrays
        self._key = key
        self._count = count
        self._make = make
        self._ids: NDArray[np.int64] | None = None

    def _loaded(self) -> NDArray[np.int64]:
        if self._ids is None or is_cut(self._ids):
            self._ids = self._arrays(self._key, self._count, self._make)
        return self._ids

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sample ids at `positions`."""
        return self._loaded()[positions]

    def find(self, sample: int) -> NDArray[np.int64]:
        """Return the positions of `sample`, found by looking at all."""
        return np.flatnonzero(self._loaded() == sample)
