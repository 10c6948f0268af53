"""Stopped after any batch and gone on with in any other world: nothing lost, nothing twice."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any, cast

import pytest
from torch.utils.data import DataLoader

from streaming_core import Stream, StreamingDataLoader, StreamingDataset, World
from streaming_core.errors import CheckpointError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

_GLOBAL_BATCH = 8
_WORLDS = [(nodes, ranks) for nodes in (1, 2, 4) for ranks in (1, 2)]
_METHODS = ["random", "stratified", "per_stream", "device_per_stream"]


class _Job:
    """A data set in any world, with the same global batch."""

    def __init__(self, streams: list[dict[str, Any]], **config: Any) -> None:
        self.streams = streams
        self.config = {"shuffle": True, "num_canonical_nodes": 4, **config}

    def loader(
        self, rank: int, nodes: int, ranks_per_node: int, workers: int, state: Any = None
    ) -> StreamingDataLoader:
        """Return the loader of one rank."""
        ranks = nodes * ranks_per_node
        batch = _GLOBAL_BATCH // ranks
        dataset = StreamingDataset(
            streams=[Stream(**stream) for stream in self.streams],
            batch_size=batch,
            world=World(rank, ranks, ranks_per_node),
            **self.config,
        )
        loader = StreamingDataLoader(
            dataset,
            batch_size=batch,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        return loader

    def steps(
        self, nodes: int, ranks: int, workers: int, state: Any = None, *, stop: int | None = None
    ) -> tuple[list[list[int]], Any]:
        """Return the ids of each global batch, and rank 0's state after the last one taken."""
        loaders = [self.loader(r, nodes, ranks, workers, state) for r in range(nodes * ranks)]
        steps = itertools.islice(itertools.zip_longest(*loaders), stop)
        found = [
            [int(n) for batch in batches if batch is not None for n in batch["id"]]
            for batches in steps
        ]
        return found, loaders[0].state_dict()


def _mixture(ids_folder: Path, more_folder: Path) -> list[dict[str, Any]]:
    return [
        {"local": ids_folder, "proportion": 0.75},
        {"local": more_folder, "proportion": 0.25},
    ]


def _as_sets(steps: list[list[int]]) -> list[list[int]]:
    return [sorted(step) for step in steps]


@pytest.mark.parametrize(
    ("method", "algo"),
    [
        ("random", "py1e"),
        ("per_stream", "windowed"),
        *(
            pytest.param(method, algo, marks=pytest.mark.slow)
            for method, algo in itertools.product(_METHODS, ["py1e", "windowed"])
            if (method, algo) not in {("random", "py1e"), ("per_stream", "windowed")}
        ),
    ],
)
def test_every_world_and_every_stop_gives_the_same_global_batches(
    ids_folder: Path, more_folder: Path, method: str, algo: str
) -> None:
    """Whatever worlds the epoch began in and goes on in, at every batch.

    `device_per_stream` deals whole batches of devices, so its order is that of one world: there an
    epoch goes on in the world it began in.
    """
    job = _Job(
        _mixture(ids_folder, more_folder),
        batching_method=method,
        shuffle_algo=algo,
        shuffle_block_size=24,
        epoch_size=96,
    )
    if method == "device_per_stream":
        for world in _WORLDS:
            _stop_everywhere(job, [world])
    else:
        _stop_everywhere(job, _WORLDS, skip=12 * _METHODS.index(method) + 6 * (algo == "py1e"))


def _stop_everywhere(job: _Job, worlds: list[tuple[int, int]], *, skip: int = 0) -> None:
    """Stop and go on at every batch, between any two of the worlds in turn."""
    whole, _ = job.steps(*worlds[0], 0)
    assert sum(map(len, whole)) >= 80
    for nodes, ranks in worlds:
        assert _as_sets(job.steps(nodes, ranks, 0)[0]) == _as_sets(whole), (nodes, ranks)
    pairs = itertools.islice(itertools.cycle(itertools.product(worlds, worlds)), skip, None)
    for stop, (before, after) in zip(range(1, len(whole)), pairs, strict=False):
        first, state = job.steps(*before, 0, stop=stop)
        rest, _ = job.steps(*after, 0, state)
        assert _as_sets(first + rest) == _as_sets(whole), (stop, before, after)


