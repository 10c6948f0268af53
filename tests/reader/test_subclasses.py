"""Subclasses own their attribute names, and find the settings under the names they know."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import ChainDataset, DataLoader, Dataset, IterableDataset

from streaming_core import (
    LocalDataset,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    World,
    streams_registry,
)
from streaming_core.errors import SchemaError, SettingError

if TYPE_CHECKING:
    from pathlib import Path

_FREE = [
    "batches",
    "cache",
    "cache_usage",
    "catalogue",
    "collate_fn",
    "column",
    "columns",
    "config",
    "data",
    "decoder",
    "engine",
    "_engine",
    "_epochs",
    "_catalogue",
    "_world",
    "epoch",
    "epochs",
    "filters",
    "format",
    "index",
    "length",
    "max_length",
    "max_seq_len",
    "metrics",
    "name",
    "num_samples",
    "num_shards",
    "num_streams",
    "order",
    "path",
    "processor",
    "rank",
    "root",
    "sample_offset_per_shard",
    "samples_per_shard",
    "seed",
    "set_epoch",
    "shards",
    "size",
    "spanner",
    "stats",
    "stream_per_shard",
    "streams",
    "take",
    "target_transform",
    "tokenizer",
    "transform",
    "transforms",
    "url",
    "weights",
    "world",
]
"""What subclasses call their own things, among them public names of ours."""

_SETTINGS: dict[str, Any] = {
    "batch_size": 4,
    "shuffle": True,
    "shuffle_algo": "py1s",
    "shuffle_seed": 7,
    "shuffle_block_size": 1000,
    "num_canonical_nodes": 2,
    "sampling_method": "fixed",
    "sampling_granularity": 3,
    "partition_algo": "orig",
    "batching_method": "random",
    "cache_limit": "1gb",
    "allow_unsafe_types": True,
    "predownload": 40,
    "replication": None,
    "epoch_size": "60",
}


def _any(kind: Any) -> Any:
    """Return a class as one that type checkers know nothing of."""
    return kind


def _epoch(dataset: StreamingDataset) -> list[list[int]]:
    """Return the ids of an epoch, in each of the ways in which it can be had."""
    state = dataset.state_dict()
    ways = []
    for way in (
        lambda: [sample["id"] for sample in dataset],
        lambda: [i for batch in StreamingDataset.batches(dataset) for i in batch["id"].tolist()],
        lambda: [i for batch in StreamingDataLoader(dataset, 4) for i in batch["id"].tolist()],
        lambda: [int(batch["id"]) for batch in DataLoader(dataset, None)],
    ):
        dataset.load_state_dict(state)
        ways.append(way())
    return ways


class _Before(StreamingDataset):
    """Sets its attributes before it is set up."""

    def __init__(self, own: dict[str, Any], **arguments: Any) -> None:
        for name, value in own.items():
            setattr(self, name, value)
        super().__init__(**arguments)


class _After(StreamingDataset):
    """Sets its attributes after it was set up."""

    def __init__(self, own: dict[str, Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        for name, value in own.items():
            setattr(self, name, value)


@pytest.mark.parametrize("kind", [_Before, _After])
def test_any_attribute_may_be_set(kind: Any, ids_folder: Path) -> None:
    """And is what was set, while reading, checkpoints and access go on as without it."""
    own = {name: f"own {name}" for name in _FREE}
    arguments: dict[str, Any] = {"local": ids_folder, "batch_size": 4, "shuffle": True}
    plain = StreamingDataset(**arguments)
    dataset = kind(own, **arguments)
    assert {name: getattr(dataset, name) for name in _FREE} == own
    assert _epoch(dataset) == _epoch(plain)
    assert (len(dataset), dataset[-1]["id"]) == (101, 100)
    assert dataset.state_dict() == plain.state_dict()
    dataset.load_state_dict(dataset.state_dict(8))
    assert [sample["id"] for sample in dataset] == _epoch(plain)[0][8:]
    again = pickle.loads(pickle.dumps(dataset))
    assert again.transforms == "own transforms"
    assert [sample["id"] for sample in again] == [sample["id"] for sample in dataset]
    loader = StreamingDataLoader(dataset, 4)
    next(iter(loader))
    assert (loader.state_dict() or {})["sample_in_epoch"] == 4
    assert loader.metrics()["samples"] == 4


@pytest.mark.parametrize("name", _FREE)
def test_each_attribute_may_be_set_alone(name: str, ids_folder: Path) -> None:
    """One in the way of another would not be noticed if all are set."""
    own: dict[str, Any] = {}
    dataset = _After({name: own}, local=ids_folder, batch_size=4)
    assert next(iter(dataset))["id"] == 0
    loader = StreamingDataLoader(dataset, 4)
    next(iter(loader))
    assert (loader.state_dict() or {})["sample_in_epoch"] == 4
    assert getattr(dataset, name) is own
    if name in vars(StreamingDataset) or hasattr(StreamingDataset, name):
        delattr(dataset, name)
        assert getattr(dataset, name) is not own


def test_streams_own_their_names_too(ids_folder: Path, tmp_path: Path) -> None:
    """A subclass of a stream sets what it likes, before and after."""

    class Mine(_any(Stream)):  # type: ignore[misc]
        def __init__(self, **arguments: Any) -> None:
            self.url = self.source = self.format = "mine"
            self.split = "nothing"
            super().__init__(**arguments)
            self.folder = self.settings = self.reading = self.index = "own"
            self.keep_zip = False
            self.download_retry = 2

    stream = Mine(remote=ids_folder, local=tmp_path / "c")
    dataset = StreamingDataset(streams=[stream], batch_size=4)
    assert [sample["id"] for sample in dataset] == list(range(101))
    assert (stream.split, stream.download_retry, stream.url) == ("", 2, "mine")
    with pytest.raises(SettingError, match="download_retry: this Mine was made with 2, got 3"):
        stream.download_retry = 3


def test_settings_are_there_under_the_names_of_arguments(ids_folder: Path) -> None:
    """As they are used: counts and sizes as numbers, defaults as what they come to."""
    dataset = StreamingDataset(local=ids_folder, **_SETTINGS)
    used = {**_SETTINGS, "cache_limit": 1 << 30, "epoch_size": 60}
    assert {name: getattr(dataset, name) for name in used} == used
    assert dataset.initial_physical_nodes == 1
    assert dataset.epoch_seed_change
    usual = StreamingDataset(local=ids_folder, batch_size=4)
    assert (usual.predownload, usual.num_canonical_nodes, usual.shuffle_block_size) == (
        32,
        1,
        4_000_000,
    )
    assert (usual.cache_limit, usual.epoch_size, usual.shuffle_seed) == (None, 101, 9176)
    state = {**usual.state_dict(), "num_canonical_nodes": 6, "initial_physical_nodes": 3}
    usual.load_state_dict({**state, "shuffle_seed": 11})
    found = (usual.num_canonical_nodes, usual.initial_physical_nodes, usual.shuffle_seed)
    assert found == (6, 3, 11)


def test_a_setting_may_be_assigned_what_it_is(ids_folder: Path) -> None:
    """As given and as used; another value is an error that says what to do."""
    for kind in (_Before, _After):
        kind({**_SETTINGS, "epoch_size": 60}, local=ids_folder, **_SETTINGS)
    names = ["num_canonical_nodes", "shuffle_block_size", "cache_limit"]
    none: dict[str, Any] = dict.fromkeys(names)
    _After(none, local=ids_folder, batch_size=4)
    before = _Before({"shuffle_seed": 5}, local=ids_folder, batch_size=4, shuffle_seed=6)
    assert before.shuffle_seed == 6
    changes: dict[str, Any] = {
        "shuffle": False,
        "shuffle_algo": "py1b",
        "shuffle_seed": 8,
        "num_canonical_nodes": 4,
        "sampling_method": "balanced",
        "cache_limit": "2gb",
        "replication": 2,
        "epoch_size": 61,
    }
    dataset = StreamingDataset(local=ids_folder, **_SETTINGS)
    for name, value in changes.items():
        now = getattr(dataset, name)
        with pytest.raises(SettingError, match=rf"^{name}: this StreamingDataset was made with"):
            setattr(dataset, name, value)
        assert getattr(dataset, name) == now


def test_some_settings_may_be_changed_late(ids_folder: Path) -> None:
    """Before the loader is made, and between epochs."""
    dataset = StreamingDataset(local=ids_folder)
    dataset.batch_size = 5
    dataset.predownload = 15
    fixed = StreamingDataset(local=ids_folder, batch_size=5, predownload=15)
    assert dataset.predownload == 15
    assert [batch["id"].tolist() for batch in dataset.batches()] == [
        batch["id"].tolist() for batch in fixed.batches()
    ]
    loader = StreamingDataLoader(dataset, 5)
    dataset.batch_size = 6
    with pytest.raises(SchemaError, match="the loader has batch_size=5, its dataset 6"):
        iter(loader)
    with pytest.raises(SchemaError, match="batch_size: expected at least 1, got 0"):
        dataset.batch_size = 0


def test_a_subclass_may_have_the_references_state_dict(ids_folder: Path) -> None:
    """Also where the last batch is left out, which the number of samples does not show."""

    class Own(StreamingDataset):
        asked: list[tuple[int, bool]]

        def state_dict(self, samples: int, anew: bool) -> dict[str, Any]:  # type: ignore[override]
            self.asked = [*getattr(self, "asked", []), (samples, anew)]
            return super().state_dict(samples, anew)

    dataset = Own(local=ids_folder, batch_size=4)
    loader = StreamingDataLoader(dataset, 4, drop_last=True)
    assert sum(len(batch["id"]) for batch in loader) == 100
    state = loader.state_dict()
    assert dataset.asked == [(101, False)]
    fresh = StreamingDataLoader(Own(local=ids_folder, batch_size=4), 4, drop_last=True)
    fresh.load_state_dict(state)
    assert sum(len(batch["id"]) for batch in fresh) == 100
    assert fresh.num_samples_yielded == 100


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_trainer_that_counts_anew_goes_on_with_the_next_epoch(
    workers: int, ids_folder: Path
) -> None:
    """At the end of an epoch Composer asks for the state after 0 samples from its beginning."""
    arguments: dict[str, Any] = {"local": ids_folder, "batch_size": 4, "shuffle": True}
    for make in (DataLoader, StreamingDataLoader):
        dataset = StreamingDataset(**arguments)
        assert dataset.state_dict(0, True)["epoch"] == 0
        loader: Any = make(dataset, batch_size=4, num_workers=workers)
        taken = iter(loader)
        next(taken)
        if not workers:  # workers may have read all by now
            assert dataset.state_dict(0, True)["epoch"] == 0
        assert dataset.state_dict(4, True)["epoch"] == 0
        for _ in taken:
            pass
        state = dataset.state_dict(0, True)
        assert (state["epoch"], state["sample_in_epoch"]) == (1, 0)
        resumed = StreamingDataset(**arguments)
        resumed.load_state_dict(state)
        plain = StreamingDataset(**arguments)
        plain.next_epoch = 1
        assert [sample["id"] for sample in resumed] == [sample["id"] for sample in plain]


def test_replicas_count_once(ids_folder: Path) -> None:
    """As for the loader's own count, which can be set back."""
    world = World(0, 6, 6)
    dataset = StreamingDataset(local=ids_folder, batch_size=4, replication=2, world=world)
    loader = StreamingDataLoader(dataset, 4)
    batches = iter(loader)
    next(batches)
    next(batches)
    assert (loader.state_dict() or {})["sample_in_epoch"] == 8 * 3
    loader.num_samples_yielded = 0
    assert (loader.state_dict() or {})["sample_in_epoch"] == 0


