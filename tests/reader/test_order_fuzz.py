"""Random jobs that stop at random moments and go on in random worlds, some many times.

Each is planned, which is quick; some are run through the public classes as well.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.reader.elastic import Run, Shape, write_numbers

from streaming_core.errors import CheckpointError, OrderError
from streaming_reader._order import EpochPlan, OrderConfig, Weight, resolve_weights

if TYPE_CHECKING:
    from pathlib import Path

Steps = list[list[int]]

_SHARD = 37
_SIZES = (9, 64, 101, 240)
_SHUFFLES = ["naive", "py1s", "py1b", "py1br", "py1e", "py2s", "windowed"]
_METHODS = ["random", "random", "stratified", "per_stream", "device_per_stream"]


@dataclass(frozen=True)
class _State:
    """What a checkpoint holds."""

    sample: int = 0
    canonical_nodes: int | None = None
    initial_nodes: int | None = None
    began: tuple[int, int, int] | None = None


def _weight(rng: random.Random, kind: str) -> dict[str, Any]:
    values: dict[str, list[float]] = {
        "repeat": [0.6, 1, 1.7],
        "choose": [30, 77, 150],
        "proportion": [1, 2, 3],
    }
    return {kind: rng.choice(values[kind])} if kind in values else {}


@dataclass
class _Job:
    """A job drawn at random."""

    seed: int
    together: int = 0
    counts: list[int] = field(default_factory=list)
    weights: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)  # noqa: S311 - it draws tests
        self.together = rng.choice([4, 6, 8, 12, 24])
        self.counts = [rng.choice(_SIZES) for _ in range(rng.choice([1, 1, 2, 3]))]
        self.config = {
            "batching_method": rng.choice(_METHODS),
            "shuffle": rng.random() < 0.8,
            "shuffle_algo": rng.choice(_SHUFFLES),
            "shuffle_block_size": rng.choice([60, 200, 1000]),
            "num_canonical_nodes": rng.choice([None, 1, 2, 3, 4, 6, 12]),
            "sampling_method": rng.choice(["balanced", "fixed"]),
            "sampling_granularity": rng.choice([1, 5]),
            "partition_algo": rng.choice(["relaxed", "relaxed", "orig"]),
        }
        kind = rng.choice(["plain", "plain", "repeat", "choose", "proportion"])
        self.weights = [_weight(rng, kind) for _ in self.counts]

    @property
    def is_random(self) -> bool:
        """Whether samples of all streams are one sequence."""
        return bool(self.config["batching_method"] == "random")

    def shape(self, most: int = 32) -> Shape:
        """Return a world of at most so many ranks that can divide the global batch evenly."""
        fitting = [
            (nodes, ranks)
            for nodes, ranks in itertools.product([1, 2, 3, 4, 6, 8], [1, 2, 3, 4])
            if self.together % (nodes * ranks) == 0 and nodes * ranks <= most
        ]
        return self.rng.choice(fitting)

    def plan(self, shape: Shape, state: _State) -> EpochPlan:
        """Return the plan of what is left of an epoch."""
        nodes, ranks = shape
        sizes = [
            np.array([_SHARD] * (n // _SHARD) + [n % _SHARD] * (n % _SHARD > 0))
            for n in self.counts
        ]
        config = {**self.config, "batch_size": self.together // (nodes * ranks)}
        if state.canonical_nodes is not None:
            config["num_canonical_nodes"] = state.canonical_nodes
        return EpochPlan(
            sizes,
            resolve_weights(self.counts, [Weight(**each) for each in self.weights], None, 9176),
            OrderConfig(**config),
            num_nodes=nodes,
            ranks_per_node=ranks,
            epoch=1,
            position=state.sample,
            initial_nodes=state.initial_nodes,
            began=state.began if state.sample else None,
        )


def _planned(job: _Job, shape: Shape, state: _State, stop: int | None) -> tuple[Steps, _State]:
    """Return what an epoch gives from a checkpoint on, and the checkpoint at `stop`."""
    plan = job.plan(shape, state)
    found = []
    for step in range(plan.num_steps if stop is None else min(stop, plan.num_steps)):
        ids = plan.step(step)
        given = (ids >= 0).sum(axis=1).tolist()
        if (
            job.config["batching_method"] != "device_per_stream"
        ):  # which the reference ends unevenly
            assert len(set(given)) == 1, f"step {step} of {plan.num_steps}: ranks get {given}"
        if any(given):
            found.append(ids[ids >= 0].tolist())
    batch = job.together // (shape[0] * shape[1])
    given_by_all = sum(map(len, found))
    if job.config["batching_method"] == "device_per_stream":
        given_by_all = len(found) * job.together  # as its first rank counts
    after = _State(
        sample=state.sample + given_by_all,
        canonical_nodes=plan.canonical_nodes,
        initial_nodes=state.initial_nodes or shape[0],
        began=(state.began if state.sample else None) or (*shape, batch),
    )
    return found, after


def _check(
    job: _Job, found: Steps, wanted: Steps, least: Counter[int], *, drop_last: bool = False
) -> None:
    """Assert that what was given is what was planned."""
    if not job.is_random:
        assert [sorted(step) for step in found] == [sorted(step) for step in wanted]
        return
    # At the end samples are repeated, in each world as many as it has nodes and ranks.
    same = min(len(found), len(wanted)) - 1
    assert [sorted(s) for s in found[:same]] == [sorted(s) for s in wanted[:same]]
    given = Counter(itertools.chain(*found))
    left_out = (least - given).total()
    assert left_out < (job.together if drop_last else 1), "samples are left out"
    assert (given - least).total() < 2 * job.together, "more samples are repeated than needed"


def _chain(job: _Job) -> bool:
    """Run a job with random stops; return False where it cannot begin in the world drawn."""
    first = job.shape()
    try:
        wanted, end = _planned(job, first, _State(), None)
    except OrderError:
        return False
    least: Counter[int] = Counter()
    if job.is_random:
        alone, _ = _planned(job, (1, 1), replace(end, sample=0, initial_nodes=1), None)
        least.update(itertools.chain(*alone))
    shape, state = first, _State()
    found: Steps = []
    for _ in range(job.rng.randint(1, 4)):
        left = len(wanted) - len(found)
        more, state = _planned(job, shape, state, job.rng.choice([0, 1, left // 2, left, left + 1]))
        found += more
        shape = _next_shape(job, shape, state)
        if not state.sample:  # then it begins there
            wanted, _ = _planned(job, shape, state, None)
    found += _planned(job, shape, state, None)[0]
    _check(job, found, wanted, least)
    return True


def _next_shape(job: _Job, shape: Shape, state: _State) -> Shape:
    """Return a world in which a job can go on."""
    if job.config["batching_method"] == "device_per_stream":
        return shape
    for _ in range(10):
        other = job.shape()
        try:
            job.plan(other, state)
        except OrderError:
            continue
        return other
    return shape


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))]
)
def test_planned_jobs_go_on_anywhere(part: int) -> None:
    """All samples come as planned, and each rank is given as many as any other."""
    begun = 0
    for seed in range(100 * part, 100 * (part + 1)):
        try:
            begun += _chain(_Job(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert begun > 50


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return a data set of each size."""
    root = tmp_path_factory.mktemp("numbers")
    return {size: write_numbers(root / str(size), size) for size in _SIZES}


