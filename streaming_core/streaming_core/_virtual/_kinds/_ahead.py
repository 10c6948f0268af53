"""Reading a file from front to end where only some of it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streaming_core._virtual._model import SourceReader

__all__ = ["Ahead"]

_FIRST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 8 << 20
_NEAR_BYTES: Final = 1 << 20
"""What lies no farther is read with what comes before it: asking anew takes longer."""


class Ahead:
    """The bytes of one file, asked for in rising order; holds a window of few MiB.

    Reads more at a time while what is wanted lies close together, and no more than little where
    long stretches are left out.
    """

    __slots__ = ("_data", "_reader", "_start", "_step")

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._start = 0
        self._data = b""
        self._step = _FIRST_BYTES

    def read(self, start: int, count: int) -> bytes:
        """Return the bytes from `start` on, fewer than `count` only at the file's end."""
        stop = min(start + count, self._reader.file.size)
        if start >= stop:
            return b""
        end = self._start + len(self._data)
        if not self._start <= start <= stop <= end:
            near = self._start <= start <= end + _NEAR_BYTES
            self._step = min(self._step * 4, _MOST_BYTES) if near and end else _FIRST_BYTES
            last = min(max(stop, start + self._step), self._reader.file.size)
            self._data = self._reader.ranges([(start, last)])[0].data
            self._start = start
        return self._data[start - self._start : stop - self._start]
