"""One shard after the other, without a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_core._index import FileInfo
from streaming_reader._shards import ShardReader

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FileInfo", "Reader", "reader_from_json"]

Reader = ShardReader


def reader_from_json(dirname: str, split: str | None, obj: Mapping[str, Any]) -> ShardReader:
    """Return the shard that an entry of `index.json` describes, whose files are in a folder."""
    return ShardReader(dirname, split, **obj)
