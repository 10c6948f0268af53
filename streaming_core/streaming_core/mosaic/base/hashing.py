"""Hashes by name."""

from __future__ import annotations

from streaming_core._codec import digest, hash_names

__all__ = ["get_hash", "get_hashes", "is_hash"]


def get_hashes() -> set[str]:
    """Return the names of all hashes."""
    return set(hash_names())


def is_hash(algo: str) -> bool:
    """Tell whether there is a hash of this name."""
    return algo in hash_names()


def get_hash(algo: str, data: bytes) -> str:
    """Return the hash of some bytes, in hexadecimal digits.

    Example:
        >>> get_hash("md5", b"abc")
        '900150983cd24fb0d6963f7d28e17f72'
    """
    return digest(algo, [data])
