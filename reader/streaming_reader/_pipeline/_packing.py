"""Rows of one length out of documents of any length."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from streaming_core._arguments import checked, unexpected
from streaming_core.errors import MissingColumnError, SchemaError
from streaming_reader._batch import Offsets, Padded
from streaming_reader._pipeline._text import IGNORED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["pack"]

_LABELS: Final = "labels"
_MATRIX: Final = 2


def pack(length: int, columns: Sequence[str] = ("input_ids",), *, cut: bool = False) -> _Pack:
    """Return a `batch_transform` that puts the documents of a batch into rows of `length` tokens.

    A batch becomes `columns`, and beside them `position_ids` (of each token in its document) and
    `segment_ids` (the number of its document in the row, from 1 on; 0 where nothing is), each of
    shape (rows, `length`). What is left over in a row is 0, in `labels` -100. Other columns are
    left out. How many rows come of a batch depends on its documents, and on nothing else, so that
    resumed training is the same.

    Args:
        length: Tokens in a row.
        columns: Those to be packed alike; of each sample they have the same number of values.
        cut: Fill rows to the end and go on with the document in the next one; only the last row of
            a batch has room left. Without it a document is put where it fits as a whole, and only
            one that is longer than a row is cut.

    Raises `SchemaError` where these make no sense.

    Example:
        >>> batch = pack(4)({"input_ids": [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]})
        >>> batch["input_ids"].tolist(), batch["segment_ids"].tolist()
        ([[1, 2, 3, 4], [5, 6, 0, 0]], [[1, 1, 1, 2], [1, 1, 0, 0]])
    """
    given = checked({"length": length, "cut": cut})
    listed = cast("Sequence[object]", columns) if isinstance(columns, list | tuple) else ()
    if not listed or not all(isinstance(name, str) for name in listed):
        raise unexpected(columns, "columns", "a list of names of columns, at least one")
    return _Pack(columns=tuple(columns), **given)


@dataclass(frozen=True, slots=True)
class _Pack:
    """Packs the documents of a batch; picklable."""

    length: int
    columns: tuple[str, ...]
    cut: bool

    def __call__(self, batch: Any) -> dict[str, Any]:  # noqa: ANN401 - any batch
        if not isinstance(batch, Mapping):
            msg = (
                "pack takes batches that are dicts of columns (batch_format 'torch', 'numpy' or "
                f"'jax'), came {type(batch).__name__}"
            )
            raise SchemaError(msg)
        found = cast("Mapping[str, Any]", batch)
        if not found:  # nothing was left of it
            return {}
        for name in self.columns:
            if name not in found:
                msg = f"no column {name!r}; the batch has {', '.join(map(repr, found))}"
                raise MissingColumnError(msg)
        columns = {name: _flat(name, found[name]) for name in self.columns}
        first = self.columns[0]
        bounds = columns[first].bounds
        for name, column in columns.items():
            if not np.array_equal(column.bounds, bounds):
                msg = (
                    f"column {name!r} has other numbers of values than {first!r}: columns that are "
                    "packed alike have the same number in each sample"
                )
                raise SchemaError(msg)
        pieces = (_filled if self.cut else _fitted)(bounds, self.length)
        made = self._rows({name: column.values for name, column in columns.items()}, pieces)
        if any(column.is_tensor for column in columns.values()):
            return {name: sys.modules["torch"].from_numpy(rows) for name, rows in made.items()}
        return made

    def _rows(self, values: Mapping[str, NDArray[Any]], pieces: _Pieces) -> dict[str, Any]:
        length = self.length
        sizes, count = pieces.sizes, int(pieces.rows.max(initial=-1)) + 1
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        source = np.repeat(pieces.starts, sizes) + within
        target = np.repeat(pieces.rows * length + pieces.places, sizes) + within
        # Which document of its row each is: those of a row lie in order of their places.
        order = np.lexsort((pieces.places, pieces.rows))
        in_order = pieces.rows[order]
        numbers = np.empty_like(sizes)
        numbers[order] = np.arange(len(order)) - np.searchsorted(in_order, in_order) + 1
        told = {"position_ids": within, "segment_ids": np.repeat(numbers, sizes)}
        given = {name: column[source] for name, column in values.items()}
        made: dict[str, Any] = {}
        for name, column in {**given, **told}.items():
            rows = np.full(count * length, IGNORED if name == _LABELS else 0, column.dtype)
            rows[target] = column
            made[name] = rows.reshape(count, length)
        return made


class _Flat(NamedTuple):
    """Values end to end, where each sample's begin, and whether torch's they were."""

    values: NDArray[Any]
    bounds: NDArray[np.int64]
    is_tensor: bool


class _Pieces(NamedTuple):
    """Parts of documents: where each begins in all values, how long it is, and where it goes."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def _flat(name: str, value: Any) -> _Flat:  # noqa: ANN401 - any column
    """Return a column of lists of numbers, in whichever form it comes."""
    if isinstance(value, Offsets):
        offsets: NDArray[np.int64] = np.asarray(value.offsets)
        values = np.asarray(value.values)[int(offsets[0]) : int(offsets[-1])]
        return _Flat(values, offsets - offsets[0], _is_tensor(value.values))
    if isinstance(value, Padded):
        values = np.asarray(value.values)
        lengths: NDArray[np.int64] = np.asarray(value.lengths)
        longest = int(values.shape[1])
        return _Flat(
            values[np.arange(longest) < lengths[:, None]],
            _bounds(lengths),
            _is_tensor(value.values),
        )
    if getattr(value, "ndim", 0) == _MATRIX:
        values = np.asarray(value)
        return _Flat(
            values.reshape(-1), np.arange(len(values) + 1) * values.shape[1], _is_tensor(value)
        )
    listed = cast("list[object]", value) if isinstance(value, list) else []
    if listed:
        each = [np.asarray(one) for one in listed]
        if all(one.ndim == 1 and one.dtype.kind in "biuf" for one in each):
            lengths = np.array([len(one) for one in each], np.int64)
            return _Flat(np.concatenate(each), _bounds(lengths), _is_tensor(listed[0]))
    msg = f"column {name!r} must hold lists of numbers to be packed, came {value!r:.80}"
    raise SchemaError(msg)


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")  # without it there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)


def _bounds(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _filled(bounds: NDArray[np.int64], length: int) -> _Pieces:
    """Return documents one after the other, cut where a row is full."""
    first, last = int(bounds[0]), int(bounds[-1])
    edges = np.unique(np.concatenate([bounds, np.arange(first, last, length)]))
    starts = edges[:-1]
    rows, places = np.divmod(starts - first, length)
    return _Pieces(starts, np.diff(edges), rows, places)


def _fitted(bounds: NDArray[np.int64], length: int) -> _Pieces:
    """Return documents, the longest first, each in the first row that has room for it."""
    counts = -(-np.diff(bounds) // length)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(bounds[:-1], counts) + within * length
    sizes = np.minimum(starts + length, np.repeat(bounds[1:], counts)) - starts
    order = np.argsort(-sizes, kind="stable")
    starts, sizes = starts[order], sizes[order]
    room = np.full(len(sizes), length, np.int64)  # of as many rows as there can be
    rows, places = np.zeros_like(sizes), np.zeros_like(sizes)
    for at, size in enumerate(sizes.tolist()):
        row = int((room >= size).argmax())
        rows[at], places[at] = row, length - room[row]
        room[row] -= size
    return _Pieces(starts, sizes, rows, places)
