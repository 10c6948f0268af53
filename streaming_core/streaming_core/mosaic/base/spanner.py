"""From the number of a sample to its shard."""

from __future__ import annotations

from streaming_reader._located import Spanner

__all__ = ["Spanner"]
