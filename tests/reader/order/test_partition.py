"""Who gets which position: documented examples, and the properties that make worlds elastic."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core.errors import OrderError
from streaming_reader._order._partition import Evened, Partition, partition


def _dealt(dealt: Partition | Evened, world: tuple[int, int, int]) -> Any:
    nodes, ranks, batch = world
    steps = np.arange(dealt.steps)
    return dealt.take(steps, np.arange(nodes * ranks * batch)).reshape(-1, nodes * ranks, batch)


def _by_rank(dealt: Partition | Evened, world: tuple[int, int, int]) -> Any:
    return _dealt(dealt, world).transpose(1, 0, 2).tolist()


def test_the_documented_examples() -> None:
    """Each example of the rules, by rank."""
    got = _by_rank(partition("orig", 11, rows=2, nodes=1, ranks=2, batch=2), (1, 2, 2))
    assert got == [[[0, 1], [2, 3], [4, 4]], [[5, 6], [7, 8], [9, 10]]]
    got = _by_rank(partition("orig", 11, rows=1, nodes=2, ranks=2, batch=2), (2, 2, 2))
    assert got == [
        [[0, 4], [8, -1]],
        [[2, 6], [10, -1]],
        [[1, 5], [9, -1]],
        [[3, 7], [9, -1]],
    ]
    relaxed = partition("relaxed", 24, rows=2, nodes=3, ranks=1, batch=2, initial_nodes=2)
    assert _by_rank(relaxed, (3, 1, 2)) == [
        [[0, 1], [3, 4], [6, 7], [9, 10]],
        [[2, 12], [5, 15], [8, 18], [11, 21]],
        [[13, 14], [16, 17], [19, 20], [22, 23]],
    ]
    got = _by_rank(partition("orig", 2, rows=4, nodes=1, ranks=1, batch=1), (1, 1, 1))
    assert got == [[[0], [1], [0], [1]]]


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Return rows, a global batch, and ways of dealing it to (nodes, ranks, batch)."""
    rows = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    together = draw(st.sampled_from([6, 8, 12, 24]))
    worlds = [
        (nodes, ranks, together // nodes // ranks)
        for nodes in range(1, together + 1)
        if rows % nodes == 0
        for ranks in range(1, together + 1)
        if together % (nodes * ranks) == 0
    ]
    return rows, together, worlds


@hypothesis_settings(max_examples=examples(60))
@given(made=_worlds(), samples=st.integers(1, 400))
def test_the_same_global_batch_on_any_world(
    made: tuple[int, int, list[tuple[int, int, int]]], samples: int
) -> None:
    """A full global step has the same positions however it is dealt out."""
    rows, _, worlds = made
    assume(samples >= rows)
    whole = []
    for nodes, ranks, batch in worlds:
        dealt = partition("orig", samples, rows=rows, nodes=nodes, ranks=ranks, batch=batch)
        steps = _dealt(dealt, (nodes, ranks, batch))[: dealt.full_steps]
        whole.append([sorted(step.ravel().tolist()) for step in steps])
    fewest = min(map(len, whole))
    assert max(map(len, whole)) - fewest <= 1
    assert all(steps[:fewest] == whole[0][:fewest] for steps in whole)


@given(
    samples=st.integers(1, 300),
    rows=st.integers(1, 8),
    world=st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4)),
    share=st.floats(0, 1),
)
def test_no_position_is_lost_and_find_agrees(
    samples: int, rows: int, world: tuple[int, int, int], share: float
) -> None:
    """Every position not dropped is dealt out, at the places that find tells."""
    drop = int(samples * share)
    nodes, ranks, batch = world
    assume(max(rows, nodes) % min(rows, nodes) == 0)
    try:
        dealt = partition(
            "orig", samples, rows=rows, nodes=nodes, ranks=ranks, batch=batch, drop=drop
        )
    except OrderError as error:
        assert "too few" in str(error)  # noqa: PT017 - some tiny data cannot be dealt out
        assert samples < rows * 2 * nodes
        return
    table = _dealt(dealt, world).reshape(-1, nodes * ranks * batch)
    present = set(table[table >= 0].tolist())
    assert len(present) >= min(samples, samples - drop)
    for position in range(samples):
        places = [tuple(map(int, place)) for place in np.argwhere(table == position)]
        assert sorted(dealt.find(position)) == places


