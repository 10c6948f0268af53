"""Damaged or made-up checkpoints: loaded, or refused with a reason and nothing changed."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.reader.elastic import Numbers, write_numbers

from streaming_core import Stream, StreamingDataset, World
from streaming_core.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

_WORLD = World(0, 2, 2)
_METHODS = ["random", "per_stream", "stratified", "device_per_stream"]
_KEYS = [
    "epoch",
    "sample_in_epoch",
    "num_canonical_nodes",
    "shuffle_seed",
    "initial_physical_nodes",
]


class _Unshowable:
    """Raises whatever is done with it."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __int__(self) -> int:
        raise RuntimeError

    def __index__(self) -> int:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError


class _Broken(Mapping[str, Any]):
    """A mapping that raises when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


_VALUES: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2**31,
    2**62,
    2**63 - 1,
    2**63,
    2**70,
    10**9,
    10**5000,
    -(2**70),
    0.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "1",
    "x" * 100_000,
    b"1",
    [],
    [1],
    {},
    {"nodes": 1},
    (),
    set(),
    1j,
    object(),
    int,
    _nested(3000),
    _Unshowable(),
    _Broken(),
    np.int64(3),
    np.array(3),
    np.array([1, 2]),
    np.array([]),
    np.array(["a", None], object),
    np.float64(2),
    np.bool_(True),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two data sets."""
    root = tmp_path_factory.mktemp("numbers")
    return [write_numbers(root / str(size), size) for size in (101, 64)]


def _open(folders: list[Path], method: Any, world: World = _WORLD) -> StreamingDataset:
    return Numbers(
        streams=[Stream(local=folder) for folder in folders],
        batch_size=4,
        shuffle=True,
        batching_method=method,
        world=world,
    )


def _load(dataset: StreamingDataset, state: Any) -> bool:
    """Load a checkpoint; return whether it was taken. A refused one must leave no trace."""
    before = dataset.state_dict(), dataset.next_epoch
    try:
        dataset.load_state_dict(state)
    except CheckpointError:
        assert (dataset.state_dict(), dataset.next_epoch) == before
        return False
    return True


@pytest.mark.parametrize("own", [True, 1, "x", [1], {"epoch_began_on": []}, [], 0])
def test_an_own_part_of_another_kind_is_refused(folders: list[Path], own: Any) -> None:
    """Nothing is looked up in what is no mapping."""
    dataset = _open(folders, "random")
    state = {**dataset.state_dict(), "streaming_core": own}
    with pytest.raises(CheckpointError, match=r"is a mapping.*; came"):
        dataset.load_state_dict(state)


@pytest.mark.parametrize("key", _KEYS)
@pytest.mark.parametrize("value", [2**63, 2**200, -1, True, 0.5, "1"])
def test_numbers_out_of_range_change_nothing(folders: list[Path], key: str, value: Any) -> None:
    """Each is refused by name, before anything of the checkpoint counts."""
    dataset = _open(folders, "random")
    dataset.load_state_dict({**dataset.state_dict(), "epoch": 2, "sample_in_epoch": 16})
    before = dataset.state_dict()
    with pytest.raises(CheckpointError, match=key):
        dataset.load_state_dict({**before, "epoch": 7, "sample_in_epoch": 8, key: value})
    assert dataset.state_dict() == before


def test_a_number_of_canonical_nodes_that_fills_memory_is_refused(folders: list[Path]) -> None:
    """Unless the data set itself was given as many."""
    dataset = _open(folders, "random")
    with pytest.raises(CheckpointError, match=r"num_canonical_nodes must be .* to 65536"):
        dataset.load_state_dict({**dataset.state_dict(), "num_canonical_nodes": 10**9})
    many = StreamingDataset(local=folders[0], num_canonical_nodes=70_000, batch_size=4)
    many.load_state_dict(many.state_dict())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_canonical_nodes", 3),
        ("epoch_began_on", {"nodes": 3, "ranks_per_node": 1, "batch_size": 4}),
    ],
)
def test_what_cannot_go_on_here_is_refused_when_it_is_loaded(
    folders: list[Path], key: str, value: Any
) -> None:
    """Not by the first iteration after, when the job has been set up."""
    dataset = _open(folders, "per_stream", World(0, 2, 1))
    next(iter(dataset))
    state = dataset.state_dict(16)
    (state if key in state else state["streaming_core"])[key] = value
    assert not _load(_open(folders, "per_stream", World(0, 2, 1)), state)


@pytest.mark.parametrize("state", [None, 1, "x", [], {}, _Broken(), _Unshowable(), np.zeros(3)])
def test_what_is_no_checkpoint_is_refused(folders: list[Path], state: Any) -> None:
    """Whatever it is."""
    assert not _load(_open(folders, "random"), state)


def _mutate(rng: random.Random, state: dict[str, Any]) -> Any:
    """Return a checkpoint with a few changes, each somewhere in it."""
    state = copy.deepcopy(state)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = [state, state]
        places += [each for each in state.values() if type(each) is dict] * 2
        own = state.get("streaming_core")
        if type(own) is dict:
            places += [each for each in own.values() if type(each) in (dict, list) and each]
        place: Any = rng.choice(places)
        value = rng.choice(_VALUES)
        if type(place) is list:
            place[rng.randrange(len(place))] = value
            continue
        key = rng.choice([*place, "more"])
        change = rng.choice(["set", "set", "set", "delete", "wrap", "shift"])
        if change == "delete":
            place.pop(key, None)
        elif change == "wrap":
            place[key] = rng.choice([[place.get(key)], {"x": place.get(key)}, np.arange(3)])
        elif change == "shift" and type(place.get(key)) is int:
            place[key] += rng.choice([-1, 1, 7, 2**31, 2**63])
        else:
            place[key] = value
    return state


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_mutated_checkpoints_are_loaded_or_refused(folders: list[Path], part: int) -> None:
    """With an error of ours and nothing half loaded; what is loaded can be iterated."""
    rng = random.Random(part)  # noqa: S311 - it draws tests
    taken = 0
    for method in _METHODS:
        dataset = _open(folders, method)
        dataset.load_state_dict({**dataset.state_dict(), "epoch": 1})
        next(iter(dataset))
        state = dataset.state_dict(16)
        fresh = _open(folders, method)
        for number in range(63):
            mutated = _mutate(rng, state)
            begun = time.process_time()
            try:
                if _load(fresh, mutated):
                    taken += 1
                    if number % 4 == 0:
                        _begin(folders, method, mutated)
            except Exception as error:
                error.add_note(f"part {part}, {method}, checkpoint {number}")
                raise
            assert time.process_time() - begun < 10
    assert 10 < taken < 240


def _begin(folders: list[Path], method: str, state: Any) -> None:
    dataset = _open(folders, method)
    dataset.load_state_dict(state)
    next(iter(dataset), None)
    dataset.state_dict(8)