def test_datasets_are_torchs(ids_folder: Path) -> None:
    """To `isinstance`, to type arguments, and to `+`, which says what to do instead."""
    dataset = StreamingDataset(local=ids_folder, batch_size=4)
    assert isinstance(dataset, Dataset)
    assert isinstance(dataset, IterableDataset)
    assert isinstance(LocalDataset(ids_folder), Dataset)
    assert not isinstance(LocalDataset(ids_folder), IterableDataset)

    class Typed(_any(StreamingDataset)[dict]):  # type: ignore[misc]
        pass

    assert next(iter(Typed(local=ids_folder, batch_size=4)))["id"] == 0
    with pytest.raises(SchemaError, match=r"StreamingDataset\(streams=\["):
        dataset + dataset
    chained = ChainDataset([dataset, dataset])
    assert sum(1 for _ in chained) == 202


@pytest.mark.process
@pytest.mark.parametrize("first", ["dataset", "torch"])
def test_torch_may_be_loaded_late(first: str, ids_folder: Path) -> None:
    """Reading does not load it; a dataset made before is one of torch's all the same."""
    script = f"""
import pickle, sys
from streaming_core import StreamingDataset
if {first!r} == "torch":
    import torch.utils.data
dataset = StreamingDataset(local={str(ids_folder)!r}, batch_size=4)
assert {first!r} == "torch" or "torch" not in sys.modules
copy = pickle.dumps(dataset)
import torch.utils.data as data
assert {first!r} == "torch" or not issubclass(StreamingDataset, data.Dataset)
pickle.dumps(dataset)
assert isinstance(dataset, data.Dataset) and isinstance(dataset, data.IterableDataset)
assert dataset.__class__ is StreamingDataset
assert [sample["id"] for sample in pickle.loads(copy)] == list(range(101))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


@pytest.mark.parametrize(
    "name", ["prepare_shard", "get_shards", "_download_file", "set_up_local", "get_index_size"]
)
def test_overrides_that_nothing_calls_are_refused(name: str, ids_folder: Path) -> None:
    """When the stream is made, and not by an epoch without what they do."""
    kind = type("Mine", (Stream,), {name: lambda *_: None})
    with pytest.raises(SchemaError, match=rf"Mine\.{name} would never be called.*register_store"):
        kind(local=ids_folder)


def test_kinds_of_streams_are_registered(ids_folder: Path) -> None:
    """By a decorator or a call, as in a catalogue."""

    @streams_registry.register("tests-decorated")
    class Mine(Stream):
        pass

    streams_registry.register("tests-called", func=Mine)
    try:
        for name in ("tests-decorated", "tests-called"):
            dataset = StreamingDataset(
                stream_name=name, stream_config={"local": ids_folder}, batch_size=4
            )
            assert type(dataset.streams[0]) is Mine
    finally:
        del streams_registry["tests-decorated"], streams_registry["tests-called"]


def test_an_empty_list_of_streams_is_none(ids_folder: Path) -> None:
    """As in a configuration that names none."""
    nothing: list[Any] = [[], (), None]
    for no_streams in nothing:
        dataset = StreamingDataset(streams=no_streams, local=ids_folder, batch_size=4)
        assert len(dataset) == 101
    with pytest.raises(SchemaError, match="give remote"):
        StreamingDataset(streams=[])


def test_what_is_not_set_up_says_so(ids_folder: Path) -> None:
    """A forgotten call of `super().__init__`, and a name that is misspelled."""

    class Forgetful(StreamingDataset):
        def __init__(self) -> None:
            pass

    for use in (lambda: Forgetful().num_samples, lambda: len(Forgetful()), lambda: Forgetful()[0]):
        with pytest.raises(SettingError, match=r"call super\(\).__init__"):
            use()
    with pytest.raises(AttributeError, match="has no attribute 'num_sample'"):
        StreamingDataset(local=ids_folder).num_sample  # type: ignore[attr-defined]  # noqa: B018


def test_datasets_say_what_their_samples_are(ids_folder: Path) -> None:
    """In annotations, and where they are subclassed or made."""
    typed = StreamingDataset[dict[str, int]]  # type: ignore[type-arg]
    assert typed(local=ids_folder, batch_size=4)[3]["id"] == 3

    class Own(LocalDataset[dict[str, int]]):  # type: ignore[type-arg]
        """A subclass of what takes one."""

    assert Own(ids_folder)[3]["id"] == 3
    assert LocalDataset[dict[str, int]](ids_folder)[3]["id"] == 3  # type: ignore[misc]
