"""Ranks of a job, and waiting for all of them."""

from __future__ import annotations

import sys
from typing import Any

from streaming_core._world import detect_world

__all__ = [
    "barrier",
    "get_local_rank",
    "get_local_world_size",
    "get_rank",
    "get_world_size",
    "maybe_init_dist",
]


def get_rank() -> int:
    """Return the rank of this process."""
    return detect_world().rank


def get_world_size() -> int:
    """Return how many ranks there are."""
    return detect_world().num_ranks


def get_local_rank() -> int:
    """Return this rank among those of its node."""
    return detect_world().rank_of_node


def get_local_world_size() -> int:
    """Return how many ranks each node has."""
    return detect_world().ranks_per_node


def barrier() -> None:
    """Wait for all ranks, if torch.distributed is initialized."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def maybe_init_dist() -> bool:
    """Initialize torch.distributed if there are several ranks and nobody did; tell whether so.

    Datasets and loaders of this package never need it.
    """
    import torch  # noqa: PLC0415 - this module is for jobs without it too
    from torch import distributed  # noqa: PLC0415

    if get_world_size() == 1 or not distributed.is_available() or distributed.is_initialized():
        return False
    distributed.init_process_group(
        "nccl" if torch.cuda.is_available() and distributed.is_nccl_available() else "gloo",
        rank=get_rank(),
        world_size=get_world_size(),
    )
    return True