def test_an_epoch_may_be_resumed_many_times(ids_folder: Path) -> None:
    """Each time for a few batches, in another world; the state counts all that came before."""
    job = _Job([{"local": ids_folder}], epoch_size=96)
    whole, _ = job.steps(1, 1, 0)
    found: list[list[int]] = []
    state = None
    for (nodes, ranks), stop in zip(itertools.cycle(_WORLDS), [1, 3, 2, 3, 2, None], strict=False):
        steps, state = job.steps(nodes, ranks, 0, state, stop=stop)
        found += steps
    assert _as_sets(found) == _as_sets(whole)


@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "runs"),
    [
        ("random", [(0, 3, 1), (1, 2, 4), (2, 0, 5), (3, 1, 7), (2, 3, -1)]),
        ("stratified", [(1, 2, 1), (3, 2, -1)]),
        ("per_stream", [(2, 1, 4), (2, 3, -1)]),
        ("device_per_stream", [(2, 3, 5), (3, 1, -1)]),
    ],
)
def test_workers_and_prefetching_do_not_matter(
    ids_folder: Path, more_folder: Path, method: str, runs: list[tuple[int, int, int]]
) -> None:
    """With 0 to 3 real workers before the stop, and any other number after it."""
    job = _Job(
        _mixture(ids_folder, more_folder),
        batching_method=method,
        shuffle_block_size=24,
        epoch_size=96,
    )
    whole, _ = job.steps(1, 2, 0)
    for before, after, at in runs:
        stop = at if at > 0 else len(whole) - 1
        assert job.steps(1, 2, before)[0] == whole
        first, state = job.steps(1, 2, before, stop=stop)
        rest, _ = job.steps(1, 2, after, state)
        assert first + rest == whole, (before, after, stop)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_checkpoint_at_the_end_goes_on_with_the_next_epoch(
    ids_folder: Path, workers: int
) -> None:
    """And then the one after it, as if never stopped."""
    job = _Job([{"local": ids_folder}])
    loader = job.loader(0, 1, 1, 0)
    epochs = [[int(n) for batch in loader for n in batch["id"]] for _ in range(3)]
    assert epochs[0] != epochs[1]
    _, state = job.steps(1, 1, workers)
    resumed = job.loader(0, 1, 1, 0, state)
    for epoch in epochs[1:]:
        assert [int(n) for batch in resumed for n in batch["id"]] == epoch


def _plain(dataset: Any, workers: int) -> Iterator[list[int]]:
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=dataset.batch_size,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    for batch in loader:
        yield [int(n) for n in batch["id"]]


@pytest.mark.parametrize(
    "workers",
    [0, pytest.param(1, marks=pytest.mark.process), pytest.param(3, marks=pytest.mark.process)],
)
def test_torchs_own_loader_gives_the_same_batches(ids_folder: Path, workers: int) -> None:
    """Value for value, epoch for epoch."""
    job = _Job([{"local": ids_folder}])
    ours = job.loader(0, 1, 1, workers)
    plain = job.loader(0, 1, 1, 0).dataset
    for _ in range(2):
        wanted = [[int(n) for n in batch["id"]] for batch in ours]
        assert list(_plain(plain, workers)) == wanted


def test_loading_counts_whenever_it_is_done(ids_folder: Path) -> None:
    """Twice, after iterating, and back to an earlier epoch."""
    job = _Job([{"local": ids_folder}])
    whole, _ = job.steps(1, 1, 0)
    _, early = job.steps(1, 1, 0, stop=2)
    _, late = job.steps(1, 1, 0, stop=5)
    loader = job.loader(0, 1, 1, 0)
    for _ in range(3):
        for _ in loader:
            pass
    loader.load_state_dict(late)
    loader.load_state_dict(early)
    assert [[int(n) for n in batch["id"]] for batch in loader] == whole[2:]
    loader.load_state_dict(late)
    assert [[int(n) for n in batch["id"]] for batch in loader] == whole[5:]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.kill