@hypothesis_settings(max_examples=examples(60))
@given(
    samples=st.integers(4, 300),
    nodes=st.sampled_from([(2, 3), (3, 2), (4, 3), (4, 6), (3, 4), (2, 5), (4, 10)]),
    steps=st.integers(0, 6),
)
def test_relaxed_goes_on_with_the_same_global_batches(
    samples: int, nodes: tuple[int, int], steps: int
) -> None:
    """On nodes that the canonical nodes do not fit, the batches are those of the first world."""
    initial, now = nodes
    together, drop = 60, 60 * steps
    assume(drop <= samples)
    before = partition(
        "relaxed", samples, rows=initial, nodes=initial, ranks=1, batch=together // initial
    )
    after = partition(
        "relaxed",
        samples,
        rows=initial,
        nodes=now,
        ranks=1,
        batch=together // now,
        drop=drop,
        initial_nodes=initial,
    )
    slots = np.arange(together)
    was = before.take(np.arange(before.steps), slots)[steps:]
    got = after.take(np.arange(after.steps), slots)
    assert got[: after.full_steps].tolist() == was[: after.full_steps].tolist()
    # What is repeated at the end may differ, but not what has not been seen.
    assert set(was.ravel().tolist()) <= {*got.ravel().tolist(), -1}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rows": 3, "nodes": 2}, r"canonical nodes \(3\)"),
        ({"samples": 9, "rows": 1, "nodes": 8}, "too few"),
        ({"rows": 2, "nodes": 3, "batch": 5, "initial_nodes": 2}, "cannot be divided"),
    ],
)
def test_worlds_that_cannot_be_are_refused(settings: dict[str, Any], told: str) -> None:
    """The error is a ValueError that tells the numbers."""
    algo = "relaxed" if "initial_nodes" in settings else "orig"
    with pytest.raises(OrderError, match=told):
        partition(algo, **{"samples": 20, "ranks": 1, "batch": 1, **settings})


@pytest.mark.parametrize("drop", [20, 21, 24, 99])
def test_after_all_samples_nothing_is_left(drop: int) -> None:
    """Also when more were counted, because ranks were given some twice."""
    assert partition("orig", 20, rows=2, nodes=1, ranks=4, batch=1, drop=drop).steps == 0


def test_a_position_between_nodes_is_rounded_down(caplog: pytest.LogCaptureFixture) -> None:
    """Five samples on two nodes are four, and this is said."""
    with caplog.at_level(logging.WARNING, "streaming_core.reader"):
        dealt = partition("orig", 20, rows=2, nodes=2, ranks=1, batch=1, drop=5)
    assert dealt.take(np.arange(1), np.arange(2)).tolist() == [[2, 12]]
    assert "4 samples instead of 5" in caplog.text


@hypothesis_settings(max_examples=examples(60))
@given(
    samples=st.integers(1, 300),
    nodes=st.sampled_from([(2, 3), (3, 2), (4, 3), (4, 6), (2, 5), (4, 10)]),
    steps=st.integers(0, 6),
)
def test_relaxed_gives_each_rank_as_many(samples: int, nodes: tuple[int, int], steps: int) -> None:
    """In the last batch too, where samples are repeated for that; find tells all places."""
    initial, now = nodes
    world = (now, 1, 60 // now)
    dealt = partition(
        "relaxed",
        samples,
        rows=initial,
        nodes=now,
        ranks=1,
        batch=60 // now,
        drop=60 * steps,
        initial_nodes=initial,
    )
    table = _dealt(dealt, world)
    assert all(len(set(row.tolist())) == 1 for row in (table >= 0).sum(axis=2))
    assert (table >= 0).sum() == (dealt.samples if dealt.steps else 0)
    flat = table.reshape(-1, 60)
    for position in range(samples):
        places = [tuple(map(int, place)) for place in np.argwhere(flat == position)]
        assert sorted(dealt.find(position)) == places
