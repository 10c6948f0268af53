"""Shards that are wanted, brought in time."""

from streaming_reader._fetch._fetcher import BUDGET_BYTES, Fetcher

__all__ = ["BUDGET_BYTES", "Fetcher"]
