"""Finding names that two files share, among millions and in a few bytes each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from streaming_core._index._shard import ROLES, FileRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["FilePlace", "NameBook"]

FilePlace: TypeAlias = tuple[int, FileRole]
"""Which file: its shard's number and its role."""


@final
class NameBook:
    """Remembers hashes of names; the names themselves are asked for where hashes are equal.

    Example:
        >>> book = NameBook()
        >>> book.add(["a", "b"], np.array([0, 1]), "raw")
        >>> book.add(["c", "a"], np.array([0, 1]), "zip")
        >>> list(book.doubles(lambda shard, role: {"raw": "ab", "zip": "ca"}[role][shard]))
        [((1, 'zip'), (0, 'raw'), 'a')]
    """

    __slots__ = ("_hashes", "_roles", "_shards")

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._shards: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._roles: list[NDArray[np.int8]] = [np.zeros(0, np.int8)]

    def add(self, names: Sequence[str], shards: NDArray[np.int64], role: FileRole) -> None:
        """Remember the names of the files of `shards` in `role`; an empty name is no file."""
        there = np.fromiter(map(len, names), np.int64, len(names)) > 0
        self._hashes.append(np.fromiter(map(hash, names), np.int64, len(names))[there])
        self._shards.append(shards[there])
        self._roles.append(np.full(np.count_nonzero(there), ROLES.index(role), np.int8))

    def doubles(
        self, name_of: Callable[[int, FileRole], str]
    ) -> Iterator[tuple[FilePlace, FilePlace, str]]:
        """Yield each file whose name is taken, by which earlier file, and the name."""
        hashes = np.concatenate(self._hashes)
        ordered = np.sort(hashes)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        del ordered
        if not len(repeated):
            return
        alike = np.flatnonzero(np.isin(hashes, repeated))
        shards = np.concatenate(self._shards)[alike]
        roles = np.concatenate(self._roles)[alike]
        owners: dict[str, FilePlace] = {}
        for at in np.lexsort((roles, shards)).tolist():
            place: FilePlace = (int(shards[at]), ROLES[int(roles[at])])
            name = name_of(*place)
            owner = owners.setdefault(name, place)
            if owner != place:
                yield place, owner, name
