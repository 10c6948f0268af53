"""Which samples an epoch takes, before they are shuffled and dealt out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streaming_reader._order._sampling import resample, shard_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_reader._order._config import OrderConfig
    from streaming_reader._order._weights import Weights

__all__ = ["resample_streams"]


def resample_streams(
    shard_sizes: Sequence[NDArray[np.int64]],
    weights: Weights,
    config: OrderConfig,
    epoch: int,
    stream: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes of the units that `epoch` shuffles, and the ids of their samples, in order.

    `stream` picks one stream; by default all are taken. Ids count through all streams.

    Example:
        >>> from streaming_reader._order import OrderConfig, Weight, resolve_weights
        >>> weights = resolve_weights([4], [Weight(repeat=2)], None, seed=0)
        >>> units, ids = resample_streams([np.array([4])], weights, OrderConfig(batch_size=1), 0)
        >>> units.tolist(), ids.tolist()
        ([4, 4], [0, 1, 2, 3, 0, 1, 2, 3])
    """
    firsts = np.cumsum([0, *(int(sizes.sum()) for sizes in shard_sizes)]).tolist()
    seed = config.shuffle_seed
    drawn = seed + (epoch if config.draws_by_epoch else 0)
    picked = range(len(shard_sizes)) if stream is None else [stream]
    units = resample(
        (
            (
                shard_sizes[at],
                shard_choices(
                    shard_sizes[at], int(weights.choose[at]), config.sampling_granularity, drawn
                ),
                firsts[at],
            )
            for at in picked
        ),
        seed + (epoch if config.sampling_method == "balanced" else 0),
    )
    return units.sizes, units.all_ids()
