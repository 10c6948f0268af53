"""A file of which only some bytes are here, as libraries want to read it."""

from __future__ import annotations

import io
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._virtual._model import Piece

__all__ = ["SparseFile"]


class SparseFile(io.RawIOBase):
    """Reads the pieces that were fetched, at their places in a file of `size` bytes.

    Reading anything else is an `OSError`: whoever fetched them did not know what would be needed.
    """

    def __init__(self, pieces: Sequence[Piece], size: int) -> None:
        super().__init__()
        self._pieces = sorted(pieces)
        self._starts = [piece.start for piece in self._pieces]
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it has places."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place in the whole file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def size(self) -> int:
        """Return the bytes of the whole file."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next `size` bytes, all there are by default."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        found = self._cut(self._at, stop)
        self._at = stop
        return found

    def readinto(self, buffer: object, /) -> int:
        """Fill a buffer with the next bytes."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a buffer
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _cut(self, start: int, stop: int) -> bytes:
        at = bisect_right(self._starts, start) - 1
        out: list[bytes | memoryview] = []
        while start < stop:
            if at < 0 or at >= len(self._pieces):
                break
            piece = self._pieces[at]
            first = start - piece.start
            if not 0 <= first < len(piece.data):
                break
            taken = memoryview(piece.data)[first : first + stop - start]
            out.append(taken)
            start += len(taken)
            at += 1
        if start < stop:
            msg = f"bytes {start} to {stop} were not fetched"
            raise OSError(msg)
        return bytes(out[0]) if len(out) == 1 else b"".join(out)