@pytest.mark.parametrize("after", [1, 3, 9])
def test_a_killed_worker_costs_no_sample(ids_folder: Path, after: int) -> None:
    """The trainer is told at once, and goes on from what it has got with other workers."""
    job = _Job([{"local": ids_folder}])
    whole, _ = job.steps(1, 1, 0)
    loader = job.loader(0, 1, 1, 2)
    seen: list[list[int]] = []

    def train() -> None:
        for number, batch in enumerate(loader, start=1):
            seen.append([int(n) for n in batch["id"]])
            if number == after:
                for child in multiprocessing.active_children():
                    os.kill(child.pid or 0, signal.SIGKILL)

    with pytest.raises(RuntimeError, match="worker"):
        train()
    state = loader.state_dict()
    rest, _ = job.steps(1, 1, 3, state)
    # Workers may have sent the last batch before they died: then the rest is the next epoch.
    assert (seen + rest)[: len(whole)] == whole


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_peek_or_a_load_does_not_change_what_was_begun(ids_folder: Path, workers: int) -> None:
    """Whatever is iterated or loaded after a loader's iterator was made, it gives its own epoch."""
    job = _Job([{"local": ids_folder}])
    whole, _ = job.steps(1, 1, 0)
    _, state = job.steps(1, 1, 0, stop=3)
    loader = job.loader(0, 1, 1, workers)
    dataset = cast("StreamingDataset", loader.dataset)
    begun = iter(loader)
    next(iter(dataset))
    other = iter(loader)
    dataset.load_state_dict(state)
    assert [[int(n) for n in batch["id"]] for batch in begun] == whole
    assert [int(n) for batch in other for n in batch["id"]] != [n for step in whole for n in step]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_state_taken_before_the_first_batch_is_of_the_new_epoch(
    ids_folder: Path, workers: int
) -> None:
    """Not of the one before, which would come twice."""
    job = _Job([{"local": ids_folder}])
    loader = job.loader(0, 1, 1, workers)
    for _ in loader:
        pass
    begun = iter(loader)
    state = loader.state_dict() or {}
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 0)
    del begun


def test_an_epoch_whose_last_batch_was_dropped_is_over(ids_folder: Path) -> None:
    """Its checkpoint goes on with the next one, instead of giving nothing."""
    dataset = StreamingDataset(local=ids_folder, batch_size=8, shuffle=True, num_canonical_nodes=4)
    loader = StreamingDataLoader(dataset, batch_size=8, drop_last=True)
    epochs = [[int(n) for batch in loader for n in batch["id"]] for _ in range(2)]
    dataset.next_epoch = 0
    assert [int(n) for batch in loader for n in batch["id"]] == epochs[0]
    loader.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert [int(n) for batch in loader for n in batch["id"]] == epochs[1]


def test_what_would_make_a_checkpoint_wrong_is_refused(ids_folder: Path, more_folder: Path) -> None:
    """Another batch size in the loader, another global batch of streams."""
    dataset = StreamingDataset(local=ids_folder, batch_size=8)
    with pytest.raises(SchemaError, match="batch_size=4, its dataset 8"):
        StreamingDataLoader(dataset, batch_size=4)
    job = _Job(_mixture(ids_folder, more_folder), batching_method="per_stream", epoch_size=96)
    _, state = job.steps(1, 1, 0, stop=2)
    streams = [Stream(**stream) for stream in job.streams]
    smaller = StreamingDataset(streams=streams, batch_size=4, **job.config)
    with pytest.raises(CheckpointError, match="global_batch_size was 8 and is 4"):
        smaller.load_state_dict(state)


@pytest.mark.process
def test_a_state_of_batches_out_of_order_is_refused(ids_folder: Path) -> None:
    """Because nobody could tell which samples it counts."""
    dataset = StreamingDataset(local=ids_folder, batch_size=8)
    loader = StreamingDataLoader(dataset, batch_size=8, num_workers=2, in_order=False)
    for _ in loader:
        break
    with pytest.raises(CheckpointError, match="in_order"):
        loader.state_dict()


def test_a_state_of_the_reference_before_its_first_epoch_is_the_beginning(
    ids_folder: Path,
) -> None:
    """It says epoch -1 then; with samples, or from us, that cannot be."""
    dataset = StreamingDataset(local=ids_folder, batch_size=4)
    state = {
        "epoch": -1,
        "sample_in_epoch": 0,
        "num_canonical_nodes": 1,
        "shuffle_seed": 9176,
        "initial_physical_nodes": None,
    }
    dataset.load_state_dict(state)
    assert dataset.next_epoch == 0
    assert [sample["id"] for sample in dataset] == list(range(101))
    for wrong in (
        {**state, "sample_in_epoch": 4},
        {**state, "epoch": -2},
        {**dataset.state_dict(), "epoch": -1},
    ):
        with pytest.raises(CheckpointError, match="epoch"):
            dataset.load_state_dict(wrong)
