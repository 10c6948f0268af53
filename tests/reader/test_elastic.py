"""An epoch that goes on in another world: by the plan it began with, and alike on all ranks."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.elastic import Run, Shape, write_numbers

from streaming_core import Stream, StreamingDataset
from streaming_core.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def _streams(folder: Path, *counts: int) -> list[dict[str, Any]]:
    return [{"local": write_numbers(folder / str(i), n)} for i, n in enumerate(counts)]


def _sorted(steps: list[list[int]]) -> list[list[int]]:
    return [sorted(step) for step in steps]


@pytest.mark.parametrize("method", ["per_stream", "stratified"])
@pytest.mark.parametrize(
    ("counts", "nodes", "together", "shapes"),
    [
        ((1001, 503), 1, 8, [(1, 2), (1, 1)]),
        ((503, 301, 205), 1, 32, [(1, 1), (1, 32)]),
        ((301, 203), 2, 24, [(2, 3), (1, 1), (1, 8), (2, 1)]),
    ],
)
def test_streams_go_on_by_the_plan_they_began_with(
    tmp_path: Path,
    method: str,
    counts: tuple[int, ...],
    nodes: int,
    together: int,
    shapes: list[Shape],
) -> None:
    """Global batches are those of the run that began, through several other worlds."""
    streams = _streams(tmp_path, *counts)
    config = {"batching_method": method, "shuffle": True, "num_canonical_nodes": nodes}
    wanted = Run(streams, shapes[0], together, config).steps()
    found: list[list[int]] = []
    state = None
    for shape in shapes:
        run = Run(streams, shape, together, config, state)
        last = shape == shapes[-1]
        found += run.steps(None if last else len(wanted) // (len(shapes) + 1))
        state = run.state
    assert _sorted(found) == _sorted(wanted)


def test_the_next_epoch_is_planned_for_the_present_world(tmp_path: Path) -> None:
    """Only the epoch that was resumed goes on as it began."""
    streams = _streams(tmp_path, 101, 53)
    config = {"batching_method": "per_stream", "shuffle": True, "num_canonical_nodes": 1}
    before = Run(streams, (1, 8), 8, config)
    before.steps(3)
    after = Run(streams, (1, 1), 8, config, before.state)
    after.steps()
    fresh = Run(streams, (1, 1), 8, config)
    fresh.steps()
    assert after.steps() == fresh.steps()


def test_the_loader_may_have_the_only_batch_size(tmp_path: Path) -> None:
    """What the epoch began with is known from iterating then."""
    streams = _streams(tmp_path, 101, 53)
    config: dict[str, Any] = {"batching_method": "per_stream", "shuffle": True}
    dataset = StreamingDataset(streams=[Stream(**each) for each in streams], **config)
    for _ in dataset.batches(8, batch_format="rows"):
        break
    dataset.load_state_dict(dataset.state_dict(8))
    with pytest.raises(CheckpointError, match=r"global batch of 8 samples.*of 4"):
        dataset.batches(4, batch_format="rows")


def test_a_checkpoint_that_lacks_the_world_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reference's, and those of earlier releases, go on by the plan of the present world."""
    streams = _streams(tmp_path, 101, 53)
    run = Run(streams, (1, 1), 8, {"batching_method": "per_stream"})
    run.steps(3)
    del run.state["streaming_core"]
    with caplog.at_level(logging.WARNING, "streaming_core.reader"):
        rest = Run(streams, (1, 1), 8, run.config, run.state).steps()
    assert "does not say on how many nodes and ranks" in caplog.text
    assert rest == Run(streams, (1, 1), 8, run.config).steps()[3:]


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_are_alike_where_canonical_nodes_do_not_fit(
    tmp_path: Path, *, drop_last: bool
) -> None:
    """In what is left of the epoch and in those after it; every sample comes as planned."""
    streams = _streams(tmp_path, 1000)
    config = {"shuffle": True, "num_canonical_nodes": 3}
    before = Run(streams, (1, 4), 12, config, drop_last=drop_last)
    wanted = before.steps()
    begun = Run(streams, (1, 4), 12, config, drop_last=drop_last)
    found = begun.steps(7)
    after = Run(streams, (2, 1), 12, config, begun.state, drop_last=drop_last)
    found += after.steps()
    assert _sorted(found)[:-1] == _sorted(wanted)[: len(found) - 1]
    if not drop_last:
        assert set(itertools.chain(*found)) == set(range(1000))
    for _ in range(2):
        more = after.steps()
        assert len(more) == len(wanted)
        assert max(Counter(itertools.chain(*more)).values()) <= 2


@pytest.mark.parametrize(
    ("before", "after"), [((1, 1), (4, 1)), ((1, 1), (1, 4)), ((1, 4), (4, 1))]
)
def test_the_end_of_an_epoch_is_its_end_in_any_world(
    tmp_path: Path, before: Shape, after: Shape
) -> None:
    """What comes next is the next epoch, and not some samples once more."""
    streams = _streams(tmp_path, 666)
    ended = Run(streams, before, 4, {"shuffle": True})
    ended.steps()
    found = Run(streams, after, 4, {"shuffle": True}, ended.state).steps()
    assert len(found) == 167
    assert set(itertools.chain(*found)) == set(range(666))


@pytest.mark.parametrize(
    ("samples", "algo", "repeats"),
    [(240, "py1s", 16), (256, "py2s", 0), (50, "py1s", 14), (241, "py1e", 0)],
)
def test_how_many_samples_come_twice(tmp_path: Path, samples: int, algo: str, repeats: int) -> None:
    """As many as lack to a multiple of the canonical nodes, in every epoch."""
    run = Run(_streams(tmp_path, samples), (1, 1), 8, {"shuffle": True, "shuffle_algo": algo})
    for _ in range(2):
        found = list(itertools.chain(*run.steps()))
        assert len(found) == samples + repeats
        assert set(found) == set(range(samples))


@pytest.mark.parametrize(("method", "samples"), [("random", 50), ("stratified", 50), ("random", 7)])
def test_no_checkpoint_of_the_same_job_is_refused(
    tmp_path: Path, method: str, samples: int
) -> None:
    """Though padding to the canonical nodes makes the epoch longer than its samples."""
    streams = _streams(tmp_path, samples)
    config = {"shuffle": True, "shuffle_algo": "py1s", "batching_method": method}
    run = Run(streams, (2, 1), 8, config)
    wanted = run.steps()
    for stop in {1, len(wanted) - 1, len(wanted)}:
        begun = Run(streams, (2, 1), 8, config)
        found = begun.steps(stop)
        rest = Run(streams, (2, 1), 8, config, begun.state).steps()
        assert found + (rest if stop < len(wanted) else []) == wanted


def test_a_world_that_cannot_plan_the_next_epoch_is_refused_at_once(tmp_path: Path) -> None:
    """Not after the rest of the epoch that was resumed."""
    config = {
        "batching_method": "per_stream",
        "num_canonical_nodes": 3,
        "partition_algo": "orig",
    }
    run = Run(_streams(tmp_path, 101, 53), (1, 1), 8, config)
    run.steps(2)
    with pytest.raises(CheckpointError, match="multiple of the other"):
        Run(run.streams, (2, 1), 8, config, run.state).steps(1)
