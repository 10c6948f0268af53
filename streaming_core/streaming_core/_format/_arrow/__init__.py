"""Rows that lie in an Arrow file: what virtual shards are decoded to, once for all processes."""

from __future__ import annotations

from streaming_core._format._arrow._gather import gather_arrow, no_arrow
from streaming_core._format._arrow._shard import ArrowShard, open_arrow_shard
from streaming_core._format._arrow._varying import joined

__all__ = ["ArrowShard", "gather_arrow", "joined", "no_arrow", "open_arrow_shard"]
