"""The kinds of shard: how samples become records, and records files."""

from streaming_core._format._gather import gather, gather_none
from streaming_core._format._merge import common_dtype
from streaming_core._format._open import open_shard
from streaming_core._format._shard import Shard
from streaming_core._format._start import with_checked_start

__all__ = ["Shard", "common_dtype", "gather", "gather_none", "open_shard", "with_checked_start"]
