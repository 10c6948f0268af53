"""From the samples that are read to the batches that the trainer is given."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from streaming_reader._batch import as_format, check_format, made_as_format, rows_as_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming_reader._batch import Batch, BatchFormat, RaggedForm
    from streaming_reader._feed import Feed
    from streaming_reader._pipeline._transforms import Transforms

__all__ = ["Assembly"]

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class _Users:
    """Counts the time that goes into functions of the user."""

    __slots__ = ("ns",)

    def __init__(self) -> None:
        self.ns = 0

    def call(self, function: Callable[[_In], _Out], given: _In) -> _Out:
        began = time.perf_counter_ns()
        try:
            return function(given)
        finally:
            self.ns += time.perf_counter_ns() - began


@dataclass(frozen=True, slots=True)
class Assembly:
    """How batches are made of samples; without transforms, whole columns are never rows.

    Each batch of samples becomes one batch, whatever transforms leave of it: so all ranks go on in
    step, and the number of samples that were read says exactly where a checkpoint goes on.
    """

    batch_format: BatchFormat
    ragged: RaggedForm
    collate: Callable[[list[Any]], Any] | None = None
    """Makes a batch of a list of rows, instead of the format."""
    transforms: Transforms | None = None

    def __post_init__(self) -> None:
        """Refuse formats that there are not."""
        check_format(self.batch_format, self.ragged)

    def batches(
        self, feed: Feed, size: int, *, drop_last: bool, lent: bool
    ) -> Iterator[tuple[Any, int]]:
        """Yield batches, each with the number of samples that were read for it.

        With `lent`, large bytes may come as views that are valid until the next batch.
        """
        with feed:
            for columns in feed.batches(size, drop_last=drop_last):
                users, began = _Users(), time.perf_counter_ns()
                batch = self._of_columns(columns, users, feed.describe, lent=lent)
                feed.count("transform_ns", users.ns)
                feed.count("format_ns", time.perf_counter_ns() - began - users.ns)
                yield batch, len(columns)

    def _of_columns(
        self, columns: Batch, users: _Users, describe: Callable[[int], str], *, lent: bool
    ) -> Any:  # noqa: ANN401 - as the format says
        transforms = self.transforms
        if self.collate is not None or (transforms is not None and transforms.changes_rows):
            return self._of_rows(columns.rows(), users, describe)
        if transforms is None or transforms.batch is None:
            # Whoever lends must not keep: that is for what copies at once, which users do not.
            lending = columns.lend() if lent else columns
            return as_format(lending, self.batch_format, self.ragged)
        return users.call(transforms.batch, as_format(columns, self.batch_format, self.ragged))

    def of_rows(self, rows: list[Any]) -> Any:  # noqa: ANN401 - as the format says
        """Return the batch that samples become."""
        return self._of_rows(rows, _Users())

    def _of_rows(
        self, rows: list[Any], users: _Users, describe: Callable[[int], str] | None = None
    ) -> Any:  # noqa: ANN401 - as the format says
        transforms = self.transforms
        is_made = transforms is not None and transforms.changes_rows
        if transforms is not None:
            rows = users.call(partial(transforms.rows, describe=describe), rows)
        batch: Any
        if self.collate is not None:
            batch = users.call(self.collate, rows)
        else:
            make = made_as_format if is_made else rows_as_format
            batch = make(rows, self.batch_format, self.ragged)
        if transforms is None or transforms.batch is None:
            return batch
        return users.call(transforms.batch, batch)
