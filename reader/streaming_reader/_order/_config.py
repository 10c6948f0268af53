"""What a user chooses about the order, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

from streaming_core._arguments import checked
from streaming_core.errors import OrderError

__all__ = [
    "BatchingMethod",
    "OrderConfig",
    "PartitionAlgo",
    "SamplingMethod",
    "ShuffleAlgo",
]

ShuffleAlgo = Literal["naive", "py1s", "py1b", "py1br", "py1e", "py2s", "windowed"]
SamplingMethod = Literal["balanced", "fixed"]
PartitionAlgo = Literal["orig", "relaxed"]
BatchingMethod = Literal["random", "stratified", "per_stream", "device_per_stream"]

_NODES_PER_NODE: Final = {"py1s": 64, "py2s": 64}
_DEFAULT_BLOCK: Final = 1 << 18
_DEFAULT_BLOCK_OF_ALL_NODES: Final = 4_000_000
_MOST_DEFAULT_WINDOWED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OrderConfig:
    """The settings that an order depends on, besides the data, the world and the epoch.

    Example:
        >>> config = OrderConfig(batch_size=8, shuffle=True)
        >>> config.canonical_nodes(num_nodes=2), config.block_size(canonical_nodes=2)
        (2, 2000000)
    """

    batch_size: int
    """Samples of a batch of one rank."""
    shuffle: bool = False
    shuffle_algo: ShuffleAlgo = "py1e"
    shuffle_seed: int = 9176
    shuffle_block_size: int | None = None
    """How far a sample may travel; None: see `block_size`."""
    num_canonical_nodes: int | None = None
    """In how many pieces the order is made; None: see `canonical_nodes`."""
    sampling_method: SamplingMethod = "balanced"
    """`balanced` draws other samples of a part-used shard each epoch, `fixed` the same."""
    sampling_granularity: int = 1
    """How many samples of a shard are drawn together (not for `windowed`)."""
    partition_algo: PartitionAlgo = "relaxed"
    batching_method: BatchingMethod = "random"

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in checked(given, required=("batch_size",), error=OrderError).items():
            object.__setattr__(self, name, value)

    @property
    def draws_by_epoch(self) -> bool:
        """Whether the number of samples drawn from each shard changes with the epoch."""
        return self.shuffle and self.sampling_method == "balanced"

    @property
    def windowed(self) -> bool:
        """Whether the order is computed in windows, without any array as long as the data."""
        return self.shuffle_algo == "windowed"

    def canonical_nodes(self, num_nodes: int) -> int:
        """Return the number of canonical nodes for a run that starts on `num_nodes`."""
        if self.num_canonical_nodes is not None:
            return self.num_canonical_nodes
        return num_nodes * _NODES_PER_NODE.get(self.shuffle_algo, 1)

    def block_size(self, canonical_nodes: int) -> int:
        """Return the shuffle block size, which by default depends on the canonical nodes."""
        if self.shuffle_block_size is not None:
            return self.shuffle_block_size
        size = max(_DEFAULT_BLOCK_OF_ALL_NODES // canonical_nodes, _DEFAULT_BLOCK)
        # Each worker holds tables of a few of its blocks.
        return min(size, _MOST_DEFAULT_WINDOWED) if self.windowed else size
