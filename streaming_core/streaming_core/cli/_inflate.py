"""Reading compressed files whose expanded size nobody recorded, within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from streaming_core._codec._zstd_frames import FrameError, frame_header
from streaming_core.errors import DecompressionError, ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming_core._codec import Compression

__all__ = ["Beginning", "inflate"]

_VARINT_BYTES: Final = 5


def inflate(codec: Compression, data: bytes, limit: int, *, where: str) -> bytes:
    """Return what `data` expand to, at most `limit` bytes; `DecompressionError` otherwise.

    Expands twice, so that no more than the result is held: once to learn the size, once to have it.

    Example:
        >>> from streaming_core._codec import parse_compression
        >>> codec = parse_compression("gz")
        >>> inflate(codec, codec.compress([bytes(5000)]), 1 << 20, where="a") == bytes(5000)
        True
    """
    size = 0
    first: DecompressionError | None = None
    try:
        for piece in _pieces(codec, data, limit, where):
            size += len(piece)
    except DecompressionError as error:
        first = error  # also how an end before the limit is told
    try:
        return codec.decompress(data, size, where=where)
    except DecompressionError as error:
        raise (first or error) from None


@final
class Beginning:
    """The first bytes of a compressed file, expanded as far as they are asked for."""

    def __init__(self, codec: Compression, data: bytes, limit: int, *, where: str) -> None:
        self._where = where
        self._pieces = _pieces(codec, data, limit, where)
        self._have = bytearray()

    def read(self, count: int) -> bytes:
        """Return the first `count` bytes; `ShardCorruptError` if there are fewer."""
        while len(self._have) < count:
            piece = next(self._pieces, None)
            if piece is None:
                msg = f"{self._where}: required {count} bytes of header, came {len(self._have)}"
                raise ShardCorruptError(msg)
            self._have += piece
        return bytes(self._have[:count])


def _pieces(codec: Compression, data: bytes, limit: int, where: str) -> Iterator[bytes]:
    declared = _declared(codec, data)
    if declared is not None and declared > limit:
        msg = (
            f"{where}: declares {declared} bytes, more than the {limit} allowed; "
            "raise it with --max-shard-bytes"
        )
        raise DecompressionError(msg)
    return codec.decompress_stream([data], limit if declared is None else declared, where=where)


def _declared(codec: Compression, data: bytes) -> int | None:
    """Return the size that the data say they expand to, None where they do not tell."""
    if codec.code == "snappy":
        return _varint(data)
    if codec.code != "zstd":
        return None
    try:
        header = frame_header(data)
    except FrameError:
        return None  # told by whoever expands it
    return None if header is None or header.skip is not None else header.content


def _varint(data: bytes) -> int:
    """Return the number that `data` start with, low seven bits first."""
    size = 0
    for at, byte in enumerate(data[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more follows
            break
    return size
