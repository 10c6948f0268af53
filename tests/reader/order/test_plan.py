"""What holds of every plan, whatever the method, shuffle and world."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.profiles import examples

from streaming_core.errors import OrderError
from streaming_reader._cache import SharedArrays
from streaming_reader._order import EpochPlan, OrderConfig, Weight, resolve_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

SHUFFLES = ["naive", "py1s", "py1b", "py1br", "py1e", "py2s", "windowed", None]
METHODS = ["random", "stratified", "per_stream", "device_per_stream"]
_WORLD = [
    "num_nodes",
    "ranks_per_node",
    "workers_per_rank",
    "epoch",
    "position",
    "initial_nodes",
    "arrays",
]


def make_plan(streams: list[list[int]], weights: list[Weight] | None = None, /, **own: Any) -> Any:
    """Return a plan of streams of these shard sizes; settings of order and world in one."""
    world = {name: own.pop(name) for name in _WORLD if name in own}
    resolved = resolve_weights(
        [sum(each) for each in streams], weights or [Weight()] * len(streams), None, 9176
    )
    algo = own.pop("shuffle_algo", None)
    if algo:
        own |= {"shuffle_algo": algo, "shuffle": True}
    config = OrderConfig(**{"batch_size": 4, "shuffle_block_size": 40, **own})
    return EpochPlan([np.array(each) for each in streams], resolved, config, **world)


def epoch_of(plan: EpochPlan) -> Any:
    """Return all samples of a plan: (step, rank, slot)."""
    ranks = [plan.batches(rank, 0, plan.num_steps) for rank in range(plan.num_ranks)]
    return np.stack(ranks, axis=1)


def ids_of(plan: EpochPlan) -> Any:
    """Return all samples of a plan that are there, by step."""
    ids = epoch_of(plan).ravel()
    return ids[ids >= 0].tolist()


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[list[int]], list[Weight]]:
    """Return one to three streams with weights of any kind, each an eighth of all at least."""
    sizes = st.lists(st.integers(25, 35), min_size=4, max_size=5)
    streams = draw(st.lists(sizes, min_size=1, max_size=3))
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "repeat": st.sampled_from([0.8, 1, 1.5]),
        "choose": st.integers(100, 200),
        "proportion": st.floats(1, 2),
    }
    kind = draw(st.sampled_from(["plain", *kinds]))
    if kind == "plain":
        return streams, [Weight() for _ in streams]
    return streams, [Weight(**{kind: draw(kinds[kind])}) for _ in streams]


@st.composite
def settings_(draw: st.DrawFn) -> dict[str, Any]:
    """Return settings of an order that any world below can take."""
    return {
        "shuffle_algo": draw(st.sampled_from(SHUFFLES)),
        "batching_method": draw(st.sampled_from(METHODS)),
        "sampling_method": draw(st.sampled_from(["balanced", "fixed"])),
        "sampling_granularity": draw(st.sampled_from([1, 3])),
        "num_canonical_nodes": draw(st.sampled_from([2, 4])),
        "epoch": draw(st.integers(0, 2)),
    }


@hypothesis_settings(max_examples=examples(60))
@given(mixture=mixtures(), chosen=settings_(), at=st.floats(0, 1), workers=st.integers(1, 3))
def test_resuming_at_a_global_batch_is_the_tail(
    mixture: tuple[list[list[int]], list[Weight]], chosen: dict[str, Any], at: float, workers: int
) -> None:
    """What follows after k batches is what would have followed, whatever the worker count."""
    streams, weights = mixture
    world = {"num_nodes": 2, "ranks_per_node": 1, "batch_size": 6}
    before = epoch_of(make_plan(streams, weights, **chosen, **world))
    steps = int(at * ((before >= 0).sum() // 12))
    after = make_plan(
        streams, weights, **chosen, **world, workers_per_rank=workers, position=steps * 12
    )
    rest = epoch_of(after)
    assert after.num_steps % workers == 0
    if chosen["batching_method"] == "random":
        # The last batches may repeat other samples, but no others are new.
        full = (before[steps:] >= 0).all(axis=(1, 2)).sum() - 1
        assert rest[: max(full, 0)].tolist() == before[steps:][: max(full, 0)].tolist()
        assert set(before[steps:].ravel().tolist()) - {-1} <= set(rest.ravel().tolist())
    else:
        assert rest[: len(before) - steps].tolist() == before[steps:].tolist()
        assert (rest[len(before) - steps :] == -1).all()


@hypothesis_settings(max_examples=examples(60))
@given(mixture=mixtures(), chosen=settings_(), workers=st.integers(1, 4), data=st.data())
def test_windows_steps_workers_and_find_agree(
    mixture: tuple[list[list[int]], list[Weight]],
    chosen: dict[str, Any],
    workers: int,
    data: st.DataObject,
) -> None:
    """Any window is a part of the whole, a step is all ranks' batches, and find tells both."""
    world = {"num_nodes": 2, "ranks_per_node": 2, "batch_size": 2, "workers_per_rank": workers}
    position = data.draw(st.integers(0, 5)) * 8
    plan = make_plan(*mixture, **chosen, **world, position=position)
    whole = epoch_of(plan)
    start = data.draw(st.integers(0, plan.num_steps))
    stop = data.draw(st.integers(start, plan.num_steps))
    rank = data.draw(st.integers(0, 3))
    assert plan.batches(rank, start, stop).tolist() == whole[start:stop, rank].tolist()
    if start < plan.num_steps:
        assert plan.step(start).tolist() == whole[start].tolist()
    parts = [set(plan.worker_steps(worker, workers)) for worker in range(workers)]
    assert sorted(step for part in parts for step in part) == list(range(plan.num_steps))
    assert len({len(part) for part in parts}) == 1
    total = sum(sum(sizes) for sizes in mixture[0])
    for sample in data.draw(st.lists(st.integers(0, total - 1), max_size=5)):
        places = [tuple(place) for place in plan.find(sample)]
        assert places == [tuple(map(int, place)) for place in np.argwhere(whole == sample)]


