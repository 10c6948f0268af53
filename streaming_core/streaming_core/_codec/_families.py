"""The families that the standard library and small optional packages bring: bz2, gz, br, snappy."""

from __future__ import annotations

import bz2
import io
import zlib
from typing import TYPE_CHECKING, Any

from streaming_core._codec._buffers import Buffer, byte_views, gathered
from streaming_core._codec._inflate import Codec, Decoder, StreamCodec, Wanted
from streaming_core._extras import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Brotli", "Bzip2", "Gzip", "Snappy"]

_GZIP_BITS = 31  # the largest window, 15, plus 16 for "with a gzip header and trailer"
_SNAPPY_MOST = (1 << 32) - 1
_VARINT_BYTES = 5
# The library's buffer grows in steps that reach to twice its limit, and is then copied.
_BROTLI_PIECE = 1 << 20


class Bzip2(StreamCodec):
    """bzip2 as the standard library does it."""

    code = "bz2"
    levels = range(1, 10)
    default = 9

    def compress(self, views: Sequence[memoryview], level: int) -> bytes:
        """Return one bzip2 stream."""
        return bz2.compress(gathered(views), level)

    def decoder(self, limit: int) -> Decoder:
        """Return the decoder of one stream."""
        del limit  # its memory does not depend on what the data claim
        return bz2.BZ2Decompressor()

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what the decoder raises."""
        return OSError, ValueError


class Gzip(StreamCodec):
    """gzip without a time stamp, so that equal data give equal files."""

    code = "gz"
    levels = range(10)
    default = 9

    def compress(self, views: Sequence[memoryview], level: int) -> bytes:
        """Return one gzip member."""
        # In one piece: at some levels the result depends on how the data are handed over.
        compressor = zlib.compressobj(level, wbits=_GZIP_BITS)
        return compressor.compress(gathered(views)) + compressor.flush()

    def decoder(self, limit: int) -> Decoder:
        """Return the decoder of one member."""
        del limit  # its memory does not depend on what the data claim
        return _GzipDecoder()

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what the decoder raises."""
        return (zlib.error,)


class _GzipDecoder:
    """`zlib.decompressobj` with the manners of `BZ2Decompressor`."""

    def __init__(self) -> None:
        self._object = zlib.decompressobj(wbits=_GZIP_BITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data

    def decompress(self, data: Buffer, max_length: int, /) -> bytes:
        out = self._object.decompress(self._object.unconsumed_tail or data, max_length)
        # A full output may leave more inside zlib even when all input was taken.
        self.needs_input = not self._object.unconsumed_tail and len(out) < max_length
        return out


class Brotli(StreamCodec):
    """Brotli; needs the extra `brotli`."""

    code = "br"
    levels = range(12)
    default = 11
    multi_member = False

    @staticmethod
    def _library() -> Any:  # noqa: ANN401 - an untyped module
        return require("brotli", extra="brotli", purpose="compression 'br'")

    def compress(self, views: Sequence[memoryview], level: int) -> bytes:
        """Return one Brotli stream."""
        packed: bytes = self._library().compress(gathered(views), quality=level)
        return packed

    def decoder(self, limit: int) -> Decoder:
        """Return the decoder of one stream."""
        del limit  # a window has 16 MiB at most
        return _BrotliDecoder(self._library().Decompressor())

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what the decoder raises."""
        return (self._library().error,)


class _BrotliDecoder:
    """`brotli.Decompressor` with the manners of `BZ2Decompressor`."""

    unused_data = b""  # bytes after the end are an error to the library

    def __init__(self, decompressor: Any) -> None:  # noqa: ANN401 - from an untyped module
        self._object = decompressor
        self.eof = False
        self.needs_input = True

    def decompress(self, data: Buffer, max_length: int, /) -> bytes:
        limit = min(max_length, _BROTLI_PIECE)
        out: bytes = self._object.process(data, output_buffer_limit=limit)
        self.eof = bool(self._object.is_finished())
        # A full output may leave more inside even when all input was taken.
        more = len(out) >= limit or not self._object.can_accept_more_data()
        self.needs_input = not self.eof and not more
        return out


class Snappy(Codec):
    """Snappy's raw block format; needs the extra `snappy`.

    python-snappy wraps cramjam, and copies every result byte by byte while it holds the
    interpreter's lock; cramjam itself is four to seven times as fast and does not hold it.
    """

    code = "snappy"

    @staticmethod
    def _library() -> Any:  # noqa: ANN401 - a module that may be missing
        return require("cramjam", extra="snappy", purpose="compression 'snappy'")

    def compress(self, views: Sequence[memoryview], level: int) -> bytes:
        """Return one block."""
        del level  # it has none
        return memoryview(self._library().snappy.compress_raw(gathered(views))).tobytes()

    def stream(self, chunks: Iterable[Buffer], wanted: Wanted) -> Iterator[bytes]:
        """Yield what `chunks` expand to, in one piece: a block's end may refer to its start."""
        parts: list[bytes] = []
        # No block is longer than this, so nothing is gathered in vain.
        room = wanted.size + wanted.size // 6 + 32
        for view in byte_views(chunks):
            room -= len(view)
            if room < 0:
                text = f"is longer than any block of {wanted.size} bytes"
                raise wanted.error(text)
            parts.append(bytes(view))
        out = self.whole(memoryview(b"".join(parts)), wanted)
        if out:
            yield out

    def whole(self, data: memoryview, wanted: Wanted) -> bytes:
        """Return what `data` expands to."""
        declared = _snappy_size(data)
        if declared is None:
            text = "does not start with a length"
            raise wanted.error(text)
        if declared != wanted.size:
            text = f"declares {declared} bytes, not the {wanted.size} expected"
            raise wanted.error(text)
        out = io.BytesIO()
        if declared:
            out.seek(declared - 1)
            out.write(b"\0")
        library = self._library()
        try:
            with out.getbuffer() as view:
                library.snappy.decompress_raw_into(data, view)
        except library.DecompressionError as error:
            text = f"is broken: {error}"
            raise wanted.error(text) from error
        return out.getvalue()


def _snappy_size(data: memoryview) -> int | None:
    """Return the length that a block declares in its first bytes, low seven bits first."""
    size = 0
    for at, byte in enumerate(data[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more follows
            return size if size <= _SNAPPY_MOST else None
    return None
