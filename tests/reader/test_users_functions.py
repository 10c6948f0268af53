"""A StopIteration out of a user's function is an error, and never the end of an epoch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader

from streaming_core import (
    Encoding,
    LocalDataset,
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
    Transforms,
    mds_encodings,
)
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WHERE = 50


def _stop(row: Any) -> Any:
    """Do what a stray `next()` does, for one row of many."""
    if row["id"] == WHERE:
        next(iter(()))
    return row


def _stop_in_batch(rows: Any) -> Any:
    ids = rows["id"] if isinstance(rows, dict) else [row["id"] for row in rows]
    if WHERE in ids:
        next(iter(()))
    return rows


class OwnItems(StreamingDataset):
    """Makes samples of its own."""

    def __getitem__(self, at: Any) -> Any:
        return _stop(super().__getitem__(at))


class OwnRows(StreamingDataset):
    """Makes samples of its own, in the other way."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """Return a sample, or not."""
        return _stop(super().get_item(sample_id, retry))


class OwnIteration(StreamingDataset):
    """Iterates itself."""

    def __iter__(self) -> Iterator[Any]:
        return (_stop(sample) for sample in super().__iter__())


class OwnLocal(LocalDataset):
    """Makes samples of its own, without an order."""

    def __getitem__(self, at: Any) -> Any:
        return _stop(super().__getitem__(at))


WAYS: dict[str, Callable[[Any], Any]] = {
    "iterated": iter,
    "in batches": lambda dataset: dataset.batches(batch_format="rows"),
    "loaded": lambda dataset: StreamingDataLoader(dataset, 4, batch_format="rows"),
    "loaded by torch": lambda dataset: DataLoader(dataset, 4, collate_fn=list),
}
"""Ways to the samples of a data set."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [OwnItems, OwnRows, OwnIteration])
def test_of_a_subclass(ids_folder: Path, kind: type[StreamingDataset], way: str) -> None:
    """Whatever it overrides, and however its samples are asked for."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(WAYS[way](kind(local=ids_folder, batch_size=4)))


@pytest.mark.parametrize(
    "read",
    [
        list,
        lambda dataset: list(DataLoader(dataset, 4, collate_fn=list)),
        lambda dataset: dataset[:],
        lambda dataset: dataset.take(range(101)),
    ],
)
@pytest.mark.parametrize("kind", [OwnLocal, OwnItems])
def test_of_a_subclass_whose_samples_are_asked_for(
    ids_folder: Path, kind: Callable[..., Any], read: Callable[[Any], Any]
) -> None:
    """By number or several at once, in the order of their numbers."""
    dataset = kind(local=ids_folder, **({"batch_size": 4} if kind is OwnItems else {}))
    with pytest.raises(RuntimeError, match="StopIteration"):
        read(dataset)


@pytest.mark.parametrize("way", ["iterated", "in batches", "loaded"])
@pytest.mark.parametrize(
    "functions",
    [{"transform": _stop}, {"filter": _stop}, {"transform": [dict, _stop]}],
)
def test_of_a_transform(
    ids_folder: Path, functions: dict[str, Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where torchdata counts samples; the error names the function."""
    monkeypatch.setitem(sys.modules, "torchdata.stateful_dataloader", object())
    transforms = Transforms.of(**functions)
    dataset = StreamingDataset(local=ids_folder, batch_size=4, transforms=transforms)
    with pytest.raises(RuntimeError, match=r"StopIteration.*_stop|_stop.*StopIteration"):
        list(WAYS[way](dataset))


@pytest.mark.parametrize("way", ["in batches", "loaded"])
def test_of_a_batch_transform(ids_folder: Path, way: str) -> None:
    """Which sees whole batches."""
    transforms = Transforms.of(batch_transform=_stop_in_batch)
    dataset = StreamingDataset(local=ids_folder, batch_size=4, transforms=transforms)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(WAYS[way](dataset))


@pytest.mark.parametrize("kind", [StreamingDataset, OwnItems])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.process)])
@pytest.mark.parametrize("size", [4, 1])
def test_of_a_collate_function(
    ids_folder: Path, kind: type[StreamingDataset], workers: int, size: int
) -> None:
    """In the trainer's process and in a worker."""
    dataset = kind(local=ids_folder, batch_size=size)
    loader = StreamingDataLoader(dataset, size, collate_fn=_stop_in_batch, num_workers=workers)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


class _Stops(Encoding):
    """An encoding that cannot read what it wrote."""

    def encode(self, obj: Any) -> bytes:
        return bytes(obj)

    def decode(self, data: bytes) -> Any:
        return data or next(iter(()))


def test_of_an_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the shard's reader reports as any other error of a decoder."""
    monkeypatch.setitem(mds_encodings, "stops", _Stops)
    with MDSWriter(out=tmp_path, columns={"x": "stops"}) as writer:
        for number in range(6):
            writer.write({"x": b"x" if number < 3 else b""})
    dataset = StreamingDataset(local=tmp_path, batch_size=2)
    for read in (iter(dataset), dataset.batches(), iter(LocalDataset(tmp_path))):
        with pytest.raises(ShardCorruptError, match="column 'x': StopIteration"):
            list(read)


@pytest.mark.process
@pytest.mark.parametrize("kind", [OwnItems, OwnIteration])
def test_in_a_worker(ids_folder: Path, kind: type[StreamingDataset]) -> None:
    """The trainer gets the error of its worker."""
    dataset = kind(local=ids_folder, batch_size=4)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(StreamingDataLoader(dataset, 4, batch_format="rows", num_workers=1))
