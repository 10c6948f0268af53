"""Rows of shards that are not here, read by ranges of bytes: first batches and random access."""

from __future__ import annotations

from streaming_reader._ranged._announced import Announced, Outlook
from streaming_reader._ranged._choice import Line
from streaming_reader._ranged._forerun import Forerun
from streaming_reader._ranged._origin import Origin
from streaming_reader._ranged._ranged import RangeCounts, Ranged, rows_by_shard

__all__ = [
    "Announced",
    "Forerun",
    "Line",
    "Origin",
    "Outlook",
    "RangeCounts",
    "Ranged",
    "rows_by_shard",
]
