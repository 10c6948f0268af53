"""How much of each stream and shard an epoch has."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.errors import OrderError
from streaming_reader._order import Weight, resolve_weights
from streaming_reader._order._sampling import expand, resample, shard_choices
from streaming_reader._order._windowed import spread_choices

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=20).filter(any)


def test_proportions_share_the_epoch() -> None:
    """Shares are cut down to whole samples, and what lacks goes to drawn streams."""
    weights = resolve_weights([10, 10, 10], [Weight(proportion=1)] * 3, 20, 9176)
    assert sorted(weights.choose.tolist()) == [6, 7, 7]
    assert weights.epoch_size == 20
    assert weights.repeat.tolist() == (weights.choose / 10).tolist()


def test_without_any_wish_each_sample_comes_once() -> None:
    """Plain streams have all their samples, and share the epoch by them."""
    weights = resolve_weights([30, 10], [Weight(), Weight()], None, 0)
    assert weights.choose.tolist() == [30, 10]
    assert weights.proportion.tolist() == [0.75, 0.25]


def test_repeat_and_choose_are_cut_down_to_whole_samples() -> None:
    """A repeat of 1.75 of 11 samples is 19 of them."""
    weights = resolve_weights(
        [11, 5, 6], [Weight(repeat=1.75), Weight(choose=2), Weight()], None, 0
    )
    assert weights.choose.tolist() == [19, 2, 6]


def test_epoch_size_without_wishes_keeps_the_shares() -> None:
    """An epoch size alone scales all streams alike."""
    assert resolve_weights([30, 10], [Weight()] * 2, 80, 0).choose.tolist() == [60, 20]


@pytest.mark.parametrize(
    ("samples", "weights", "epoch_size", "told"),
    [
        ([3, 3], [Weight(proportion=1), Weight()], None, "1 of 2 streams"),
        ([3, 3], [Weight(proportion=1), Weight(repeat=2)], None, "either all streams"),
        ([3], [Weight(repeat=2)], 10, "epoch_size=10"),
        ([3], [Weight()], -1, "-1 came"),
        ([3, 3], [Weight()], None, "2 streams came with 1"),
        ([3, 0], [Weight(), Weight(choose=1)], None, "stream 1 has no samples"),
        ([3, 3], [Weight(proportion=0)] * 2, None, "proportions"),
        ([], [], None, "at least one stream"),
    ],
)
def test_wishes_that_do_not_go_together_are_refused(
    samples: list[int], weights: list[Weight], epoch_size: int | None, told: str
) -> None:
    """The error is a ValueError that names what came, and it pickles."""
    with pytest.raises(OrderError, match=told) as raised:
        resolve_weights(samples, weights, epoch_size, 0)
    assert isinstance(raised.value, ValueError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_stream_takes_one_kind_of_wish() -> None:
    """Two at once, negative and endless ones are refused."""
    with pytest.raises(OrderError, match="proportion=1, choose=3"):
        Weight(proportion=1, choose=3)
    with pytest.raises(OrderError, match="-1"):
        Weight(repeat=-1)
    with pytest.raises(OrderError, match="nan"):
        Weight(proportion=float("nan"))


def test_the_documented_example_of_picks() -> None:
    """Picks of two samples are drawn as the reference draws them."""
    chosen = shard_choices(np.array([5, 3, 7, 4]), 25, granularity=2, seed=9176)
    assert chosen.tolist() == [6, 3, 10, 6]


@given(sizes=SIZES, choose=st.integers(0, 900), granularity=st.integers(1, 12))
def test_picks_are_those_of_the_rule_done_one_by_one(
    sizes: list[int], choose: int, granularity: int
) -> None:
    """The arithmetic gives what walking over the picks gives, and no shard more than it may."""
    copies, left = divmod(choose, sum(sizes))
    wanted = [size * copies for size in sizes]
    picks = [
        (shard, min(granularity, size - begin))
        for shard, size in enumerate(sizes)
        for begin in range(0, size, granularity)
    ]
    for pick in np.random.default_rng(5).permutation(len(picks)) if left else []:
        shard, size = picks[pick]
        wanted[shard] += min(size, left)
        left -= min(size, left)
    assert shard_choices(np.array(sizes), choose, granularity, 5).tolist() == wanted


@given(sizes=SIZES, choose=st.integers(0, 900), data=st.data())
def test_resampling_gives_whole_copies_and_a_drawn_rest(
    sizes: list[int], choose: int, data: st.DataObject
) -> None:
    """Units are copies and ascending parts of shards, as drawing shard by shard gives them."""
    chosen = shard_choices(np.array(sizes), choose, data.draw(st.integers(1, 5)), 3)
    units = resample([(np.array(sizes), chosen, 100)], seed=8)
    rng, ids, unit_sizes, first = np.random.default_rng(8), [], [], 100
    for size, count in zip(sizes, chosen.tolist(), strict=True):
        copies, rest = divmod(count, size) if size else (0, 0)
        ids += list(range(first, first + size)) * copies
        unit_sizes += [size] * copies
        if rest:
            ids += sorted((first + rng.choice(size, rest, replace=False)).tolist())
            unit_sizes.append(rest)
        first += size
    assert units.all_ids().tolist() == ids
    assert units.sizes.tolist() == unit_sizes
    assert (units.ids is None) == (chosen.tolist() == sizes)


@given(sizes=SIZES, choose=st.integers(0, 900), epoch=st.integers(0, 3))
def test_largest_remainder_is_fair_to_a_sample(sizes: list[int], choose: int, epoch: int) -> None:
    """Each shard gives its share, cut down or with one more, and all together what is wanted."""
    chosen = spread_choices(np.array(sizes), choose, seed=1, epoch=epoch)
    share = np.array(sizes) * choose / sum(sizes)
    assert chosen.sum() == choose
    assert (chosen >= np.floor(share - 1e-9)).all()
    assert (chosen <= np.floor(share + 1e-9) + 1).all()


def test_ties_are_settled_anew_each_epoch() -> None:
    """Of many equal shards that give half a sample each, others do so in another epoch."""
    sizes = np.full(100, 3)
    first, again, other = (spread_choices(sizes, 50, seed=1, epoch=e).tolist() for e in (0, 0, 1))
    assert first == again
    assert first != other


def test_expanding_nothing_is_nothing() -> None:
    """Empty ranges leave no trace."""
    assert expand(np.array([], np.int64), np.array([], np.int64)).tolist() == []
    assert expand(np.array([4, 9]), np.array([0, 1])).tolist() == [9]
