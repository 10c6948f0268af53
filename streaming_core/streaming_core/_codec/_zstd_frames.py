"""Zstandard's frame layout (RFC 8878), as far as bounding and checking a decompression needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._codec._buffers import Buffer

__all__ = ["FrameDecoder", "FrameError", "FrameHeader", "frame_header", "window_cap"]

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50  # the last four bits are free
_BLOCK_MOST = 1 << 17
_RLE, _COMPRESSED, _RESERVED = 1, 2, 3
_ORDINARY_WINDOW = 1 << 27
_LONGEST_WINDOW = 1 << 31  # what zstd can be told at all


class FrameError(ValueError):
    """Bytes that are no frame, or a frame that is refused unseen."""


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """What a frame says of itself before its first block."""

    size: int
    """Bytes of the header."""
    content: int | None
    """Bytes that the frame expands to, where it says so."""
    window: int
    """How far back a block may refer, which is what a decoder keeps."""
    checksum: bool
    """Whether four bytes of checksum follow the last block."""
    skip: int | None = None
    """For a skippable frame, the bytes that follow the header."""


def frame_header(data: Buffer) -> FrameHeader | None:
    """Return the header that `data` starts with, or None where more bytes are needed.

    Example:
        >>> frame_header(bytes.fromhex("28b52ffd2003")).content
        3
    """
    head = bytes(data[:18])
    if len(head) < 5:  # noqa: PLR2004 - magic and descriptor
        return None
    magic = int.from_bytes(head[:4], "little")
    if magic & ~0xF == _SKIPPABLE:
        skip = int.from_bytes(head[4:8], "little")
        return FrameHeader(8, 0, 0, checksum=False, skip=skip) if len(head) >= 8 else None  # noqa: PLR2004
    if magic != _MAGIC:
        text = f"a frame starts with 28b52ffd, these bytes with {head[:4].hex()}"
        raise FrameError(text)
    descriptor = head[4]
    single = bool(descriptor & 0x20)
    at = 5 if single else 6
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    if len(head) < at + dictionary + width:
        return None
    field = head[at + dictionary : at + dictionary + width]
    content = int.from_bytes(field, "little") + (256 if width == 2 else 0) if width else None  # noqa: PLR2004
    window = content or 0
    if not single:
        base = 1 << (10 + (head[5] >> 3))
        window = base + (base >> 3) * (head[5] & 7)
    return FrameHeader(at + dictionary + width, content, window, bool(descriptor & 4))


def window_cap(size: int) -> int:
    """Return the largest window accepted for content of `size` bytes.

    Level 22 asks for 128 MiB even where the content is small and its size unknown when the frame
    began; it is zstd's own limit too. A longer window (`--long`) is of use only to longer content.
    The decoder's memory is touched only as far as content comes out, so a false claim costs none.
    """
    return min(max(_ORDINARY_WINDOW, 1 << max(size - 1, 0).bit_length()), _LONGEST_WINDOW)


class _Expander(Protocol):
    """A push decoder without a bound on its output, as `zstandard` offers."""

    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class FrameDecoder:
    """Expands one frame a few whole blocks at a time, so that the output of a step is bounded.

    The library behind it returns all that its input expands to, and does not tell a cut frame from
    a whole one. Blocks state their length, and none expands to more than 128 KiB.
    """

    def __init__(self, limit: int, expander: Callable[[int], _Expander]) -> None:
        """Refuse frames that declare more than `limit` bytes; `expander` takes the window's cap."""
        self._limit = limit
        self._open = expander
        self._expander: _Expander | None = None
        self._pending = bytearray()
        self._skip = 0
        self._header: FrameHeader | None = None
        self._last_seen = False
        self.eof = False
        self.needs_input = True

    @property
    def unused_data(self) -> bytes:
        """What was given beyond the frame's end."""
        return bytes(self._pending) if self.eof else b""

    def decompress(self, data: Buffer, max_length: int, /) -> bytes:
        """Take `data` and return at most `max_length` bytes, or one block if that is more."""
        self._pending += data
        if self._header is None:
            self._begin()
        out = b""
        if self._header is not None:
            out = self._pass_over() if self._expander is None else self._expand(max_length)
        self.needs_input = not self.eof and (
            self._header is None or self._expander is None or self._unit(0) is None
        )
        return out

    def _begin(self) -> None:
        header = frame_header(self._pending)
        if header is None:
            return
        if header.skip is not None:
            self._skip = header.size + header.skip
        else:
            if (header.content or 0) > self._limit:
                text = f"a frame declares {header.content} bytes, where at most {self._limit} fit"
                raise FrameError(text)
            cap = window_cap(self._limit)
            if header.window > cap:
                text = f"a frame wants a window of {header.window} bytes, more than {cap}"
                raise FrameError(text)
            self._expander = self._open(cap)
            self._expander.decompress(bytes(self._pending[: header.size]))
            del self._pending[: header.size]
        self._header = header

    def _pass_over(self) -> bytes:
        passed = min(self._skip, len(self._pending))
        del self._pending[:passed]
        self._skip -= passed
        self.eof = not self._skip
        return b""

    def _unit(self, at: int) -> tuple[int, int, bool] | None:
        """Return length, largest output and finality of the block at `at`; None if it is not whole.

        The checksum counts as part of the last block.
        """
        have = len(self._pending) - at
        if have < 3:  # noqa: PLR2004 - a block's header
            return None
        word = int.from_bytes(self._pending[at : at + 3], "little")
        last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
        if kind == _RESERVED or size > _BLOCK_MOST:
            text = f"a block has kind {kind} and size {size}; kinds are 0 to 2, sizes to 131072"
            raise FrameError(text)
        length = 3 + (1 if kind == _RLE else size)
        if last and self._header is not None and self._header.checksum:
            length += 4
        output = _BLOCK_MOST if kind == _COMPRESSED else size
        return (length, output, last) if have >= length else None

    def _expand(self, max_length: int) -> bytes:
        if self._expander is None:
            return b""
        take = total = 0
        last = False
        while not last and (unit := self._unit(take)) is not None:
            length, output, last = unit
            if take and total + output > max_length:
                last = False
                break
            take += length
            total += output
        if not take:
            return b""
        out = self._expander.decompress(bytes(self._pending[:take]))
        del self._pending[:take]
        if last and not self._expander.eof:
            text = "the library sees no end of the frame after its last block"
            raise FrameError(text)
        self.eof = last
        return out
