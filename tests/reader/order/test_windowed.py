"""The windowed order: computed in windows, yet a shuffle of the whole epoch."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_reader._order import EpochPlan, OrderConfig, Weight, resolve_weights
from streaming_reader._order._windowed import WindowedSequence, permutation, spread_choices


def _sequence(
    sizes: list[int],
    choose: int | None = None,
    *,
    groups: int = 1,
    block: int = 40,
    seed: int = 1,
    epoch: int = 0,
) -> tuple[WindowedSequence, int]:
    count = sum(sizes) if choose is None else choose
    chosen = spread_choices(np.array(sizes), count, seed=seed, epoch=epoch)
    sequence = WindowedSequence(
        np.array(sizes),
        chosen,
        100,
        groups=groups,
        block=block,
        key=(seed, epoch),
        part_epoch=epoch,
    )
    return sequence, count


SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=20).filter(any)


@given(sizes=SIZES, groups=st.integers(1, 6), block=st.integers(1, 200), epoch=st.integers(0, 3))
def test_it_is_a_permutation_that_moves_no_sample_by_a_block(
    sizes: list[int], groups: int, block: int, epoch: int
) -> None:
    """Each sample comes once, less than a block from where its shard was put."""
    sequence, count = _sequence(sizes, groups=groups, block=block, epoch=epoch)
    positions = np.arange(count)
    ids = sequence.take(positions)
    assert sorted(ids.tolist()) == list(range(100, 100 + count))
    unmoved = _sequence(sizes, groups=groups, block=1, epoch=epoch)[0].take(positions)
    moved = np.abs(ids.argsort() - unmoved.argsort())
    assert moved.max() < block


@given(
    sizes=SIZES,
    share=st.floats(0.01, 3),
    groups=st.integers(1, 6),
    block=st.integers(1, 100),
    data=st.data(),
)
def test_any_positions_are_those_of_the_whole(
    sizes: list[int], share: float, groups: int, block: int, data: st.DataObject
) -> None:
    """Asked in any order and shape, from a fresh sequence, positions have the same samples."""
    choose = max(int(sum(sizes) * share), 1)
    whole = _sequence(sizes, choose, groups=groups, block=block)[0].take(np.arange(choose))
    some = data.draw(st.lists(st.integers(0, choose - 1), min_size=2, max_size=2 * 20))
    asked = np.array(some[: len(some) // 2 * 2]).reshape(2, -1)
    sequence = _sequence(sizes, choose, groups=groups, block=block)[0]
    assert sequence.take(asked).tolist() == whole[asked].tolist()
    sample = int(whole[some[0]])
    assert sequence.find(sample).tolist() == np.flatnonzero(whole == sample).tolist()


@given(sizes=SIZES, share=st.floats(0.01, 3), epoch=st.integers(0, 2))
def test_weights_give_copies_and_a_drawn_part(sizes: list[int], share: float, epoch: int) -> None:
    """Of each shard, samples come as often as it has copies, or once more."""
    choose = int(sum(sizes) * share)
    sequence, _ = _sequence(sizes, choose, epoch=epoch)
    seen = np.bincount(sequence.take(np.arange(choose)) - 100, minlength=sum(sizes))
    chosen = spread_choices(np.array(sizes), choose, seed=1, epoch=epoch)
    for own, count in zip(np.split(seen, np.cumsum(sizes)[:-1]), chosen.tolist(), strict=True):
        assert own.sum() == count
        assert not len(own) or own.max() - own.min() <= 1


def test_parts_are_drawn_anew_unless_fixed() -> None:
    """The samples of a part-used shard change with the epoch if balanced, else never."""
    seen: dict[str, list[set[int]]] = {"balanced": [], "fixed": []}
    for method, sets in seen.items():
        for epoch in range(2):
            plan = _plan([100] * 4, Weight(choose=120), epoch=epoch, sampling_method=method)
            sets.append(set(plan.batches(0, 0, plan.num_steps).ravel().tolist()) - {-1})
    assert seen["fixed"][0] == seen["fixed"][1]
    assert seen["balanced"][0] != seen["balanced"][1]


def _plan(
    sizes: Any, weight: Weight | None = None, *, epoch: int = 0, **settings: Any
) -> EpochPlan:
    world = {name: settings.pop(name) for name in ("position", "num_nodes") if name in settings}
    sizes = np.array(sizes)
    weights = resolve_weights([int(sizes.sum())], [weight or Weight()], None, 0)
    config = OrderConfig(
        **{"batch_size": 4, "shuffle": True, "shuffle_algo": "windowed", **settings}
    )
    return EpochPlan([sizes], weights, config, epoch=epoch, **world)


def test_the_order_never_changes() -> None:
    """A checkpoint of any release, on any processor and numpy, goes on in the same order."""
    sequence, count = _sequence([5, 3, 7, 4], groups=2, block=8, seed=9176)
    assert sequence.take(np.arange(count)).tolist() == [
        118,
        116,
        115,
        101,
        102,
        117,
        104,
        103,
        100,
        108,
        107,
        109,
        112,
        106,
        105,
        114,
        110,
        113,
        111,
    ]
    assert permutation(8, (9176, 0), 1, (0, 0)).tolist() == [5, 2, 4, 0, 7, 1, 3, 6]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_permutations_are_permutations_and_differ_by_place(count: int) -> None:
    """Each number comes once, and each purpose, place and key has its own order."""
    made = [
        permutation(count, key, purpose, where).tolist()
        for key in [(0, 0), (0, 1), (1 << 63, 0)]
        for purpose in (1, 2)
        for where in [(0, 0), (1, 0), (0, 1)]
    ]
    assert all(sorted(each) == list(range(count)) for each in made)
    assert count < 1000 or len({tuple(each) for each in made}) == len(made)


def test_permutations_are_even() -> None:
    """Over many draws, each number is at each place about as often."""
    table = np.zeros((8, 8))
    for block in range(4000):
        table[np.arange(8), permutation(8, (3, 1), 1, (block, 0)).astype(int)] += 1
    # 49 degrees of freedom: 100 is beyond one in a hundred thousand.
    assert ((table - 500) ** 2 / 500).sum() < 100


@pytest.mark.parametrize("weight", [None, Weight(repeat=0.37)])
@pytest.mark.parametrize("position", [0, 650_000_128])
def test_a_billion_samples_start_and_resume_at_once(weight: Weight | None, position: int) -> None:
    """100,000 shards of 13,000 samples: the first batch takes neither a second nor 60 MB."""
    sizes = np.full(100_000, 13_000)
    position = position if weight is None else position // 4
    begun = time.thread_time()  # of this thread alone, however busy the machine is
    tracemalloc.start()
    try:
        plan = _plan(sizes, weight, batch_size=256, position=position)
        assert plan.batches(0, 0, 1).min() >= 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6
    assert time.thread_time() - begun < 5