def _run_chain(job: _Job, folders: dict[int, Path]) -> bool:
    """Run a job as `_chain` does, by loaders and their checkpoints, and one more epoch."""
    rng = job.rng
    alike, drop_last = rng.choice([1, 1, 2]), rng.random() < 0.3
    if job.config["batching_method"] == "device_per_stream":
        job.config["batching_method"] = "random"
    job.config["replication"] = alike
    streams = [
        {"local": folders[count], **weight}
        for count, weight in zip(job.counts, job.weights, strict=True)
    ]

    def run(state: Any) -> Run:
        nodes, ranks = job.shape(4)
        shape = (nodes, ranks * alike)
        return Run(streams, shape, job.together, job.config, state, drop_last=drop_last)

    begun = run(None)
    try:
        wanted = begun.steps()
    except OrderError:
        return False
    config = {
        **job.config,
        "num_canonical_nodes": begun.state["num_canonical_nodes"],
        "replication": None,
    }
    least: Counter[int] = Counter()
    if job.is_random:
        least.update(itertools.chain(*Run(streams, (1, 1), job.together, config).steps()))
    again = Run(streams, begun.shape, job.together, job.config, drop_last=drop_last)
    found = again.steps(rng.randint(1, len(wanted)) if wanted else None)
    state, is_over = again.state, False
    stops = [rng.randint(0, len(wanted)) for _ in range(rng.randint(0, 2))]
    for stop in [*stops, None]:
        try:
            after = run(state)
        except CheckpointError as error:
            if isinstance(error.__cause__, OrderError):
                continue  # it cannot go on in this world
            raise
        more = after.steps(stop)
        is_over = stop is None or after.state["epoch"] > 0
        if after.state["epoch"]:
            assert len(more) >= min(len(wanted) - 1, len(wanted) if stop is None else stop)
            break
        found, state = found + more, after.state
    if is_over:
        _check(job, found, wanted, least, drop_last=drop_last)
        after.steps()
    return is_over


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15))]
)
def test_loaders_go_on_anywhere(folders: dict[int, Path], part: int) -> None:
    """What is planned is what trainers are given, and no checkpoint of their own is refused."""
    for seed in range(4 * part, 4 * (part + 1)):
        try:
            _run_chain(_Job(seed), folders)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
