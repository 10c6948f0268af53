"""torchdata's StatefulDataLoader, which asks every worker where it stands."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from streaming_core import Stream, StreamingDataset, World
from streaming_core.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

_HERE: dict[str, Any] = {"num_workers": 0}
_ONE: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "fork"}
_TWO: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}
_process = pytest.mark.process


def _id_list(samples: list[dict[str, Any]]) -> list[int]:
    return [sample["id"] for sample in samples]


def _loader(folder: Path, way: dict[str, Any], **config: Any) -> Any:
    dataset = StreamingDataset(local=folder, batch_size=4, shuffle=True, **config)
    return StatefulDataLoader(dataset, batch_size=4, collate_fn=_id_list, **way)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(_HERE, id="in process"),
        pytest.param(_TWO, id="two", marks=_process),
        pytest.param({**_TWO, "persistent_workers": True}, id="persistent", marks=_process),
        pytest.param({**_TWO, "snapshot_every_n_steps": 3}, id="snapshots", marks=_process),
    ],
)
def test_a_state_goes_on_with_exactly_the_rest(ids_folder: Path, way: dict[str, Any]) -> None:
    """Of the second epoch, after any batch and at its end, in a new loader and in the old one.

    The next epoch is then the third.
    """
    original = _loader(ids_folder, way)
    whole = [list(original) for _ in range(3)]
    assert sorted(itertools.chain(*whole[0])) == list(range(101))
    assert whole[0] != whole[1]
    for stop in (1, 6, len(whole[1])):
        stopped = _loader(ids_folder, way)
        list(stopped)
        running = iter(stopped)
        first = list(itertools.islice(running, stop))
        if stop == len(whole[1]):
            assert next(running, None) is None
        state = json.loads(json.dumps(stopped.state_dict()))
        for target in [_loader(ids_folder, way), stopped]:
            target.load_state_dict(state)
            if stop < len(whole[1]):
                assert first + list(target) == whole[1], stop
            assert list(target) == whole[2], stop


@pytest.mark.process
def test_spawned_workers_go_on_as_well(ids_folder: Path) -> None:
    """In a loader of their own, where forked ones stopped."""
    whole = list(_loader(ids_folder, _ONE))
    stopped = _loader(ids_folder, _ONE)
    first = list(itertools.islice(stopped, 3))
    spawned = _loader(ids_folder, {"num_workers": 1, "multiprocessing_context": "spawn"})
    spawned.load_state_dict(stopped.state_dict())
    assert first + list(spawned) == whole


@pytest.mark.parametrize(
    "way",
    [pytest.param(_HERE, id="in process"), pytest.param(_TWO, id="two", marks=_process)],
)
def test_a_state_taken_before_the_first_batch_is_the_beginning(
    ids_folder: Path, way: dict[str, Any]
) -> None:
    """And asking for it takes nothing away."""
    loader = _loader(ids_folder, way)
    state = loader.state_dict()
    first, second = list(loader), list(loader)
    loader.load_state_dict(state)
    assert [list(loader), list(loader)] == [first, second]


@pytest.mark.process
def test_a_state_that_is_resumed_can_be_resumed_again(ids_folder: Path) -> None:
    """Stopped after every third batch, each time in a new loader."""
    way = _TWO
    whole = list(_loader(ids_folder, way))
    found: list[list[int]] = []
    state = None
    while len(found) < len(whole):
        loader = _loader(ids_folder, way)
        if state is not None:
            loader.load_state_dict(state)
        found += itertools.islice(loader, 3)
        state = loader.state_dict()
    assert found == whole


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"batch_size": 8}, "batch_size was 4 and is 8"),
        ({"world": World(1, 2, 2)}, "first_rank was 0 and is 1"),
    ],
)
def test_a_workers_state_is_of_one_sequence(
    ids_folder: Path, changed: dict[str, Any], said: str
) -> None:
    """Where another would be gone on with, it is refused and says what differs."""
    config: dict[str, Any] = {"batch_size": 4, "world": World(0, 2, 2), "shuffle": True}
    running: Any = iter(StreamingDataset(local=ids_folder, **config))
    next(running)
    other: Any = iter(StreamingDataset(local=ids_folder, **{**config, **changed}))
    with pytest.raises(CheckpointError, match=said):
        other.load_state_dict(running.state_dict())
    states: list[Any] = [{}, [], {"samples": "3"}, {"samples": True}, {"samples": -1}]
    for broken in states:
        with pytest.raises(CheckpointError):
            other.load_state_dict(broken)


@pytest.mark.process
@pytest.mark.parametrize("workers", [1, 3])
def test_another_number_of_workers_is_refused(ids_folder: Path, workers: int) -> None:
    """Rather than that samples are lost or repeated."""
    stopped = _loader(ids_folder, _TWO)
    next(iter(stopped))
    other = _loader(ids_folder, {"num_workers": workers, "multiprocessing_context": "fork"})
    other.load_state_dict(stopped.state_dict())
    with pytest.raises(CheckpointError, match=f"workers was 2 and is {workers}") as caught:
        list(other)
    # The error holds both iterators in a cycle, and one that is collected waits for its workers.
    stopped._iterator._shutdown_workers()
    for entry in caught.traceback:
        shut_down = getattr(entry.frame.f_locals.get("self"), "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()


@pytest.mark.parametrize("method", ["random", "stratified", "per_stream", "device_per_stream"])
@pytest.mark.parametrize("algo", ["py1e", "windowed"])
def test_any_number_of_samples_can_be_left_out(
    ids_folder: Path, more_folder: Path, method: Any, algo: Any
) -> None:
    """Whatever makes the batches, also from the middle of an epoch, to the last sample and beyond.

    The windows begin with a batch and grow, so that all their borders are met.
    """
    for rank, start in [(0, 0), (1, 24)]:
        dataset = StreamingDataset(
            streams=[Stream(local=ids_folder), Stream(local=more_folder)],
            batch_size=3,
            shuffle=True,
            batching_method=method,
            shuffle_algo=algo,
            world=World(rank, 2, 2, worker=1, workers_per_rank=2),
        )
        state = {**dataset.state_dict(), "sample_in_epoch": start}
        dataset.load_state_dict(state)
        feed = dataset._streaming_engine.begin(None).feed
        with feed(0) as whole:
            ids = np.concatenate(list(whole._windows))
        assert len(ids) > 20
        for skip in range(len(ids) + 4):
            with feed(skip) as rest:
                found = [np.zeros(0, np.int64), *rest._windows]
            assert np.concatenate(found).tolist() == ids[skip:].tolist()
