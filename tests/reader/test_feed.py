"""The feed: how far it fetches ahead, what a broken shard costs, data of several columns."""

from __future__ import annotations

import gc
import shutil
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from tests.reader.waiting import Waits, until_idle
from torch.utils.data import default_collate

from streaming_core import JSONWriter, LocalDataset, MDSWriter, Stream, StreamingDataset
from streaming_core.errors import SchemaError, ShardFetchError, StreamingError
from streaming_reader._access import checked_ids, select
from streaming_reader._batch import Mixed, as_format
from streaming_reader._feed import Feed, decode, decode_any, decode_as
from streaming_reader._shared import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from streaming_core._columns import Columns
    from streaming_reader._catalogue import Catalogue

_SHARD = 7
"""Samples of a shard in the folder of ids."""


def _catalogue(dataset: Any) -> Catalogue:
    if isinstance(dataset, LocalDataset):
        found: Catalogue = dataset._streaming_catalogue
    else:
        found = dataset._streaming_engine.catalogue
    return found


def _feed(source: Catalogue, windows: list[NDArray[np.int64]], ahead: int = 0) -> Feed:
    counters = np.zeros(len(COUNTERS), np.int64)
    return Feed(source, iter(windows), ahead=ahead, timeout=30, counters=counters)


def _pair(tmp_path: Path) -> list[Stream]:
    """Return two streams of different columns."""
    for name in ("a", "b"):
        with MDSWriter(out=tmp_path / name, columns={name: "int"}) as writer:
            for value in range(16):
                writer.write({name: value})
    return [Stream(local=tmp_path / name) for name in ("a", "b")]


@pytest.mark.parametrize("batches", [True, False])
def test_no_more_is_fetched_than_what_comes_next(
    ids_folder: Path, tmp_path: Path, batches: bool
) -> None:
    """A window of the whole order does not make the whole data set wanted at once."""
    dataset = StreamingDataset(remote=ids_folder, local=tmp_path / "local", batch_size=2)
    with _feed(_catalogue(dataset), [np.arange(101)], ahead=4) as feed:
        feed._fetcher._changed = Waits(feed._fetcher._lock)
        given: Iterator[Any] = feed.batches(2) if batches else feed.samples()
        next(given)
        until_idle(feed._fetcher)
        there = len(list((tmp_path / "local").glob("*.mds")))
        most = (2 if batches else 64) + 4
        assert 1 <= there <= -(-most // _SHARD)
        assert there < 16
        assert 1 + len(list(given)) == (51 if batches else 101)


def test_ids_come_in_order_and_hold_no_shard(ids_folder: Path, tmp_path: Path) -> None:
    """Each when its shard is there, of which none stays in hand."""
    dataset = StreamingDataset(remote=ids_folder, local=tmp_path, batch_size=2)
    with _feed(_catalogue(dataset), [np.arange(60), np.arange(60, 101)], ahead=9) as feed:
        for wanted, sample in enumerate(feed.ids()):
            assert sample == wanted
            assert _catalogue(dataset).is_local(_catalogue(dataset).find(sample)[0])
        assert feed._fetcher._held == 0
        assert feed._counters[COUNTERS.index("samples")] == 101


@pytest.mark.parametrize("gone", [3, 0])
def test_batches_before_a_failed_shard_are_given(
    ids_folder: Path, tmp_path: Path, gone: int
) -> None:
    """However many are decoded together, and also where it failed long before it was needed."""
    remote = tmp_path / "remote"
    shutil.copytree(ids_folder, remote)
    starts = _catalogue(LocalDataset(ids_folder)).shard_starts.tolist()
    (remote / f"shard.{gone:05d}.mds").unlink()
    dataset = StreamingDataset(
        remote=remote, local=tmp_path / "local", batch_size=1, download_retry=0
    )
    for kind in ("batches", "samples", "ids"):
        with _feed(_catalogue(dataset), [np.arange(101)], ahead=101) as feed:
            feed._fetcher._changed = Waits(feed._fetcher._lock)
            given: Iterator[Any] = feed.batches(1) if kind == "batches" else feed.samples()
            if kind == "ids":
                given = feed.ids()
            for _ in range(starts[gone]):
                next(given)
                until_idle(feed._fetcher)  # the fetch fails before a group that needs it
            with pytest.raises(ShardFetchError, match=f"shard.{gone:05d}"):
                next(given)


def test_samples_before_a_broken_one_are_given(tmp_path: Path) -> None:
    """A local shard with a broken record costs what comes from there on."""
    with MDSWriter(out=tmp_path, columns={"t": "str"}) as writer:
        for value in range(200):
            writer.write({"t": f"text {value:03d}"})
    path = tmp_path / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace(b"text 150", b"text \xff50"))
    for kind, wanted in (("batches", 15), ("samples", 150)):
        dataset = LocalDataset(tmp_path)
        seen: list[Any] = []
        with _feed(_catalogue(dataset), [np.arange(200)]) as feed:
            given: Iterator[Any] = feed.batches(10) if kind == "batches" else feed.samples()
            with pytest.raises(StreamingError, match="sample 150"):
                seen.extend(given)
        assert len(seen) == wanted


def test_streams_of_different_columns_come_in_batches_of_their_own(tmp_path: Path) -> None:
    """Batches that are each of one stream come in any format, whatever the others have."""
    for method in ("per_stream", "device_per_stream"):
        dataset = StreamingDataset(
            streams=_pair(tmp_path / method), batch_size=4, batching_method=method
        )
        batches = list(dataset.batches())
        assert sorted("".join(batch) for batch in batches) == ["a"] * 4 + ["b"] * 4


