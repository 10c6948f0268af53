"""Batches of samples that a user's own code has made."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from streaming_core._columns import Columns
from streaming_core._extras import require
from streaming_core.errors import SchemaError
from streaming_reader._batch._formats import BatchFormat, as_format
from streaming_reader._batch._typed import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming_reader._batch._numpy import RaggedForm

__all__ = ["batched_rows", "made_as_format", "rows_as_format"]


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


def made_as_format(rows: list[Any], batch_format: BatchFormat, ragged: RaggedForm) -> Any:  # noqa: ANN401 - as the format says
    """Return rows that transforms have made: dicts become what such columns would have become.

    Rows of other kinds come as rows, or as torch's default collate makes tensors of them.

    Raises:
        SchemaError: The format needs dicts, or dicts of the same keys.

    Example:
        >>> made_as_format([{"x": 1}, {"x": 2}], "numpy", "list")
        {'x': array([1, 2])}
    """
    other = next((row for row in rows if not isinstance(row, dict)), None)
    if batch_format == "rows" or (other is not None and batch_format == "torch"):
        return rows_as_format(rows, batch_format, "list")
    if other is not None:
        msg = (
            f"batches of the format {batch_format!r} are made of dicts, a transform returned a "
            f"{type(other).__name__}; return dicts, or take batch_format='rows' or a collate_fn"
        )
        raise SchemaError(msg)
    return as_format(columns_of(rows), batch_format, ragged)


def rows_as_format(rows: list[Any], batch_format: BatchFormat, ragged: RaggedForm) -> Any:  # noqa: ANN401 - as the format says
    """Return samples of any kind as torch's default collate does, or dicts in other formats."""
    if batch_format == "rows":
        return rows
    if batch_format == "torch" and ragged == "list" and rows:  # torch collates no empty list
        data = require("torch.utils.data", extra="torch", purpose="a batch of tensors")
        return data.default_collate(rows)
    return as_format(Columns.of_rows(rows), batch_format, ragged)
