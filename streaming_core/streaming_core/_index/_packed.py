"""Many short texts in one blob: what a list of `str` costs ten times over."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, final, overload

import numpy as np

if TYPE_CHECKING:
    from typing import Self, SupportsIndex

    from numpy.typing import NDArray

__all__ = ["PackedStrings"]


@final
class PackedStrings(Sequence[str]):
    """An immutable sequence of texts, kept as one UTF-8 blob and an array of offsets.

    Costs 8 bytes a text on top of the text itself, and pickles as two buffers. Safe to use from
    several threads.

    Example:
        >>> names = PackedStrings.from_iterable(["a", "", "é"])
        >>> len(names), names[2], list(names[:2])
        (3, 'é', ['a', ''])
    """

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - equality is by content
    __slots__ = ("_blob", "_offsets")

    def __init__(self, blob: bytes, offsets: NDArray[np.int64]) -> None:
        """Take over `blob` and its `offsets` (one more than texts, from 0 to the blob's length)."""
        self._blob = blob
        self._offsets = offsets
        self._offsets.flags.writeable = False

    @classmethod
    def from_iterable(cls, texts: Iterable[str]) -> Self:
        """Return `texts` packed, in their order."""
        parts = [text.encode() for text in texts]
        return cls(b"".join(parts), _offsets(parts))

    @classmethod
    def empty(cls, length: int) -> Self:
        """Return `length` empty texts."""
        return cls(b"", np.zeros(length + 1, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[PackedStrings]) -> Self:
        """Return the texts of all `parts`, one part after the other."""
        pairs = [part.buffers() for part in parts]
        steps = [np.diff(offsets) for _, offsets in pairs]
        offsets = np.zeros(1 + sum(map(len, parts)), np.int64)
        if steps:
            np.cumsum(np.concatenate(steps), out=offsets[1:])
        return cls(b"".join(blob for blob, _ in pairs), offsets)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self._blob) + self._offsets.nbytes

    @property
    def max_text_bytes(self) -> int:
        """Bytes of the longest text, 0 if there is none."""
        return int(np.diff(self._offsets).max(initial=0))

    def buffers(self) -> tuple[bytes, NDArray[np.int64]]:
        """Return the blob and the offsets, for hashing; both are read-only."""
        return self._blob, self._offsets

    def with_prefix(self, prefix: str) -> PackedStrings:
        """Return the texts, each behind `prefix`."""
        lead = prefix.encode()
        ends = self._offsets.tolist()
        blob = b"".join(lead + self._blob[start:stop] for start, stop in pairwise(ends))
        return PackedStrings(blob, self._offsets + len(lead) * np.arange(len(ends), dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, item: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, item: slice) -> PackedStrings: ...
    def __getitem__(self, item: SupportsIndex | slice) -> str | PackedStrings:
        """Return one text, or a slice as its own `PackedStrings` (it does not hold the whole)."""
        if isinstance(item, slice):
            start, stop, step = item.indices(len(self))
            if step != 1:
                return PackedStrings.from_iterable(self[i] for i in range(start, stop, step))
            bounds = self._offsets[start : max(start, stop) + 1]
            return PackedStrings(self._blob[bounds[0] : bounds[-1]], bounds - bounds[0])
        index = operator.index(item)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            msg = f"text {index} is out of range: there are {len(self)}"
            raise IndexError(msg)
        return self._blob[self._offsets[at] : self._offsets[at + 1]].decode()

    def __iter__(self) -> Iterator[str]:
        """Yield the texts in order."""
        for start, stop in pairwise(self._offsets.tolist()):
            yield self._blob[start:stop].decode()

    def __eq__(self, other: object) -> bool:
        """Say whether `other` holds the same texts in the same order."""
        if not isinstance(other, PackedStrings):
            return NotImplemented
        return self._blob == other._blob and np.array_equal(self._offsets, other._offsets)

    def __reduce__(self) -> tuple[type[PackedStrings], tuple[bytes, NDArray[np.int64]]]:
        """Pickle as two buffers."""
        return PackedStrings, (self._blob, self._offsets)

    def __repr__(self) -> str:
        """Return a short description."""
        return f"PackedStrings({len(self)} texts, {len(self._blob)} bytes)"


def _offsets(parts: Sequence[bytes]) -> NDArray[np.int64]:
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return offsets
