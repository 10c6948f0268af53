"""The loader."""

from __future__ import annotations

from streaming_reader.loader import StreamingDataLoader

__all__ = ["StreamingDataLoader"]
