"""Batches of samples that a user's own code has made."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from streaming_core._columns import Columns
from streaming_core._extras import require
from streaming_reader._batch._formats import BatchFormat, as_format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming_reader._batch._numpy import RaggedForm

__all__ = ["batched_rows", "rows_as_format"]


def batched_rows(samples: Iterator[Any], size: int, *, drop_last: bool) -> Iterator[list[Any]]:
    """Yield lists of `size` samples, the last of which may be smaller.

    Example:
        >>> list(batched_rows(iter("abc"), 2, drop_last=False))
        [['a', 'b'], ['c']]
    """
    while some := list(islice(samples, size)):
        if drop_last and len(some) < size:
            return
        yield some


def rows_as_format(rows: list[Any], batch_format: BatchFormat, ragged: RaggedForm) -> Any:  # noqa: ANN401 - as the format says
    """Return samples of any kind as torch's default collate does, or dicts in other formats."""
    if batch_format == "rows":
        return rows
    if batch_format == "torch" and ragged == "list":
        data = require("torch.utils.data", extra="torch", purpose="a batch of tensors")
        return data.default_collate(rows)
    return as_format(Columns.of_rows(rows), batch_format, ragged)
