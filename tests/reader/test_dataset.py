"""The data set: any sample by number, epochs, batches, settings and what is wrong with them."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from streaming_core import LocalDataset, Stream, StreamingDataLoader, StreamingDataset, World
from streaming_core.errors import (
    CheckpointError,
    IndexMissingError,
    SchemaError,
    ShardFetchError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_KINDS: list[Callable[[Path], Any]] = [
    lambda folder: StreamingDataset(local=folder, batch_size=4),
    LocalDataset,
]


@pytest.mark.parametrize("make", _KINDS)
def test_any_number_gives_its_sample(ids_folder: Path, make: Callable[[Path], Any]) -> None:
    """Also from the end, in slices, arrays and nested lists."""
    dataset = make(ids_folder)
    assert [dataset[i]["id"] for i in range(101)] == list(range(101))
    assert dataset[-1]["id"] == 100
    assert dataset[np.int64(7)]["id"] == 7
    assert [s["id"] for s in dataset[90:]] == list(range(90, 101))
    assert [s["id"] for s in dataset[10:0:-3]] == [10, 7, 4, 1]
    assert [s["id"] for s in dataset[[5, -1, 5]]] == [5, 100, 5]
    nested = dataset[np.array([[1, 2], [3, -4]])]
    assert [[s["id"] for s in row] for row in nested] == [[1, 2], [3, 97]]
    assert [[s["id"] for s in row] for row in dataset[[[1], [2, 3]]]] == [[1], [2, 3]]
    assert dataset[[]] == []
    for bad in (101, -102, [0, 101], np.array([-102])):
        with pytest.raises(IndexError, match="out of range"):
            dataset[bad]
    odd: list[Any] = ["1", 1.0, np.array([True, False]), None]
    for kind in odd:
        with pytest.raises(TypeError):
            dataset[kind]


def test_all_ways_to_a_sample_agree(ids_folder: Path, more_folder: Path) -> None:
    """By number, by iteration, by batch, and taken by number; in one process."""
    streams = [Stream(local=ids_folder), Stream(local=more_folder)]
    dataset = StreamingDataset(streams=streams, batch_size=4, shuffle=True)
    samples = sorted(dataset, key=lambda sample: sample["id"])
    assert len(samples) == 161
    batches = list(dataset.batches(batch_format="rows"))
    assert sorted((s for b in batches for s in b), key=lambda s: s["id"])[7]["text"] == "00000007"
    taken = dataset.take(range(161))
    for number, sample in enumerate(samples):
        other = dataset[number]
        assert sample["id"] == other["id"] == taken["id"][number]
        assert sample["text"] == other["text"] == taken["text"][number]
        for vector in (other["vector"], taken["vector"][number]):
            assert np.array_equal(sample["vector"], vector)


def test_each_iteration_is_the_next_epoch(ids_folder: Path) -> None:
    """In another order when shuffled, and again when asked for by number."""
    dataset = StreamingDataset(local=ids_folder, batch_size=4, shuffle=True)
    epochs = [[s["id"] for s in dataset] for _ in range(3)]
    assert all(sorted(epoch) == list(range(101)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    dataset.next_epoch = 1
    assert [s["id"] for s in dataset] == epochs[1]
    plain = StreamingDataset(local=ids_folder, batch_size=4)
    assert [s["id"] for s in plain] == list(range(101))


def test_an_iteration_that_nobody_takes_from_counts(ids_folder: Path) -> None:
    """It begins when it is asked for, not with its first sample."""
    dataset = StreamingDataset(local=ids_folder, batch_size=4, shuffle=True)
    iter(dataset)
    assert dataset.next_epoch == 1


def test_a_remote_is_fetched_once_and_read_from_the_cache(ids_folder: Path, tmp_path: Path) -> None:
    """The cache is a data set of its own, also when the remote is gone."""
    remote = tmp_path / "remote"
    shutil.copytree(ids_folder, remote)
    local = tmp_path / "local"
    dataset = StreamingDataset(remote=remote, local=local, batch_size=4, shuffle=True)
    assert sorted(s["id"] for s in dataset) == list(range(101))
    shutil.rmtree(remote)
    assert sorted(s["id"] for s in dataset) == list(range(101))
    again = StreamingDataset(remote=remote, local=local, batch_size=4)
    assert [s["id"] for s in again] == list(range(101))
    assert [s["id"] for s in LocalDataset(local)] == list(range(101))


def test_a_missing_shard_is_one_typed_error(ids_folder: Path, tmp_path: Path) -> None:
    """It says which shard, from where; the next iteration may succeed."""
    remote = tmp_path / "remote"
    shutil.copytree(ids_folder, remote)
    gone = remote / "shard.00003.mds"
    gone.rename(tmp_path / "kept")
    dataset = StreamingDataset(remote=remote, local=tmp_path / "local", batch_size=4)
    with pytest.raises(ShardFetchError, match=r"shard\.00003\.mds") as caught:
        list(dataset)
    assert caught.value.shard == 3
    (tmp_path / "kept").rename(gone)
    assert [s["id"] for s in dataset] == list(range(101))


def test_no_index_says_what_is_there(tmp_path: Path) -> None:
    """And where was looked."""
    with pytest.raises(IndexMissingError, match="nothing at all"):
        StreamingDataset(local=tmp_path, batch_size=4)


@pytest.mark.parametrize(
    "settings",
    [
        {"shuffle_algo": "best"},
        {"batching_method": "none"},
        {"partition_algo": "new"},
        {"sampling_method": "odd"},
        {"shuffle_seed": -1},
        {"batch_size": 0},
        {"epoch_size": -5},
        {"epoch_size": "many"},
        {"replication": 3},
        {"cache_limit": "much"},
        {"validate_hash": "crc"},
        {"sampling_granularity": 0},
        {"num_canonical_nodes": 0},
        {"stream_name": "unheard"},
        {"streams": [], "remote": None},
    ],
)
def test_wrong_settings_are_refused_at_once(ids_folder: Path, settings: dict[str, Any]) -> None:
    """As ValueErrors of ours, which say what was wanted."""
    given = {"local": ids_folder, "batch_size": 4, "world": World(0, 4, 4), **settings}
    if "streams" in given:
        del given["local"]
    with pytest.raises(StreamingError) as caught:
        StreamingDataset(**given)
    assert isinstance(caught.value, ValueError)


def test_iterating_needs_a_batch_size(ids_folder: Path) -> None:
    """Because the order depends on it; access by number does not."""
    dataset = StreamingDataset(local=ids_folder)
    assert dataset[3]["id"] == 3
    with pytest.raises(SchemaError, match="batch_size"):
        iter(dataset)


def test_weights_choose_how_much_of_each_stream(ids_folder: Path, more_folder: Path) -> None:
    """By share, repetition and number; the streams tell what came out."""
    streams = [Stream(local=ids_folder, repeat=2), Stream(local=more_folder, choose=30)]
    dataset = StreamingDataset(streams=streams, batch_size=4, shuffle=True)
    ids = [s["id"] for s in dataset]
    assert dataset.epoch_size == len(ids) == 232
    assert all(ids.count(i) == 2 for i in range(101))
    assert len({i for i in ids if i >= 1000}) == 30
    assert dataset.streams[0].choose == 202
    with pytest.raises(SchemaError):
        Stream(local=ids_folder, proportion=1, repeat=1)


def test_replicas_get_the_same_samples(ids_folder: Path) -> None:
    """Consecutive ranks in groups, and every sample once over the groups."""
    by_rank = [
        [
            s["id"]
            for s in StreamingDataset(
                local=ids_folder, batch_size=1, replication=2, world=World(rank, 4, 4)
            )
        ]
        for rank in range(4)
    ]
    assert by_rank[0] == by_rank[1]
    assert by_rank[2] == by_rank[3]
    assert sorted({*by_rank[0], *by_rank[2]}) == list(range(101))


def test_a_checkpoint_of_other_data_is_refused(ids_folder: Path, more_folder: Path) -> None:
    """With what differs, whether data or settings."""
    state = StreamingDataset(local=ids_folder, batch_size=4, shuffle=True).state_dict()
    with pytest.raises(CheckpointError, match="data was"):
        StreamingDataset(local=more_folder, batch_size=4, shuffle=True).load_state_dict(state)
    with pytest.raises(CheckpointError, match="shuffle_algo was 'py1e' and is 'py1s'"):
        StreamingDataset(
            local=ids_folder, batch_size=4, shuffle=True, shuffle_algo="py1s"
        ).load_state_dict(state)
    wrong: list[Any] = [{}, [], {**state, "epoch": "1"}, {**state, "sample_in_epoch": -1}]
    for broken in wrong:
        with pytest.raises(CheckpointError):
            StreamingDataset(local=ids_folder, batch_size=4, shuffle=True).load_state_dict(broken)


def test_a_pickled_data_set_reads_on(ids_folder: Path, tmp_path: Path) -> None:
    """With its place in the world, its epochs and its cache."""
    dataset = StreamingDataset(
        remote=ids_folder, local=tmp_path / "c", batch_size=4, shuffle=True, world=World(1, 2, 2)
    )
    first = [s["id"] for s in dataset]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.world == World(1, 2, 2)
    assert copy.next_epoch == 1
    copy.next_epoch = 0
    assert [s["id"] for s in copy] == first


def test_what_a_data_set_tells_of_itself(ids_folder: Path, more_folder: Path) -> None:
    """Counts and offsets of streams, shards and samples."""
    streams = [Stream(local=ids_folder), Stream(local=more_folder)]
    dataset = StreamingDataset(streams=streams, batch_size=4, world=World(0, 2, 2))
    assert (dataset.size, dataset.num_samples, dataset.num_streams) == (161, 161, 2)
    assert len(dataset) == dataset.length == 81
    assert dataset.num_shards == len(dataset.shards) == dataset.shards_per_stream.sum()
    assert dataset.samples_per_shard.sum() == 161
    assert dataset.sample_offset_per_stream.tolist() == [0, 101]
    assert dataset.spanner[101] == (int(dataset.shard_offset_per_stream[1]), 0)
    assert dataset.shards[-1].raw_data.basename.startswith("shard.")
    assert dataset.cache_usage > 0
    sizes, ids = dataset.resample_streams(0)
    assert sizes.sum() == 161
    assert ids.tolist() == list(range(161))
    assert dataset.resample_streams(0, 1)[1].tolist() == list(range(101, 161))
    list(dataset)
    assert dataset.stats()["samples"] == 81


def test_shards_can_be_fetched_and_evicted_by_hand(ids_folder: Path, tmp_path: Path) -> None:
    """What has a remote may go; what has none stays."""
    dataset = StreamingDataset(remote=ids_folder, local=tmp_path / "c", batch_size=4)
    dataset.prepare_shard(2)
    assert (tmp_path / "c" / "shard.00002.mds").exists()
    usage = dataset.cache_usage
    dataset.prepare_shard(3)
    assert dataset.cache_usage > usage
    assert dataset.evict_coldest_shard()
    assert dataset.evict_shard(3) or dataset.evict_shard(2)
    assert not list((tmp_path / "c").glob("*.mds"))
    local = StreamingDataset(local=ids_folder, batch_size=4)
    assert not local.evict_shard(0)
    assert (ids_folder / "shard.00000.mds").exists()


class _Doubled(StreamingDataset):
    """Changes samples as users of the format always have."""

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return {"id": sample["id"] * 2} if isinstance(sample, dict) else sample


class _DoubledLocal(LocalDataset):
    """Changes samples as well."""

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return {"id": sample["id"] * 2} if isinstance(sample, dict) else sample


@pytest.mark.parametrize(
    "make", [lambda folder: _Doubled(local=folder, batch_size=4), _DoubledLocal]
)
def test_a_subclasss_own_samples_are_given_for_any_numbers(
    ids_folder: Path, make: Callable[[Path], Any]
) -> None:
    """In slices and lists, in batches of all formats, and to torch."""
    dataset = make(ids_folder)
    twice = [2 * number for number in range(101)]
    assert [s["id"] for s in dataset] == twice
    assert [s["id"] for s in dataset[:]] == twice
    assert [s["id"] for s in dataset[np.arange(101)]] == twice
    assert [[s["id"] for s in row] for row in dataset[[[1, 2], [-1, 0]]]] == [[2, 4], [200, 0]]
    assert list(dataset.take([1, -1])["id"]) == [2, 200]
    assert dataset.take([1, -1], batch_format="torch")["id"].tolist() == [2, 200]
    assert dataset.take([1, -1], batch_format="rows") == [{"id": 2}, {"id": 200}]
    assert not dataset.take([], batch_format="torch")
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=4)
    assert [int(n) for batch in loader for n in batch["id"]] == twice


class _Shifted(StreamingDataset):
    """Changes samples while they pass."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sample in super().__iter__():
            yield {"id": sample["id"] * 2}


@pytest.mark.parametrize("kind", [_Doubled, _Shifted])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_subclasss_own_samples_are_given(
    ids_folder: Path, kind: type[StreamingDataset], workers: int
) -> None:
    """By every way that iterates, in the same order, epoch for epoch."""
    plain = StreamingDataset(local=ids_folder, batch_size=4, shuffle=True)
    epochs = [[2 * s["id"] for s in plain] for _ in range(3)]
    dataset = kind(local=ids_folder, batch_size=4, shuffle=True)
    assert [s["id"] for s in dataset] == epochs[0]
    dataset.next_epoch = 0
    assert [n for b in dataset.batches() for n in b["id"]] == epochs[0]
    dataset.next_epoch = 0
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=workers)
    for epoch in epochs:
        assert [int(n) for batch in loader for n in batch["id"]] == epoch
    dataset.next_epoch = 1
    torchs: DataLoader[Any] = DataLoader(dataset, batch_size=4, num_workers=workers)
    assert [int(n) for batch in torchs for n in batch["id"]] == epochs[1]
