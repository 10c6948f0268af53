"""A finished data set on this machine, sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_core._arguments import checked
from streaming_reader._access import checked_ids, each_of, select
from streaming_reader._feed import decode_as, decode_list
from streaming_reader._pipeline import Assembly
from streaming_reader._setup import open_streams
from streaming_reader.stream import Stream, StreamDefaults

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streaming_reader._batch import BatchFormat, RaggedForm

__all__ = ["LocalDataset"]


class LocalDataset:
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

    def __init__(
        self,
        local: str | os.PathLike[str],
        split: str | None = None,
        *,
        allow_unsafe_types: bool = False,
    ) -> None:
        """Read the index of `local`, or of its sub-folder `split`."""
        stream = Stream(local=local, split=split).apply_default(StreamDefaults())
        given = checked({"allow_unsafe_types": allow_unsafe_types})
        self._catalogue = open_streams(
            [stream], cache_limit=None, allow_unsafe=given["allow_unsafe_types"]
        )

    @property
    def size(self) -> int:
        """Number of samples."""
        return self._catalogue.num_samples

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._catalogue.num_samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield all samples in the order they were written."""
        for number in range(len(self)):  # `map` would take a StopIteration in there for the end
            yield self[number]

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - a sample, or nested lists of samples
        """Return a sample, or lists of samples for slices, arrays and lists of numbers."""
        if type(at) is int and 0 <= at < self._catalogue.num_samples:
            shard, row = self._catalogue.find(at)
            return self._catalogue.open(shard).row(row)
        return select(at, len(self), self.__getitem__, self._rows)

    def __getitems__(self, ids: list[int]) -> list[dict[str, Any]]:
        """Return several samples at once, as torch asks for a batch."""
        return self._rows(checked_ids(ids, len(self)))

    def take(
        self,
        ids: Any,  # noqa: ANN401 - arrays and lists
        *,
        batch_format: BatchFormat = "numpy",
        ragged: RaggedForm = "list",
    ) -> Any:  # noqa: ANN401 - the format's type
        """Return the samples `ids` in one batch of columns; see `StreamingDataset.batches`."""
        flat = checked_ids(ids, len(self))
        if self._own_items:
            return Assembly(batch_format, ragged).of_rows(self._rows(flat))
        return decode_as(self._catalogue, flat, batch_format, ragged)

    @property
    def _own_items(self) -> bool:
        """Whether a subclass makes samples of its own."""
        return type(self).__getitem__ is not LocalDataset.__getitem__

    def _rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        if self._own_items:
            return each_of(self.__getitem__, ids)
        return decode_list(self._catalogue, ids)
