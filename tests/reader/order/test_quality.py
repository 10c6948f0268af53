"""Measures of an order, and what they say of windowed beside py1e."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_reader._order import (
    EpochPlan,
    OrderConfig,
    Quality,
    ShuffleAlgo,
    Weight,
    measure,
    resolve_weights,
)


def _measured(algo: ShuffleAlgo, shards: int, size: int, block: int) -> Quality:
    sizes = np.full(shards, size)
    weights = resolve_weights([shards * size], [Weight()], None, 0)
    config = OrderConfig(batch_size=64, shuffle=True, shuffle_algo=algo, shuffle_block_size=block)
    plan = EpochPlan([sizes], weights, config)
    ids = plan.batches(0, 0, plan.num_steps).ravel()
    return measure(ids[ids >= 0], sizes, 64)


@pytest.mark.parametrize(("size", "block"), [(100, 2000), (100, 1000), (37, 3000)])
def test_windowed_mixes_as_well_as_py1e_with_no_more_shards(size: int, block: int) -> None:
    """At the same block size: spread as py1e's, same-shard pairs and live shards at most."""
    ours, theirs = (_measured(algo, 60_000 // size, size, block) for algo in ("windowed", "py1e"))
    assert ours.spread >= theirs.spread * 0.99
    assert ours.same_shard <= theirs.same_shard * 1.01
    assert ours.live_shards <= theirs.live_shards
    assert abs(ours.in_order - 0.5) < 0.01


def test_stored_order_is_the_worst_mix_and_the_least_need() -> None:
    """Unshuffled shards: one at a time, all neighbours in order, batches of one shard."""
    got = measure(np.arange(400), np.full(4, 100), batch=10)
    assert (got.live_shards, got.mean_live_shards) == (1, 1)
    assert (got.same_shard, got.in_order) == (1, 1)
    assert got.spread == pytest.approx(np.sqrt((100**2 - 1) / 12))


def test_a_full_shuffle_is_the_best_mix_and_needs_all() -> None:
    """A permutation of everything: all shards live, pairs of a shard as often as by chance."""
    got = measure(np.random.default_rng(0).permutation(10_000), np.full(10, 1000), batch=50)
    assert got.live_shards == 10
    assert got.same_shard == pytest.approx(0.1, rel=0.05)
    assert got.in_order == pytest.approx(0.5, abs=0.02)


def test_pairs_are_counted_batch_by_batch() -> None:
    """Two batches: one of one shard, one of two pairs."""
    order = np.array([0, 1, 2, 3, 4, 8, 5, 9])
    got = measure(order, np.array([4, 4, 4]), batch=4)
    assert got.same_shard == pytest.approx((6 + 2) / 12)
    assert got.live_shards == 2
