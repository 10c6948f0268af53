"""The writer of MDS shards."""

from __future__ import annotations

from streaming_writer import MDSWriter

__all__ = ["MDSWriter"]
