"""The kinds of shard: how samples become records, and records files."""

from streaming_core._format._open import Shard, open_shard

__all__ = ["Shard", "open_shard"]