def test_batches_of_different_columns_come_as_rows(tmp_path: Path) -> None:
    """Other formats are refused with what this batch mixes."""
    source = _catalogue(StreamingDataset(streams=_pair(tmp_path), batch_size=4))
    ids = np.array([0, 17, 2])
    rows = [{"a": 0}, {"b": 1}, {"a": 2}]
    with _feed(source, [ids, np.arange(3)]) as feed:
        mixed, plain = feed.batches(3)
        assert isinstance(mixed, Mixed)
        assert as_format(mixed.lend(), "rows") == rows
        assert len(mixed) == 3
        assert as_format(plain, "dict") == {"a": [0, 1, 2]}
    assert decode_as(source, ids, "rows") == rows
    with pytest.raises(SchemaError, match=r"sample 1 of a batch of 3 has the columns \['b'\]"):
        decode_as(source, ids, "numpy")
    assert decode_any(source, source.open, source.locate(np.array([1, 0]))).rows() == [
        {"a": 1},
        {"a": 0},
    ]


def test_no_samples_have_the_columns_of_the_data(ids_folder: Path) -> None:
    """With the types and shapes that some samples have, in each format."""
    source = _catalogue(LocalDataset(ids_folder))
    none = decode(source, source.open, source.locate(np.zeros(0, np.int64)))
    arrays = as_format(none, "numpy")
    some = as_format(decode(source, source.open, source.locate(np.arange(2))), "numpy")
    assert list(arrays) == list(some)
    for name in ("id", "vector"):
        assert arrays[name].dtype == some[name].dtype
        assert arrays[name].shape == (0, *some[name].shape[1:])
    assert arrays["text"] == []
    assert as_format(none, "rows") == []
    assert as_format(none, "torch")["vector"].shape == (0, 4)
    assert as_format(none, "arrow").num_rows == 0
    assert as_format(none, "torch", "padded")["text"].lengths.shape == (0,)


def test_json_numbers_come_as_arrays(tmp_path: Path) -> None:
    """As torch's default collate makes them of the same samples."""
    samples = [{"f": i / 3, "i": i, "t": str(i)} for i in range(5)]
    columns = {"f": "float", "i": "int", "t": "str"}
    with JSONWriter(out=tmp_path, columns=columns) as writer:
        for sample in samples:
            writer.write(sample)
    source = _catalogue(LocalDataset(tmp_path))
    batch = decode(source, source.open, source.locate(np.arange(5)))
    arrays, tensors, wanted = (
        as_format(batch, "numpy"),
        as_format(batch, "torch"),
        default_collate(samples),
    )
    assert (arrays["i"].dtype, arrays["f"].dtype) == (np.int64, np.float64)
    assert batch.rows() == samples
    assert type(batch.rows()[0]["f"]) is float
    assert list(tensors) == list(wanted)
    for name in "fi":
        assert tensors[name].dtype == wanted[name].dtype
        assert torch.equal(tensors[name], wanted[name])
    assert tensors["t"] == wanted["t"]
    none = as_format(decode(source, source.open, source.locate(np.zeros(0, np.int64))), "numpy")
    assert (none["i"].dtype, none["f"].dtype) == (np.int64, np.float64)


def test_a_kept_batch_keeps_little_else(tmp_path: Path) -> None:
    """Batches that are decoded together are parts of four megabytes at most, not of a window."""
    with MDSWriter(out=tmp_path, columns={"x": "ndarray:uint8:1024"}) as writer:
        for value in range(8192):
            writer.write({"x": np.full(1024, value % 251, np.uint8)})
    with _feed(_catalogue(LocalDataset(tmp_path)), [np.arange(8192)]) as feed:
        largest = 0
        for batch in feed.batches(8):
            values: Any = cast("Columns", batch)["x"]
            owner = values.values
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            largest = max(largest, owner.nbytes)
    gc.collect()
    assert 8 * 1024 < largest <= 4 << 20


def test_ids_may_be_tensors_slices_and_ranges() -> None:
    """Whatever NumPy takes for an array of integers; nothing else, and never out of range."""

    def chosen(at: Any) -> Any:
        return select(at, 10, lambda one: one, lambda many: many.tolist())

    assert (
        chosen(torch.tensor([1, -1])) == checked_ids(torch.tensor([1, -1]), 10).tolist() == [1, 9]
    )
    assert chosen(torch.tensor(3)) == chosen(np.array(3)) == chosen([3])[0] == 3
    assert chosen(torch.tensor([[1], [2]])) == [[1], [2]]
    assert chosen([torch.tensor(1), torch.tensor(-1)]) == [1, 9]
    assert chosen(range(2, 8, 3)) == [2, 5]
    assert checked_ids(slice(2, None, 3), 10).tolist() == [2, 5, 8]
    assert checked_ids(range(2, 8, 3), 10).tolist() == [2, 5]
    assert checked_ids([], 10).tolist() == []
    for far in ([2**70], np.array([2**64 - 1], np.uint64), torch.tensor(10), [-11]):
        with pytest.raises(IndexError, match="out of range"):
            chosen(far)
        with pytest.raises(IndexError, match="out of range"):
            checked_ids(far, 10)
    odd: list[Any] = [
        torch.tensor([True]),
        torch.tensor(1.0),
        np.bool_(True),
        [True, False],
        [None],
    ]
    for kind in [*odd, {1}, "1", [[1], [2, "3"]], np.ndarray]:
        with pytest.raises(TypeError, match="integer"):
            chosen(kind)
        with pytest.raises(TypeError, match="integer"):
            checked_ids(kind, 10)
