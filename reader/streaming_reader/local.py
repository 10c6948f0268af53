"""A finished data set on this machine, sample by sample."""

from __future__ import annotations

from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from streaming_core._arguments import checked, suggests
from streaming_core._attributes import engine_of, open_to_subclasses
from streaming_core._shown import Shown
from streaming_reader._access import checked_ids, each_of, select
from streaming_reader._feed import decode_as, decode_list
from streaming_reader._pipeline import Assembly
from streaming_reader._setup import open_streams
from streaming_reader._torch_base import MapBase, join_torch
from streaming_reader.stream import Stream, StreamDefaults

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streaming_reader._batch import BatchFormat, RaggedForm
    from streaming_reader.stream import ResolvedStream

__all__ = ["LocalDataset"]


@open_to_subclasses
class LocalDataset(Shown, MapBase[dict[str, Any]]):
    """The samples of a folder by number, without order, cache or epochs; compressed or not.

    A map-style data set for torch: any sampler may be used with it.

    Example:
        >>> import tempfile
        >>> from streaming_core import LocalDataset, MDSWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with MDSWriter(out=folder, columns={"x": "int"}, compression="zstd") as writer:
        ...         writer.write({"x": 1})
        ...         writer.write({"x": 2})
        ...     dataset = LocalDataset(folder)
        ...     len(dataset), dataset[-1], dataset[[0, 1]]
        (2, {'x': 2}, [{'x': 1}, {'x': 2}])
    """

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)  # takes what samples are

    @suggests()
    def __init__(
        self,
        local: str | os.PathLike[str],
        split: str | None = None,
        *,
        allow_unsafe_types: bool = False,
    ) -> None:
        """Read the index of `local`, or of its sub-folder `split`."""
        stream = Stream(local=local, split=split).apply_default(StreamDefaults())
        source: ResolvedStream = engine_of(stream)
        given = checked({"allow_unsafe_types": allow_unsafe_types})
        join_torch()
        self._streaming_catalogue = open_streams(
            [source], cache_limit=None, allow_unsafe=given["allow_unsafe_types"]
        )

    @property
    def size(self) -> int:
        """Number of samples."""
        return self._streaming_catalogue.num_samples

    def _streaming_facts(self) -> dict[str, Any]:
        catalogue = self._streaming_catalogue
        folder = catalogue.caches[0].source
        return {"samples": catalogue.num_samples, "shards": catalogue.num_shards, "local": folder}

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._streaming_catalogue.num_samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield all samples in the order they were written."""
        for number in range(len(self)):  # `map` would take a StopIteration in there for the end
            yield self[number]

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - a sample, or nested lists of samples
        """Return a sample, or lists of samples for slices, arrays and lists of numbers."""
        catalogue = self._streaming_catalogue
        if type(at) is int and 0 <= at < catalogue.num_samples:
            shard, row = catalogue.find(at)
            return catalogue.open(shard).row(row)
        return select(at, catalogue.num_samples, self.__getitem__, partial(_rows, self))

    def __getitems__(self, ids: list[int]) -> list[dict[str, Any]]:
        """Return several samples at once, as torch asks for a batch."""
        return _rows(self, checked_ids(ids, self._streaming_catalogue.num_samples))

    def take(
        self,
        ids: Any,  # noqa: ANN401 - arrays and lists
        *,
        batch_format: BatchFormat = "numpy",
        ragged: RaggedForm = "list",
    ) -> Any:  # noqa: ANN401 - the format's type
        """Return the samples `ids` in one batch of columns; see `StreamingDataset.batches`."""
        flat = checked_ids(ids, self._streaming_catalogue.num_samples)
        if _makes_items(self):
            return Assembly(batch_format, ragged).of_rows(_rows(self, flat))
        return decode_as(self._streaming_catalogue, flat, batch_format, ragged)


def _makes_items(dataset: LocalDataset) -> bool:
    """Whether a subclass makes samples of its own."""
    return type(dataset).__getitem__ is not LocalDataset.__getitem__


def _rows(dataset: LocalDataset, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
    if _makes_items(dataset):
        return each_of(dataset.__getitem__, ids)
    catalogue = vars(dataset)["_streaming_catalogue"]
    return decode_list(catalogue, ids)
