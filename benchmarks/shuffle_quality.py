"""Print how well each shuffle mixes shards, and how many a cache has to hold for it.

    .venv/bin/python benchmarks/shuffle_quality.py

One node reads 200 shards of 1,000 samples in a shuffle block of 32,768; all shuffles are measured
by the same code (`streaming_reader._order.measure`), averaged over three epochs.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import get_args

import numpy as np

from streaming_reader._order import (
    EpochPlan,
    OrderConfig,
    ShuffleAlgo,
    Weight,
    measure,
    resolve_weights,
)

SHARDS, SAMPLES, BLOCK, BATCH, EPOCHS = 200, 1000, 32_768, 256, 3


def main() -> None:
    """Measure every shuffle."""
    sizes = np.full(SHARDS, SAMPLES)
    weights = resolve_weights([int(sizes.sum())], [Weight()], None, seed=0)
    print("| shuffle | spread | pairs of one shard | in order | live shards, most | on average |")
    print("| --- | --: | --: | --: | --: | --: |")
    for algo in get_args(ShuffleAlgo):
        config = OrderConfig(
            batch_size=BATCH,
            shuffle=True,
            shuffle_algo=algo,
            shuffle_block_size=BLOCK,
            num_canonical_nodes=1,
        )
        found = []
        for epoch in range(EPOCHS):
            plan = EpochPlan([sizes], weights, config, epoch=epoch)
            ids = plan.batches(0, 0, plan.num_steps)
            found.append(astuple(measure(ids[ids >= 0], sizes, BATCH)))
        spread, same, in_order, live, mean = np.mean(found, axis=0)
        print(f"| {algo} | {spread:,.0f} | {same:.2%} | {in_order:.3f} | {live:.0f} | {mean:.1f} |")


if __name__ == "__main__":
    main()
