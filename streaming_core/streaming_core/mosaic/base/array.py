"""Access by numbers, slices and lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from streaming_reader._access import each_of, select

__all__ = ["Array"]


class Array(ABC):
    """Gives what `get_item` returns for numbers, from either end, for slices, and nested lists.

    Example:
        >>> class Squares(Array):
        ...     size = 10
        ...
        ...     def get_item(self, idx):
        ...         return idx * idx
        >>> squares = Squares()
        >>> squares[3], squares[-1], squares[2:4], squares[[1, 2]]
        (9, 81, [4, 9], [1, 4])
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """How many items there are."""

    def __len__(self) -> int:
        """Return how many items there are."""
        return self.size

    @abstractmethod
    def get_item(self, idx: int) -> Any:  # noqa: ANN401 - any item
        """Return the item of a number from 0."""

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - an item, or nested lists of items
        """Return an item, or lists of items for slices, arrays and lists of numbers."""
        return select(at, self.size, self.get_item, partial(each_of, self.get_item))
