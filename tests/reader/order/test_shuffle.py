"""The reference's shuffles: recorded examples, and what holds of all."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.errors import OrderError
from streaming_reader._order._shuffle import _order_of, _say_narrow, cut, shuffled

SIZES = np.array([5, 3, 7, 4])
EXAMPLES = {
    ("naive", 0): "0,2,8,6,5,7,10,9,14,11,17,13,1,18,15,12,3,16,4",
    ("py1s", 0): "6,5,10,8,11,13,9,14,12,4,2,1,0,3,17,18,15,16,7",
    ("py2s", 0): "5,7,10,9,14,12,13,11,8,6,18,17,15,16,3,0,4,2,1",
    ("py1br", 0): "8,5,9,10,14,12,11,6,13,17,0,4,2,1,16,15,3,18,7",
    ("py1e", 0): "10,8,6,11,5,13,9,14,12,4,2,3,1,17,0,18,16,15,7",
    ("py1b", 0): "8,5,9,11,6,12,13,10,14,2,16,0,15,17,1,4,3,7,18",
    ("py1e", 1): "10,6,5,8,11,12,14,9,13,2,3,1,16,4,15,0,17,7,18",
}


@pytest.mark.parametrize(("algo", "epoch"), EXAMPLES)
def test_the_documented_examples(algo: str, epoch: int) -> None:
    """Each shuffle gives the documented permutation."""
    got = shuffled(algo, SIZES, groups=2, seed=9176, epoch=epoch, block=8)
    assert ",".join(map(str, got.tolist())) == EXAMPLES[algo, epoch]


def test_the_generator_draws_what_it_always_drew() -> None:
    """The first sign of a numpy that draws otherwise."""
    assert np.random.default_rng(9176).permutation(8).tolist() == [2, 1, 5, 6, 7, 3, 0, 4]
    assert np.random.default_rng(9176).choice(4, 2, replace=False).tolist() == [2, 3]


@given(
    algo=st.sampled_from(["naive", "py1s", "py1b", "py1br", "py1e", "py2s"]),
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    groups=st.integers(1, 9),
    block=st.integers(2, 200),
    epoch=st.integers(0, 2),
)
def test_every_shuffle_is_a_permutation_that_keeps_groups(
    algo: str, sizes: list[int], groups: int, block: int, epoch: int
) -> None:
    """All samples occur once; but for naive, a group has the same samples in every epoch."""
    total = sum(sizes)
    if algo == "py1e" and total < groups:
        with pytest.raises(OrderError, match="num_canonical_nodes"):
            shuffled(algo, np.array(sizes), groups=groups, seed=1, epoch=epoch, block=block)
        return
    first, later = (
        shuffled(algo, np.array(sizes), groups=groups, seed=1, epoch=e, block=block)
        for e in (epoch, epoch + 1)
    )
    assert sorted(first.tolist()) == list(range(total))
    groups = 1 if algo == "naive" else groups
    for group in range(groups):
        own = slice(total * group // groups, total * (group + 1) // groups)
        assert sorted(first[own].tolist()) == sorted(later[own].tolist())


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    groups=st.integers(1, 60),
)
def test_cutting_loses_nothing_and_gives_equal_groups(sizes: list[int], groups: int) -> None:
    """Pieces in a row are the spans in a row, and groups end where they should."""
    starts = np.cumsum(sizes)[::-1].copy() * 100
    pieces = cut(starts, np.array(sizes), groups)
    whole = [s + i for s, n in zip(starts.tolist(), sizes, strict=True) for i in range(n)]
    got = [
        s + i
        for s, n in zip(pieces.starts.tolist(), pieces.sizes.tolist(), strict=True)
        for i in range(n)
    ]
    assert got == whole
    ends = [0, *np.cumsum(pieces.sizes).tolist()]
    borders = [len(whole) * group // groups for group in range(groups + 1)]
    assert [ends[i] for i in pieces.first_of.tolist()] == borders


@given(
    numbers=st.lists(st.floats(0, 50) | st.integers(0, 9).map(float), max_size=60),
    far=st.sampled_from([0.0, 2.0**30, 2.0**52, 2.0**63]),
    copies=st.integers(1, 4),
)
def test_places_are_sorted_to_the_last_bit(numbers: list[float], far: float, copies: int) -> None:
    """Places that differ by nothing, by a bit or by much; ties are settled by index."""
    near = [*numbers, *np.nextafter(numbers, 99).tolist()] * copies + [far]
    places = np.array(near)
    assert _order_of(places).tolist() == places.argsort(kind="stable").tolist()


@pytest.mark.parametrize("spread", [3000.0, 50.0, 2.0**-20])
def test_many_places_are_sorted_to_the_last_bit(spread: float) -> None:
    """Whether few of them look alike at first, or all do."""
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.uniform(0, spread, 40_000), rng.integers(0, 50, 3000), [1e6]])
    assert _order_of(places).tolist() == places.argsort(kind="stable").tolist()


@pytest.mark.parametrize(("algo", "block"), [("py1e", 0), ("py1b", 0), ("py1br", 1)])
def test_a_block_that_is_too_small_is_refused(algo: str, block: int) -> None:
    """The error names the setting."""
    with pytest.raises(OrderError, match="shuffle_block_size"):
        shuffled(algo, SIZES, groups=1, seed=0, epoch=0, block=block)


def test_shards_longer_than_the_block_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Py1e says once, not for every node and epoch, that they are shuffled within themselves."""
    _say_narrow.cache_clear()  # another test may have heard of the same block
    with caplog.at_level(logging.WARNING, "streaming_core.reader"):
        for epoch in range(3):
            shuffled("py1e", np.array([50, 50]), groups=2, seed=0, epoch=epoch, block=9)
    assert "shuffle_block_size=9" in caplog.text
    assert len(caplog.records) == 1
