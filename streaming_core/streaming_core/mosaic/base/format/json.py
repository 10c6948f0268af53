"""JSON shards."""

from __future__ import annotations

from streaming_writer import JSONWriter

__all__ = ["JSONWriter"]