@hypothesis_settings(max_examples=examples(60))
@given(mixture=mixtures(), chosen=settings_(), together=st.sampled_from([8, 16, 24]))
def test_global_batches_do_not_depend_on_the_world(
    mixture: tuple[list[list[int]], list[Weight]], chosen: dict[str, Any], together: int
) -> None:
    """For one global batch, a full step has the same samples on any nodes, ranks and batch."""
    assume(chosen["batching_method"] != "device_per_stream")
    streams, weights = mixture
    worlds = [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]
    if chosen["batching_method"] == "per_stream":
        # Where more ranks mean more repeats, a stream may have a batch more to be shuffled in.
        counts = resolve_weights([sum(each) for each in streams], weights, None, 9176).choose
        rows = chosen["num_canonical_nodes"]
        lanes = [-(-count // rows) * rows for count in counts.tolist()]
        rounded = [[-(-n // (p * r)) * p * r // together for n in lanes] for p, r in worlds]
        assume(all(each == rounded[0] for each in rounded))
    found: list[list[list[int]]] = []
    for nodes, ranks in worlds:
        batch = together // nodes // ranks
        world = {"num_nodes": nodes, "ranks_per_node": ranks, "batch_size": batch}
        plan = make_plan(*mixture, **chosen, **world)
        steps = epoch_of(plan).reshape(plan.num_steps, -1)
        found.append([sorted(step.tolist()) for step in steps if step.min() >= 0])
    # Lanes are lengthened to the ranks, so that the last full step may hold other repeats.
    fewest = min(map(len, found)) - 1
    assert all(steps[:fewest] == found[0][:fewest] for steps in found)


@hypothesis_settings(max_examples=examples(60))
@given(mixture=mixtures(), chosen=settings_())
def test_how_often_each_sample_comes(
    mixture: tuple[list[list[int]], list[Weight]], chosen: dict[str, Any]
) -> None:
    """An epoch of each stream has as many samples as are wanted, none much more than another."""
    streams, weights = mixture
    chosen["num_canonical_nodes"] = 2
    world = {"num_nodes": 1, "ranks_per_node": 1, "batch_size": 8}
    plan = make_plan(streams, weights, **chosen, **world)
    resolved = resolve_weights([sum(each) for each in streams], weights, None, 9176)
    seen = Counter(ids_of(plan))
    first = 0
    for sizes, choose in zip(streams, resolved.choose.tolist(), strict=True):
        own = [seen[i] for i in range(first, first + sum(sizes))]
        first += sum(sizes)
        if chosen["batching_method"] == "random":
            assert choose <= sum(own) <= choose + 2
        elif chosen["batching_method"] == "per_stream":
            assert choose - 8 <= sum(own) <= choose + 2
        else:
            assert sum(own) <= choose + 2
        # A shard can be short of its share by a pick, and one sample may be repeated to even out.
        assert max(own) <= -(-choose // sum(sizes)) + 2
    if chosen["batching_method"] == "random" and all(w == Weight() for w in weights):
        assert set(seen) == set(range(first))


@pytest.mark.parametrize("algo", SHUFFLES[:-1])
def test_epochs_and_seeds_differ(algo: str) -> None:
    """Another epoch or seed has another order of the same samples; the same has the same."""
    streams = [[30] * 10]
    chosen = {"shuffle_algo": algo, "num_canonical_nodes": 2}
    wanted = ids_of(make_plan(streams, **chosen))
    assert sorted(wanted) == list(range(300))
    assert ids_of(make_plan(streams, **chosen)) == wanted
    for other in ({"epoch": 1}, {"shuffle_seed": 3}):
        got = ids_of(make_plan(streams, **chosen, **other))
        assert got != wanted
        assert sorted(got) == sorted(wanted)


class _Keeper:
    """Keeps arrays by key, as a node does."""

    def __init__(self) -> None:
        self.kept: dict[str, NDArray[np.int64]] = {}
        self.made = 0

    def __call__(
        self, key: str, count: int, make: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        if key not in self.kept:
            self.kept[key] = make()
            self.kept[key].flags.writeable = False
            self.made += 1
        assert len(self.kept[key]) == count
        return self.kept[key]


@hypothesis_settings(max_examples=examples(40))
@given(mixture=mixtures(), changes=st.lists(settings_(), min_size=2, max_size=6))
def test_keys_name_all_that_an_array_depends_on(
    mixture: tuple[list[list[int]], list[Weight]], changes: list[dict[str, Any]]
) -> None:
    """Plans that share a keeper of arrays are as they would be alone, and make nothing twice."""
    keeper = _Keeper()
    for chosen in changes:
        alone = epoch_of(make_plan(*mixture, **chosen, batch_size=8))
        shared = epoch_of(make_plan(*mixture, **chosen, batch_size=8, arrays=keeper))
        assert shared.tolist() == alone.tolist()
        made = keeper.made
        other_world = {"num_nodes": 2, "batch_size": 4}
        again = make_plan(*mixture, **chosen, arrays=keeper, **other_world)
        again.batches(0, 0, again.num_steps)
        if chosen["batching_method"] in {"random", "stratified"}:
            assert keeper.made == made
    assert all(key.startswith("order-") for key in keeper.kept)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("settings", [{}, {"shuffle_algo": "windowed"}])
def test_plain_and_windowed_orders_keep_no_array(method: str, settings: dict[str, Any]) -> None:
    """One stream used as it is needs no array at all."""
    keeper = _Keeper()
    plan = make_plan([[30] * 10], batching_method=method, arrays=keeper, **settings)
    assert ids_of(plan)
    assert plan.find(7)
    assert not keeper.kept


def test_nothing_is_made_before_it_is_asked_for() -> None:
    """The number of steps costs no shuffle."""
    keeper = _Keeper()
    plan = make_plan([[30] * 10], shuffle_algo="py1e", arrays=keeper)
    assert plan.num_steps == 75
    assert not keeper.kept
    plan.batches(0, 0, 1)
    assert len(keeper.kept) == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"batching_method": "stratified", "batch_size": 1}, "no sample in a global batch of 1"),
        ({"batching_method": "per_stream", "batch_size": 200}, "stream 0 has 100 samples"),
        ({"batching_method": "device_per_stream", "batch_size": 200}, "stream 0 has 100"),
        (
            {"batching_method": "device_per_stream", "num_nodes": 2, "num_canonical_nodes": 1},
            "multiple of the nodes",
        ),
        ({"num_nodes": 2, "num_canonical_nodes": 3, "partition_algo": "orig"}, "multiple"),
        ({"shuffle_algo": "py9"}, "got 'py9'"),
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"num_nodes": 0}, "num_nodes is at least 1"),
        ({"position": -1}, "position is at least 0"),
        (
            {"batching_method": "per_stream", "shuffle_algo": "py1e", "shuffle_block_size": 1},
            "raise shuffle_block_size",
        ),
        (
            {
                "batching_method": "device_per_stream",
                "shuffle_algo": "naive",
                "shuffle_block_size": 1,
            },
            "raise shuffle_block_size",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(settings: dict[str, Any], told: str) -> None:
    """Each refusal is a ValueError that tells setting and numbers."""
    with pytest.raises(OrderError, match=told):
        make_plan([[50, 50], [50, 50]], **settings)


def test_outside_is_refused() -> None:
    """Ranks, workers and steps that are not there are no empty answers."""
    plan = make_plan([[30] * 3])
    with pytest.raises(OrderError, match="rank 1"):
        plan.batches(1, 0, 1)
    with pytest.raises(OrderError, match="steps 0 to 99"):
        plan.batches(0, 0, 99)
    with pytest.raises(OrderError, match="worker 2"):
        plan.worker_steps(2, 2)
    assert plan.find(90) == plan.find(-1) == []


def test_an_epoch_of_nothing_has_no_steps() -> None:
    """A stream of which nothing is wanted gives an empty plan, not an error."""
    assert make_plan([[30] * 3], [Weight(choose=0)]).num_steps == 0


def test_a_position_within_a_global_batch_goes_back(caplog: pytest.LogCaptureFixture) -> None:
    """Methods of whole batches give the begun one again, and say so."""
    with caplog.at_level(logging.WARNING, "streaming_core.reader"):
        plan = make_plan([[30] * 3], batching_method="per_stream", position=9)
    assert plan.batches(0, 0, 1).tolist() == [[8, 9, 10, 11]]
    assert "1 samples are given once more" in caplog.text


def test_an_order_whose_file_is_cut_is_made_again(tmp_path: Path) -> None:
    """Reading what is mapped of it would end the process."""
    plan = make_plan([[3000]], shuffle_algo="py1e", arrays=SharedArrays(tmp_path))
    expected = ids_of(plan)
    (file,) = tmp_path.rglob("*.i8")
    os.truncate(file, 100)
    assert ids_of(plan) == expected
    assert file.stat().st_size > 3000 * 8
