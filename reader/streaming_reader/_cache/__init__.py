"""Shards in a local folder: fetched once per node, checked, kept within a limit, mapped."""

from __future__ import annotations

from streaming_reader._cache._arrays import SharedArrays
from streaming_reader._cache._cache import ShardCache
from streaming_reader._cache._counts import Counts
from streaming_reader._cache._group import CacheGroup
from streaming_reader._cache._kept import Kept, kept_below, remove_kept, tidy
from streaming_reader._cache._locks import while_locked
from streaming_reader._cache._made import Maker
from streaming_reader._cache._mapped import touch_pages
from streaming_reader._cache._places import CONTROL, SOURCE, same_folder
from streaming_reader._cache._rate_limit import NodeRateLimiter
from streaming_reader._cache._settings import CacheSettings

__all__ = [
    "CONTROL",
    "SOURCE",
    "CacheGroup",
    "CacheSettings",
    "Counts",
    "Kept",
    "Maker",
    "NodeRateLimiter",
    "ShardCache",
    "SharedArrays",
    "kept_below",
    "remove_kept",
    "same_folder",
    "tidy",
    "touch_pages",
    "while_locked",
]
