"""The dataset."""

from __future__ import annotations

from streaming_core.mosaic._lazy import lazily
from streaming_reader.dataset import StreamingDataset

__all__ = ["StreamingDataset"]

__getattr__, __dir__ = lazily(
    __name__,
    dict.fromkeys(__all__, __name__),
    {
        "_Iterator": (
            "nothing can be changed about an iteration from outside; override __getitem__ or "
            "__iter__ of StreamingDataset, and use its state_dict"
        ),
        "_ShardState": (
            "which shards are here is in the cache folder, not in memory; use prepare_shard and "
            "evict_shard of StreamingDataset"
        ),
    },
)
