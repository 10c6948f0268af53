"""Compression by name."""

from __future__ import annotations

from streaming_core._codec import compressions, parse_compression
from streaming_core._virtual._kinds._inflate import Inflater

__all__ = [
    "compress",
    "decompress",
    "get_compression_extension",
    "get_compressions",
    "is_compression",
]

_MOST_RATIO = 1 << 20
_MORE = 0x80


def get_compressions() -> set[str]:
    """Return all names of compressions, such as `zstd` and `zstd:7`."""
    return set(compressions())


def is_compression(algo: str | None) -> bool:
    """Tell whether there is a compression of this name; None is one."""
    return algo is None or algo in compressions()


def get_compression_extension(algo: str) -> str:
    """Return what the names of compressed files end with, after a dot."""
    codec = parse_compression(algo)
    return "" if codec is None else codec.extension


def compress(algo: str | None, data: bytes) -> bytes:
    """Return bytes compressed, or as they are for None."""
    codec = parse_compression(algo)
    return data if codec is None else codec.compress([data])


def decompress(algo: str | None, data: bytes) -> bytes:
    """Return what bytes expand to, or the bytes for None.

    Example:
        >>> decompress("zstd", compress("zstd:7", b"abc"))
        b'abc'
    """
    codec = parse_compression(algo)
    if codec is None:
        return data
    if codec.code == "snappy":
        return codec.decompress(data, _snappy_size(data))
    expanding = Inflater(codec.code, "data", most_ratio=_MOST_RATIO, size=len(data))
    return b"".join(expanding.expand([data]))


def _snappy_size(data: bytes) -> int:
    """Return the number that a block of snappy begins with, seven bits in each byte."""
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & ~_MORE) << 7 * at
        if not byte & _MORE:
            break
    return size
