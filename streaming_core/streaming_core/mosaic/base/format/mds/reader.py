"""MDS shards, one after the other."""

from __future__ import annotations

from streaming_reader._shards import ShardReader

__all__ = ["MDSReader"]

MDSReader = ShardReader
