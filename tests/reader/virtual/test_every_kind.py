"""Files of every format are read with the same guarantees as shards."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.virtual.sources import COUNT, KINDS, write_source

from streaming_core import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streaming_core._world import World

if TYPE_CHECKING:
    from pathlib import Path

_BATCH = 8
_WORLDS = [1, 2, 4]
_QUICK = {"parquet", "jsonl", "webdataset"}
"""Formats whose longer tests the default suite runs as well."""
_SLOWLY = [
    kind if kind in _QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in sorted(KINDS)
]


@pytest.fixture(scope="module", params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Return each format in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files of the format."""
    return write_source(kind, tmp_path_factory.mktemp("source") / kind)


def _stream(kind: str, **given: Any) -> Stream:
    return Stream(format=KINDS[kind].format or kind, **given)


class _Job:
    """Training on a source, by any number of ranks."""

    def __init__(self, folder: Path, local: Path, kind: str) -> None:
        self._folder = folder
        self._local = local
        self._kind = kind
        self._written = KINDS[kind]

    def loader(
        self, rank: int, ranks: int, workers: int, state: Any = None, **options: Any
    ) -> StreamingDataLoader:
        stream = _stream(self._kind, remote=self._folder, local=self._local)
        dataset = StreamingDataset(
            streams=[stream],
            batch_size=_BATCH // ranks,
            shuffle=True,
            num_canonical_nodes=4,
            shuffle_block_size=24,
            world=World(num_ranks=ranks, ranks_per_node=ranks, rank=rank),
            **options,
        )
        loader = StreamingDataLoader(dataset, batch_size=_BATCH // ranks, num_workers=workers)
        if state is not None:
            loader.load_state_dict(state)
        return loader

    def steps(
        self, ranks: int, workers: int, state: Any = None, stop: int | None = None
    ) -> tuple[list[list[int]], Any]:
        """Return the ids of each global step, up to `stop` of them, and the state after them."""
        states: list[Any] = []
        columns: list[list[list[int]]] = []
        for rank in range(ranks):
            loader = self.loader(rank, ranks, workers, state)
            taken: list[list[int]] = []
            iterator = iter(loader)
            for batch in itertools.islice(iterator, stop):
                assert set(batch) == set(self._written.columns)
                taken.append(self._written.numbers(batch))
            states.append(loader.state_dict())
            columns.append(taken)
            del iterator
        return [list(itertools.chain(*step)) for step in zip(*columns, strict=True)], states[0]


def _sets(steps: list[list[int]]) -> list[set[int]]:
    return [set(step) for step in steps]


def test_every_row_is_what_another_reader_reads(kind: str, folder: Path, tmp_path: Path) -> None:
    """By number, one after the other, and by columns."""
    dataset = StreamingDataset(
        streams=[_stream(kind, remote=folder, local=tmp_path)], batch_size=_BATCH
    )
    wanted = KINDS[kind].rows()
    assert len(dataset) == COUNT
    assert [dataset[at] for at in range(COUNT)] == wanted
    assert list(dataset) == wanted
    batches = dataset.batches(10, batch_format="dict")
    columns = [dict(zip(b, r, strict=True)) for b in batches for r in zip(*b.values(), strict=True)]
    assert columns == wanted


def test_all_rows_come_once_in_an_epoch_of_any_world(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    """Shuffled, in an order that is the same in every world."""
    job = _Job(folder, tmp_path, kind)
    whole, _ = job.steps(1, 0)
    ids = [number for step in whole for number in step]
    assert sorted(ids) == list(range(COUNT))
    assert ids != sorted(ids)
    for ranks in _WORLDS[1:]:
        assert _sets(job.steps(ranks, 0)[0]) == _sets(whole), ranks


@pytest.mark.parametrize("kind", _SLOWLY, indirect=True)
def test_an_epoch_goes_on_after_every_batch_in_any_world(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    """At exactly the next row, between any two worlds."""
    job = _Job(folder, tmp_path, kind)
    whole, _ = job.steps(1, 0)
    pairs = itertools.cycle(itertools.product(_WORLDS, _WORLDS))
    stops = range(1, len(whole))
    assert len(stops) >= len(_WORLDS) ** 2
    for stop, (before, after) in zip(stops, pairs, strict=False):
        first, state = job.steps(before, 0, stop=stop)
        rest, _ = job.steps(after, 0, state)
        assert _sets(first + rest) == _sets(whole), (stop, before, after)


@pytest.mark.process
def test_workers_give_the_same_epoch(kind: str, folder: Path, tmp_path: Path) -> None:
    """Whole, and resumed whatever they had prefetched."""
    job = _Job(folder, tmp_path, kind)
    whole, _ = job.steps(2, 0)
    first, state = job.steps(2, 2, stop=7)
    rest, _ = job.steps(2, 2, state)
    assert first + rest == whole
    assert _sets(job.steps(1, 2)[0]) == _sets(whole)


@pytest.mark.process
@pytest.mark.parametrize("kind", sorted(_QUICK), indirect=True)
@pytest.mark.parametrize(("before", "after", "stop"), [(0, 2, 3), (2, 0, 11)])
def test_the_number_of_workers_may_change(
    kind: str, folder: Path, tmp_path: Path, before: int, after: int, stop: int
) -> None:
    """From none to two at a resume, and from two to none."""
    job = _Job(folder, tmp_path, kind)
    whole, _ = job.steps(2, 0)
    first, state = job.steps(2, before, stop=stop)
    rest, _ = job.steps(2, after, state)
    assert first + rest == whole


def test_it_mixes_with_shards_in_given_proportions(kind: str, folder: Path, tmp_path: Path) -> None:
    """Each batch has its part of both."""
    written = KINDS[kind]
    with MDSWriter(out=tmp_path / "mds", columns=written.columns) as writer:
        for row in written.rows(1000, COUNT):
            writer.write(row)
    streams = [
        _stream(kind, remote=folder, local=tmp_path / "cache", proportion=0.25),
        Stream(local=tmp_path / "mds", proportion=0.75),
    ]
    dataset = StreamingDataset(
        streams=streams, batch_size=8, shuffle=True, batching_method="stratified", epoch_size=96
    )
    batches = [written.numbers(batch) for batch in StreamingDataLoader(dataset, batch_size=8)]
    assert len(batches) == COUNT // 8
    for batch in batches:
        assert sum(number < 1000 for number in batch) == 2
    ours = [number for batch in batches for number in batch if number < 1000]
    assert len(set(ours)) == len(ours) == COUNT // 4
