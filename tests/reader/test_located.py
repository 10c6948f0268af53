"""Where samples lie is found the same way by every shortcut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_reader._located import Located, Locator, compact, first_uses

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARDS = st.lists(st.integers(0, 9) | st.sampled_from([70_000, 10**9]), max_size=60)


def _searched(starts: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(starts, ids, side="right") - 1


@given(sizes=st.lists(st.integers(0, 40) | st.sampled_from([0, 1, 5000]), min_size=1, max_size=60))
def test_every_sample_is_found(sizes: list[int]) -> None:
    """Shards may be empty, alike, or thousands of times larger than others."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = np.random.default_rng(0).permutation(int(starts[-1]))
    located = Locator(starts)(ids)
    assert located.shards.tolist() == _searched(starts, ids).tolist()
    assert (starts[located.shards] + located.rows == ids).all()
    assert (located.rows < np.array(sizes)[located.shards]).all()


@pytest.mark.parametrize("size", [1, 52_000, 13_000])
def test_samples_of_many_shards_are_found(size: int) -> None:
    """A hundred thousand shards, and not a search among them for each sample."""
    starts = np.arange(100_001) * size
    ids = np.random.default_rng(0).integers(0, starts[-1], 5000)
    ids[:2] = 0, starts[-1] - 1
    assert Locator(starts)(ids).shards.tolist() == (ids // size).tolist()


def test_nothing_is_found_among_nothing() -> None:
    """Neither shards nor samples are needed."""
    none = np.zeros(0, np.int64)
    for starts in (np.zeros(1, np.int64), np.zeros(3, np.int64), np.array([0, 5])):
        assert len(Locator(starts)(none)) == 0


@given(shards=SHARDS)
def test_first_uses_are_each_shard_once_in_order(shards: list[int]) -> None:
    """However far apart their numbers are."""
    array = np.array(shards, np.int64)
    wanted = list(dict.fromkeys(shards))
    assert first_uses(array).tolist() == wanted
    distinct, which = compact(array)
    assert distinct.tolist() == wanted
    assert distinct[which].tolist() == shards if shards else not len(which)


def test_parts_are_joined_to_what_they_were_cut_from() -> None:
    """Cutting and joining loses nothing."""
    located = Locator(np.array([0, 3, 9]))(np.array([8, 0, 4, 2]))
    parts = [located.part(0, 1), located.part(1, 3), located.part(3)]
    for joined in (Located.joined(parts), Located.joined([located])):
        assert joined.ids.tolist() == [8, 0, 4, 2]
        assert joined.shards.tolist() == [1, 0, 1, 0]
        assert joined.rows.tolist() == [5, 0, 1, 2]
    assert len(Located.joined([])) == 0
