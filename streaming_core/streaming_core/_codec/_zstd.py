"""Zstandard, by the standard library from Python 3.14 on, else by the package `zstandard`."""

from __future__ import annotations

import io
import sys
import threading
from typing import TYPE_CHECKING, Any

from streaming_core._codec._buffers import gathered
from streaming_core._codec._inflate import Decoder, StreamCodec, Wanted
from streaming_core._codec._zstd_frames import (
    FrameDecoder,
    FrameError,
    frame_header,
    window_cap,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    import zstandard as zstd

__all__ = ["Zstd"]

# One call on the whole is faster than steps on text and tokens, equal on noise, and takes the
# interpreter's lock once, where steps wait for it each time. Beyond this its copy and its output
# (allocated for the worst case) weigh more than that.
_ONE_CALL_BYTES = 256 << 20
_CHUNK_BYTES = 16 << 20


class _Contexts(threading.local):
    """The contexts of one thread, which cost more to make than a small frame takes to write."""

    level: int | None = None
    compressor: zstd.ZstdCompressor


_contexts = _Contexts()


def _compressor(level: int) -> zstd.ZstdCompressor:
    if _contexts.level != level:
        _contexts.compressor = zstd.ZstdCompressor(level=level)
        _contexts.level = level
    return _contexts.compressor


if sys.version_info >= (3, 14):

    def _compress(views: Sequence[memoryview], level: int) -> bytes:
        total = sum(map(len, views))
        compressor = _compressor(level)
        compressor.set_pledged_input_size(total)
        if total <= _ONE_CALL_BYTES:
            return compressor.compress(gathered(views), compressor.FLUSH_FRAME)
        out = io.BytesIO()
        for view in views:
            for at in range(0, len(view), _CHUNK_BYTES):
                out.write(compressor.compress(view[at : at + _CHUNK_BYTES], compressor.CONTINUE))
        out.write(compressor.flush(compressor.FLUSH_FRAME))
        return out.getvalue()

    def _decoder(limit: int) -> Decoder:
        exponent = window_cap(limit).bit_length() - 1
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: exponent})

    def _one_call(data: memoryview, size: int) -> bytes | None:
        """Return None: the library's one call would hold the result twice."""
        del data, size
        return None

else:

    def _compress(views: Sequence[memoryview], level: int) -> bytes:
        total = sum(map(len, views))
        compressor = _compressor(level)
        if total <= _ONE_CALL_BYTES:
            return compressor.compress(gathered(views))
        out = io.BytesIO()
        chunker: Any = compressor.chunker(size=total, chunk_size=_CHUNK_BYTES)
        for view in views:
            for chunk in chunker.compress(view):
                out.write(chunk)
        for chunk in chunker.finish():
            out.write(chunk)
        return out.getvalue()

    def _decoder(limit: int) -> Decoder:
        return FrameDecoder(
            limit, lambda window: zstd.ZstdDecompressor(max_window_size=window).decompressobj()
        )

    def _one_call(data: memoryview, size: int) -> bytes | None:
        """Return what the only frame, which declares `size` bytes, holds; None if it is not so."""
        try:
            out = zstd.ZstdDecompressor().decompress(
                data, max_output_size=size, allow_extra_data=False
            )
        except zstd.ZstdError:
            return None
        return out if len(out) == size else None


class Zstd(StreamCodec):
    """Ordinary zstd frames that declare their content's size."""

    code = "zstd"
    levels = range(1, 23)
    default = 3

    def compress(self, views: Sequence[memoryview], level: int) -> bytes:
        """Return one frame."""
        return _compress(views, level)

    def decoder(self, limit: int) -> Decoder:
        """Return the decoder of one frame."""
        return _decoder(limit)

    def errors(self) -> tuple[type[Exception], ...]:
        """Return what the decoder raises."""
        return zstd.ZstdError, FrameError

    def whole(self, data: memoryview, wanted: Wanted) -> bytes:
        """Return what `data` expands to."""
        try:
            header = frame_header(data)
        except FrameError as error:
            text = f"is broken at byte 0: {error}"
            raise wanted.error(text) from error
        declared = header.content if header is not None else None
        if declared is not None and declared > wanted.size:
            text = f"declares {declared} bytes, not the {wanted.size} expected"
            raise wanted.error(text)
        if declared == wanted.size and (out := _one_call(data, wanted.size)) is not None:
            return out
        # Several frames, a size not declared, or an error: step by step tells where.
        return super().whole(data, wanted)
