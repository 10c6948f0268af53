"""The names that one call takes for source, data set, loader and transforms, and who gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.context import BaseContext

    from torch import Generator

    from streaming_core._store import StorageOptions
    from streaming_core._world import World
    from streaming_reader._batch import BatchFormat, RaggedForm
    from streaming_reader._pipeline._transforms import BatchTransform, RowFilter, RowTransform
    from streaming_reader.stream import Stream

__all__ = [
    "DATASET",
    "ELSEWHERE",
    "LOADER",
    "SOURCE",
    "TRANSFORMS",
    "WORLD",
    "PipelineOptions",
    "SourceOptions",
]


class SourceOptions(TypedDict, total=False):
    """Where samples come from, as `Stream` takes it."""

    remote: str | os.PathLike[str] | None
    local: str | os.PathLike[str] | None
    split: str | None
    proportion: float | None
    repeat: float | None
    choose: int | None
    download_retry: int | None
    download_timeout: float | None
    validate_hash: str | None
    keep_zip: bool | None
    storage_options: StorageOptions | None
    format: str | None
    columns: Sequence[str] | None
    filters: object
    nulls: object
    format_options: Mapping[str, Any] | None
    index: str | os.PathLike[str] | None


class PipelineOptions(SourceOptions, total=False):
    """What `create_dataloader` takes besides the place and the size of batches."""

    streams: Sequence[Stream | Mapping[str, Any]] | None
    # Order, as `StreamingDataset` takes it.
    shuffle: bool
    shuffle_seed: int
    shuffle_algo: str
    shuffle_block_size: int | None
    epoch_size: int | str | None
    predownload: int | None
    cache_limit: int | str | None
    sampling_method: str
    sampling_granularity: int
    partition_algo: str
    num_canonical_nodes: int | None
    batching_method: str
    allow_unsafe_types: bool
    replication: int | None
    # Who this process is, where its launcher does not say.
    world: World | None
    rank: int | None
    num_ranks: int | None
    ranks_per_node: int | None
    # What becomes of samples.
    transform: RowTransform | Sequence[RowTransform] | None
    filter: RowFilter | None
    batch_transform: BatchTransform | None
    # Loading, as `StreamingDataLoader` takes it.
    batch_format: BatchFormat
    ragged: RaggedForm
    num_workers: int
    drop_last: bool
    collate_fn: Callable[[Any], Any] | None
    pin_memory: bool
    pin_memory_device: str
    prefetch_factor: int | None
    persistent_workers: bool
    multiprocessing_context: BaseContext | str | None
    worker_init_fn: Callable[[int], None] | None
    timeout: float
    generator: Generator | None
    in_order: bool


SOURCE: Final = frozenset(SourceOptions.__annotations__)
"""What each source takes; with several, what is given outside of them holds for all."""
WORLD: Final = frozenset({"world", "rank", "num_ranks", "ranks_per_node"})
TRANSFORMS: Final = frozenset({"transform", "filter", "batch_transform"})
DATASET: Final = frozenset(
    {
        *("shuffle", "shuffle_seed", "shuffle_algo", "shuffle_block_size", "epoch_size"),
        *("predownload", "cache_limit", "sampling_method", "sampling_granularity"),
        *("partition_algo", "num_canonical_nodes", "batching_method", "allow_unsafe_types"),
        "replication",
    }
)
LOADER: Final = (
    frozenset(PipelineOptions.__annotations__) - SOURCE - WORLD - TRANSFORMS - DATASET - {"streams"}
)

ELSEWHERE: Final = {
    "output_format": "it is batch_format here",
    "shuffle_buffer_size": "it is shuffle_block_size here, how far a sample may travel",
    "seed": "it is shuffle_seed here",
    "partitioning": "folders named key=value become columns by themselves",
    "split_bytes": "files are cut by themselves",
    "split_rows": "files are cut by themselves",
    "split_strategy": "files are cut, and dealt out to ranks, by themselves",
    "sampler": "the data set has its own order; see shuffle and shuffle_algo",
    "batch_sampler": "the data set has its own order; see shuffle and batching_method",
}
"""What other tools call it."""
