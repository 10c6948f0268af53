"""Looking ahead in an archive from several places at once, where hopping would wait long."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from streaming_core._virtual._kinds._tar_headers import BLOCK_BYTES, Header, next_of, parse_header
from streaming_core._virtual._model import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["scouted"]

_MARK: Final = b"ustar"
_MARK_AT: Final = 257
_SEARCH_BYTES: Final = 256 << 10
_MOST_SEARCHED: Final = 4
"""Strides after which a scout that found no header gives up: it may be within a huge file."""
_MOST_WINDOWS: Final = 64
"""A scout that comes to many small files leaves these to larger reads, and memory alone."""


def scouted(
    read: Callable[[Sequence[tuple[int, int]]], Sequence[Piece]],
    bounds: Sequence[int],
    stride: int,
    window: int,
) -> list[Piece]:
    """Return windows of bytes that begin with headers, as they are likely to be read next.

    One scout begins at each of `bounds` but the last and goes on to the next one; all of them ask
    at the same time. The first bound is where a header is; at others it is searched for, which may
    find something that only looks like one: so these are guesses what to read, not what is there.
    `stride` is about how far headers are apart.
    """
    scouts = [
        _Scout(begin - begin % BLOCK_BYTES, end, window, most=_MOST_SEARCHED * stride)
        for begin, end in itertools.pairwise(bounds)
    ]
    scouts[0].is_found = True
    windows: list[Piece] = []
    while asked := [scout for scout in scouts if scout.at < scout.end]:
        pieces = read([scout.wanted(bounds[-1]) for scout in asked])
        for scout, piece in zip(asked, pieces, strict=True):
            windows += scout.take(piece)
    return sorted(windows)


class _Scout:
    """Goes from header to header between two places."""

    def __init__(self, at: int, end: int, window: int, most: int) -> None:
        self.at = at
        self.end = end
        self.is_found = False
        self._window = window
        self._give_up = at + most
        self._windows = _MOST_WINDOWS

    def wanted(self, last: int) -> tuple[int, int]:
        """Return which bytes to read next."""
        return self.at, min(last, self.at + (self._window if self.is_found else _SEARCH_BYTES))

    def take(self, piece: Piece) -> list[Piece]:
        """Go on with the bytes that were wanted; return those worth keeping, if any."""
        data = piece.data
        if not self.is_found:
            found = _first_header(data)
            if found is None:
                self.at += max(BLOCK_BYTES, len(data))
                if self.at >= self._give_up:
                    self.at = self.end
                return []
            self.is_found = True
            self.at += found
            data = data[found:]
        begin = self.at
        self._windows -= 1
        while self.at < self.end:
            at = self.at - begin
            if at + BLOCK_BYTES > len(data):
                break
            header = parse_header(data[at : at + BLOCK_BYTES])
            if not isinstance(header, Header):
                self.at = self.end
                break
            self.at = next_of(header, self.at)
        if self.at == begin or not self._windows:
            self.at = self.end
        return [Piece(begin, data)]


def _first_header(data: bytes) -> int | None:
    """Return where the first block begins that looks like a header."""
    at = data.find(_MARK, _MARK_AT)
    while at >= 0:
        begin = at - _MARK_AT
        if not begin % BLOCK_BYTES and isinstance(
            parse_header(data[begin : begin + BLOCK_BYTES]), Header
        ):
            return begin
        at = data.find(_MARK, at + 1)
    return None
