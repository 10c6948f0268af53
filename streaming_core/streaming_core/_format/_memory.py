"""Bytes of several mappings by address, so that one call of NumPy gathers from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Memory"]

_WIDE: Final = 1 << 16
"""From this many bytes on a copy of its own for each value costs nothing beside the bytes."""


class _Raw:
    """Memory at an address, as NumPy's array interface asks for it."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, shape: tuple[int, ...], width: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),  # never written to
            "shape": shape,
            "strides": (1,),
            "typestr": f"|V{width}",
        }


@final
class Memory:
    """The bytes that several arrays hold, each found by its address.

    Gathering array by array would write each value twice: into the array's own share, and from
    there to its place. One view from the lowest address to the highest writes it once. That view
    also spans what lies between the arrays, so **whoever asks must have checked that a value lies
    within one of the arrays**; all of them must outlive the `Memory` and what `cut` returns.
    """

    __slots__ = ("_base", "_firsts", "_size")

    def __init__(self, addresses: Sequence[int], sizes: Sequence[int]) -> None:
        """Take where each array begins, and its bytes."""
        self._base = min(addresses)
        self._firsts = np.array(addresses, np.int64) - self._base
        self._size = max(map(int.__add__, addresses, sizes)) - self._base

    def pick(self, starts: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        """Return an own array of the `width` bytes at each address, a row for each."""
        count = len(starts)
        if not count or not width:
            return np.empty((count, width), np.uint8)
        if width < _WIDE:
            # Elements that overlap: one for each byte at which a value may begin.
            windows = np.asarray(_Raw(self._base, (self._size - width + 1,), width))
            picked: NDArray[np.void] = windows[starts - self._base]
            return picked.view(np.uint8).reshape(count, width)
        out = np.empty((count, width), np.uint8)
        sizes = np.full(count, width)
        for row, value in zip(out, self.cut(starts, sizes), strict=True):
            row[:] = np.frombuffer(value, np.uint8)
        return out

    def elements(
        self, which: NDArray[np.int64], numbers: NDArray[np.int64], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Return an own array of element `numbers[i]` of array `which[i]`; all are aligned.

        Several times as fast as `pick`, for which any byte may be the first.
        """
        count = self._size // dtype.itemsize
        raw = np.asarray(_Raw(self._base, (count * dtype.itemsize,), 1)).view(dtype)
        if len(self._firsts) == 1:
            return raw.take(numbers)
        at = (self._firsts // dtype.itemsize).take(which)
        at += numbers
        return raw.take(at)

    def cut(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[memoryview]:
        """Return views of the `sizes` bytes at each address; they do not keep the arrays alive."""
        if not len(starts):
            return []
        data = np.asarray(_Raw(self._base, (self._size,), 1)).view(np.uint8).data
        at = starts - self._base
        return [data[a:b] for a, b in zip(at.tolist(), (at + sizes).tolist(), strict=True)]
