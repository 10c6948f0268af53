"""Expanding blocks whose size nobody wrote down, in bounded memory."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import TYPE_CHECKING, Final

from streaming_core._codec._zstd import Zstd
from streaming_core._extras import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._codec._inflate import Decoder

__all__ = ["CODECS", "ExpandError", "expand"]

_ZSTD: Final = Zstd()
_LZMA_MEMORY: Final = 1 << 28
_VARINT_BYTES: Final = 5


class ExpandError(ValueError):
    """A block that is broken, or expands to more than was allowed; says which."""


def expand(codec: str, data: bytes | memoryview, most: int) -> bytes:
    """Return what a block expands to: `most` bytes at most, and never much more memory.

    `codec` is one of `CODECS`: `deflate` is raw, without a header, and may be followed by bytes
    that are ignored; `snappy` and `lz4` are raw blocks; the others are streams of one member or
    several.

    Raises:
        ExpandError: The block is broken, cut off, or expands to more.

    Example:
        >>> expand("bzip2", bz2.compress(b"abc"), 3)
        b'abc'
    """
    try:
        return CODECS[codec](data, most)
    except _broken() as error:
        msg = f"a {codec} block is broken: {error!s:.200}"
        raise ExpandError(msg) from error


def _broken() -> tuple[type[Exception], ...]:
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    return (OSError, EOFError, lzma.LZMAError, zlib.error, arrow.ArrowException, *_ZSTD.errors())


def _deflate(data: bytes | memoryview, most: int) -> bytes:
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    out = decoder.decompress(data, most + 1)
    _check(len(out), most)
    if not decoder.eof:
        msg = "it ends before its end"
        raise EOFError(msg)
    return out


def _members(start: Callable[[int], Decoder]) -> Callable[[bytes | memoryview, int], bytes]:
    def run(data: bytes | memoryview, most: int) -> bytes:
        out = bytearray()
        rest = bytes(data)
        while rest:
            decoder = start(most - len(out))
            while not decoder.eof:
                if decoder.needs_input and not rest:
                    msg = "it ends before its end"
                    raise EOFError(msg)
                out += decoder.decompress(rest, most - len(out) + 1)
                rest = b""
                _check(len(out), most)
            rest = decoder.unused_data
        return bytes(out)

    return run


def _snappy(data: bytes | memoryview, most: int) -> bytes:
    size = shift = 0
    for byte in data[:_VARINT_BYTES]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    else:
        msg = "it does not start with a length"
        raise EOFError(msg)
    _check(size, most)
    return _arrow_codec("snappy", data, size)


def _lz4(data: bytes | memoryview, most: int) -> bytes:
    size = _lz4_size(data)
    _check(size, most)
    return _arrow_codec("lz4_raw", data, size)


def _lz4_size(data: bytes | memoryview) -> int:
    """Return what a block expands to, which it does not say: the sum of all its sequences."""
    try:
        at = total = 0
        while True:
            token = data[at]
            literals, at = _lz4_length(data, at + 1, token >> 4)
            total += literals
            at += literals
            if at >= len(data):  # the last sequence is without a match
                return total
            match, at = _lz4_length(data, at + 2, token & 15)
            total += match + 4
    except IndexError as error:
        msg = "it ends within a sequence"
        raise EOFError(msg) from error


def _lz4_length(data: bytes | memoryview, at: int, first: int) -> tuple[int, int]:
    """Return a length that begins with four bits, and where what follows it begins."""
    length = first
    more = first == 15  # noqa: PLR2004 - all four bits
    while more:
        length += data[at]
        more = data[at] == 255  # noqa: PLR2004 - a full byte: another follows
        at += 1
    return length, at


def _arrow_codec(name: str, data: bytes | memoryview, size: int) -> bytes:
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    found: bytes = arrow.Codec(name).decompress(data, decompressed_size=size, asbytes=True)
    return found


def _check(size: int, most: int) -> None:
    if size > most:
        msg = f"a block expands to more than the {most} bytes allowed"
        raise ExpandError(msg)


CODECS: Final[dict[str, Callable[[bytes | memoryview, int], bytes]]] = {
    "bzip2": _members(lambda most: bz2.BZ2Decompressor()),  # noqa: ARG005 - it takes none
    "deflate": _deflate,
    "lz4": _lz4,
    "snappy": _snappy,
    "xz": _members(lambda most: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)),  # noqa: ARG005
    "zstd": _members(_ZSTD.decoder),
}
"""Every codec by its name."""
