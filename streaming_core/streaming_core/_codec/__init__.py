"""Compression and hashing by name; knows no shard format."""

from streaming_core._codec._buffers import Buffer
from streaming_core._codec._compression import Compression, compressions, parse_compression
from streaming_core._codec._hashing import Hasher, check_hashes, digest, digests, hash_names

__all__ = [
    "Buffer",
    "Compression",
    "Hasher",
    "check_hashes",
    "compressions",
    "digest",
    "digests",
    "hash_names",
    "parse_compression",
]
