"""Reading an archive from its beginning to its end, as little of it as its headers take."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from streaming_core._virtual._kinds._tar_scouts import scouted
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from streaming_core._virtual._model import Piece, SourceReader

__all__ = ["HoppingBytes", "UnpackedBytes", "unpacked"]

_GZIP: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 1 << 20
_LEAST_BYTES: Final = 16 << 10
"""Read at each hop: a header and small files near it cost no second request."""
_MOST_BYTES: Final = 4 << 20
_FAR_BYTES: Final = 64 << 10
"""Passing over more than this saves more than a request costs; the store joins nearer ones too."""
_FEW_HOPS: Final = 4
"""In a row, after which more are expected."""
_HOPS_AHEAD: Final = 256
_SCOUTS: Final = 8
_LEAST_HOPS: Final = 8
"""Of each scout: for fewer, searching where to begin does not pay."""
_MOST_STRIDE: Final = 16 << 20
"""Of headers that are further apart, so few are to be expected that none is searched for."""


class HoppingBytes:
    """Reads windows: large ones where all is near, small ones where most is passed over.

    After some hops in a row it looks ahead from several places at once, so that a thousand large
    files do not take the time of a thousand answers.
    """

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._size = reader.file.size
        self._begin = 0
        self._data = b""
        self._window = _FAR_BYTES
        self._hops: list[int] = []
        self._ahead: list[Piece] = []

    def read(self, start: int, count: int) -> bytes:
        """Return bytes from `start` on; see `ArchiveBytes.read`."""
        stop = min(self._size, start + count)
        if start >= stop:
            return b""
        if stop > self._begin + len(self._data) and not self._is_ahead(start, stop):
            self._fetch(start, stop)
        return self._data[start - self._begin : stop - self._begin]

    def reaches(self, stop: int) -> bool:
        """Tell whether there are that many bytes."""
        return stop <= self._size

    def _is_ahead(self, start: int, stop: int) -> bool:
        """Go on with bytes that were fetched ahead, if these are among them."""
        at = bisect_right(self._ahead, start, key=attrgetter("start")) - 1
        if at < 0 or self._ahead[at].start + len(self._ahead[at].data) < stop:
            return False
        self._begin, self._data = self._ahead[at]
        del self._ahead[: at + 1]
        return True

    def _fetch(self, start: int, stop: int) -> None:
        end = self._begin + len(self._data)
        if start - end > _FAR_BYTES:
            self._window = _LEAST_BYTES
            self._hops.append(start)
            if len(self._hops) > _FEW_HOPS and self._looked_ahead(start, stop):
                return
        else:
            self._window = min(2 * self._window, _MOST_BYTES)
            self._hops = []
        kept = self._data[start - self._begin :] if start < end else b""
        begin = start + len(kept)
        last = min(self._size, max(stop, begin + self._window))
        self._begin, self._data = start, kept + self._reader.ranges([(begin, last)])[0].data

    def _looked_ahead(self, start: int, stop: int) -> bool:
        """Look ahead if that pays; tell whether the bytes that are wanted came with it."""
        stride = (self._hops[-1] - self._hops[0]) // (len(self._hops) - 1)
        self._hops = []
        end = min(self._size, start + _HOPS_AHEAD * stride)
        scouts = min(_SCOUTS, (end - start) // (_LEAST_HOPS * stride))
        if scouts < 2 or stride > _MOST_STRIDE:  # noqa: PLR2004 - one is what is done anyway
            return False
        bounds = [start + (end - start) * at // scouts for at in range(scouts + 1)]
        self._ahead = scouted(self._reader.ranges, bounds, stride, _LEAST_BYTES)
        return self._is_ahead(start, stop)


class UnpackedBytes:
    """Reads the expanded bytes of a compressed file, of which a piece is in memory at a time."""

    def __init__(self, pieces: Generator[bytes]) -> None:
        self._pieces = pieces
        self._begin = 0
        self._data = b""

    def read(self, start: int, count: int) -> bytes:
        """Return bytes from `start` on; see `ArchiveBytes.read`."""
        self._go_to(start)
        parts = [self._data]
        have = len(self._data)
        while have < count and (piece := next(self._pieces, b"")):
            parts.append(piece)
            have += len(piece)
        self._data = b"".join(parts)
        return self._data[:count]

    def reaches(self, stop: int) -> bool:
        """Tell whether there are that many bytes."""
        if stop > self.end:
            self._go_to(stop)
        return stop <= self.end

    @property
    def end(self) -> int:
        """How many bytes came so far."""
        return self._begin + len(self._data)

    def _go_to(self, start: int) -> None:
        while start > self.end:
            piece = next(self._pieces, b"")
            self._begin, self._data = self.end, piece
            if not piece:
                return
        self._begin, self._data = start, self._data[start - self._begin :]


def unpacked(pieces: Iterator[memoryview], where: str, most: int) -> Generator[bytes]:
    """Yield what the members of a gzip file expand to, in pieces.

    Raises:
        SourceFormatError: They are broken or cut short, or expand to more than `most` bytes.
    """
    decoder = zlib.decompressobj(_GZIP)
    is_begun = False
    count = 0
    for piece in pieces:
        rest = bytes(piece)
        while rest:
            if decoder.eof:
                rest = rest.lstrip(b"\0")  # some devices pad with zeros
                if not rest:
                    break
                decoder, is_begun = zlib.decompressobj(_GZIP), False
            try:
                out = decoder.decompress(rest, _PIECE)
            except zlib.error as error:
                msg = f"{where}: the gzip data is broken: {error}; fetch or write it again"
                raise SourceFormatError(msg) from error
            is_begun = True
            rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            count += len(out)
            if count > most:
                msg = (
                    f"{where}: it expands to more than {most} bytes, and has to be read whole; "
                    "write it uncompressed, or as several archives"
                )
                raise SourceFormatError(msg)
            if out:
                yield out
    if not (is_begun and decoder.eof):
        msg = f"{where}: the gzip data ends early; the file is cut short: fetch or write it again"
        raise SourceFormatError(msg)
