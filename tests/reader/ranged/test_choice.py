"""What is decided about ranges: which bytes are read, and when the whole shard is better."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_reader._ranged._choice import (
    MOST_OF_SHARD,
    Cost,
    Line,
    Offer,
    allowance,
    choose_alone,
    choose_together,
    even_offsets,
    spans_of,
)

_LINE = Line(latency=0.04, rate=50e6, whole_rate=50e6)
_MIB = 1 << 20


@given(st.data())
def test_spans_hold_the_rows_and_little_else(data: st.DataObject) -> None:
    """In order, apart by more than the gap, from a wanted row to a wanted row."""
    lengths = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=40))
    gap = data.draw(st.integers(0, 60))
    offsets = 20 + np.concatenate(([0], np.cumsum(lengths))).astype(np.uint32)
    rows = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=30)), np.int64)
    spans = spans_of(offsets, rows, gap)
    for row in rows.tolist():
        start, stop = int(offsets[row]), int(offsets[row + 1])
        assert start == stop or any(a <= start and stop <= b for a, b in spans)
    for (_, stop), (start, _) in itertools.pairwise(spans):
        assert start - stop > gap
    edges = {int(offsets[row]) for row in rows}, {int(offsets[row + 1]) for row in rows}
    assert all(a in edges[0] and b in edges[1] and a < b for a, b in spans)
    wanted = sum(lengths[row] for row in set(rows.tolist()))
    assert sum(b - a for a, b in spans) <= wanted + gap * max(0, len(set(rows.tolist())) - 1)


def test_even_offsets_are_those_of_records_of_one_size() -> None:
    """From the end of the header to the end of the file."""
    assert even_offsets(20, 3, 50).tolist() == [20, 30, 40, 50]
    assert even_offsets(20, 0, 20).tolist() == [20]


@pytest.mark.parametrize(
    ("offer", "ranges"),
    [
        (Offer(64 * _MIB, Cost(30_000, 2, 2)), True),  # a sample of a large shard
        (Offer(_MIB, Cost(30_000, 2, 2)), False),  # the shard is there as soon
        (Offer(8 * _MIB, Cost(3 * _MIB, 2, 2)), False),  # too large a part of it
        (Offer(64 * _MIB, Cost(_MIB, 1, 1), Cost(16 * _MIB, 1, 1)), False),  # … together
        (Offer(64 * _MIB, Cost(4096, 1, 1), Cost(4096, 50, 50)), False),  # asked too often
    ],
)
def test_alone(offer: Offer, ranges: bool) -> None:
    """By bytes and by time, what was spent before included."""
    assert choose_alone(offer, _LINE) is ranges


@given(
    shard=st.integers(1 << 10, 1 << 28),
    asked=st.lists(st.tuples(st.integers(1, 1 << 22), st.integers(1, 8)), max_size=60),
    latency=st.floats(0, 0.5),
    rate=st.floats(1e5, 1e9),
)
def test_whoever_asks_for_ever_more_of_a_shard_pays_for_it_twice_at_most(
    shard: int, asked: list[tuple[int, int]], latency: float, rate: float
) -> None:
    """In bytes a quarter more than the shard; in time no more than twice what the shard takes."""
    line = Line(latency, rate, rate)
    spent = Cost()
    for nbytes, requests in asked:
        cost = Cost(nbytes, requests, 1)
        if not choose_alone(Offer(shard, cost, spent), line):
            break
        spent = spent.plus(cost)
    assert MOST_OF_SHARD * spent.nbytes <= shard
    assert spent.seconds(line) <= latency + shard / rate + 1e-9


def test_together_only_what_is_allowed_and_worth_it() -> None:
    """A budget of bytes, shards that would come late, and time that goes by anyway."""
    offers = [Offer(8 * _MIB, Cost(200_000, 7, 2))] * 40
    assert choose_together(offers, _LINE, math.inf) == [True] * 40
    assert sum(choose_together(offers[:8], _LINE, 1_000_000)) == 5
    assert sum(choose_together(offers, _LINE, 1_000_000)) == 0  # the others come no sooner
    assert not any(choose_together(offers, _LINE, math.inf, others_bytes=400 * _MIB))
    assert not any(choose_together(offers, _LINE, 0))
    seconds = 2 * 0.04 + 40 * 200_000 / 50e6 + 280 * 0.0005
    assert not any(choose_together(offers, _LINE, math.inf, pause=2 * seconds))
    assert all(choose_together(offers, _LINE, math.inf, pause=5 * seconds))
    tiny = [Offer(_MIB, Cost(200_000, 2, 2))]
    assert choose_together(tiny, _LINE, math.inf) == [False]
    large = [Offer(8 * _MIB, Cost(3 * _MIB, 1, 1))]
    assert choose_together(large, _LINE, math.inf) == [False]


def test_tiny_records_are_had_with_their_shard() -> None:
    """Where the header is as large as what is wanted, and the shard not much larger."""
    count, record = 20_000, 24
    header = 4 * (count + 2) + 200
    shard = header + count * record
    assert not choose_alone(Offer(shard, Cost(header + record, 2, 2)), _LINE)


def test_an_iteration_reads_a_part_of_what_it_uses() -> None:
    """However much it has read already."""
    assert allowance(8e6, 0) == 1e6
    assert allowance(8e6, 400_000) == 6e5
    assert allowance(8e6, 2_000_000) == 0
