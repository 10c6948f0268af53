"""Shards that are wanted, brought in time."""

from streaming_reader._fetch._fetcher import Fetcher

__all__ = ["Fetcher"]
