"""What the indexes say of shards, looked up when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from streaming_core._index import ShardInfo
    from streaming_reader._catalogue import Catalogue

__all__ = ["ShardInfos", "Spanner"]


class ShardInfos(Sequence["ShardInfo"]):
    """All shards as the indexes describe them, made when looked at."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __len__(self) -> int:
        return self._catalogue.num_shards

    @overload
    def __getitem__(self, at: int) -> ShardInfo: ...
    @overload
    def __getitem__(self, at: slice) -> list[ShardInfo]: ...
    def __getitem__(self, at: int | slice) -> ShardInfo | list[ShardInfo]:
        if isinstance(at, slice):
            return [self._catalogue.info(i) for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            msg = f"shard {at} is out of range: there are {len(self)}, counted from 0"
            raise IndexError(msg)
        return self._catalogue.info(at % len(self))


class Spanner:
    """From a sample's number to its shard and its row in there."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def __getitem__(self, sample: int) -> tuple[int, int]:
        if not 0 <= sample < self._catalogue.num_samples:
            msg = f"sample {sample} is out of range: there are {self._catalogue.num_samples}"
            raise IndexError(msg)
        return self._catalogue.find(sample)
