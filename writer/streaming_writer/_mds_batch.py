"""Whole columns into records at the speed of memory, the same as one sample at a time."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from streaming_core._format._mds import (
    ArrayEncoding,
    Encoding,
    Int,
    MDSColumns,
    Scalar,
    Str,
    as_array,
    came,
    encode_value,
    reject_masked,
)
from streaming_core.errors import MissingColumnError, SampleError
from streaming_writer._blocks import Block, Bytes, MatrixBlock, PartsBlock
from streaming_writer._mds_rows import ENCODE_ERRORS, packs_exactly, struct_code

__all__ = ["Encoded", "checked_batch", "encode_batch", "select_columns"]

Array = NDArray[Any]


class Encoded(list[memoryview]):
    """Values of a variable column as their bytes in the file, in place of values to encode."""


@dataclass(frozen=True, slots=True)
class _Uniform:
    """A column whose values all have the same size: cells side by side, see `MatrixBlock`."""

    cells: tuple[Array, ...]

    @property
    def size(self) -> int:
        return sum(cell[0].nbytes for cell in self.cells)


@dataclass(frozen=True, slots=True)
class _Ragged:
    """A column of values of any size."""

    values: Sequence[Bytes]


_Column = _Uniform | _Ragged


def encode_batch(columns: MDSColumns, batch: Mapping[str, Any], first: int) -> Block | None:
    """Return the records of a batch: a mapping of columns to arrays or sequences of one length.

    `first` is the number of the batch's first sample, for errors. Nothing is kept of a batch that
    raises.
    """
    chosen = select_columns(columns.names, batch).values()
    values = [_listed(column) for column in chosen]
    count = len(values[0])
    if not count:
        return None
    encoded: list[_Column] = []
    for name, text, encoding, column in zip(
        columns.names, columns.texts, columns.encodings, values, strict=True
    ):
        try:
            encoded.append(_encode_column(encoding, column))
        except ENCODE_ERRORS as error:
            msg = f"column {name!r} ({text})"
            raise _refusal(msg, encoding, column, first, error) from error
    return _assemble(encoded, columns.variable, count)


def checked_batch(batch: Any) -> Mapping[str, Any]:  # noqa: ANN401 - checked here
    """Return `batch` if it is a mapping of columns to sequences of values; `SampleError` if not."""
    if not isinstance(batch, Mapping):
        msg = f"wanted a mapping of columns to values, or an Arrow table; came {came(batch)}"
        raise SampleError(msg)
    given = cast("Mapping[str, Any]", batch)
    for name, column in given.items():
        if not _holds_values(column):
            msg = f"column {name!r}: wanted an array or a list of values, came {came(column)}"
            raise SampleError(msg)
    return given


def _holds_values(column: object) -> bool:
    dimensions: int = getattr(column, "ndim", 1)
    single = isinstance(column, str | bytes | Mapping) or not hasattr(column, "__len__")
    return not single and dimensions > 0


def check_lengths(columns: Mapping[str, Any]) -> None:
    """Raise `SampleError` unless all columns have the same length."""
    (first, wanted), *others = ((name, len(values)) for name, values in columns.items())
    for name, length in others:
        if length != wanted:
            msg = (
                f"columns of a batch must have the same length: {first!r} has {wanted} values, "
                f"{name!r} has {length}"
            )
            raise SampleError(msg)


def select_columns(names: Iterable[str], batch: Any) -> dict[str, Any]:  # noqa: ANN401 - checked here
    """Return the columns `names` of a batch, all of one length; errors say what is missing."""
    given = checked_batch(batch)
    chosen: dict[str, Any] = {}
    for name in names:
        if name not in given:
            there = ", ".join(repr(key) for key in given)
            msg = f"column {name!r} is missing in the batch, which has {there or 'none'}"
            raise MissingColumnError(msg)
        chosen[name] = given[name]
    check_lengths(chosen)
    return chosen


def _listed(column: Any) -> Any:  # noqa: ANN401 - any container
    """Return containers other than arrays and lists (tuples, tensors, …) as one of them."""
    if _is_array_or_list(column):
        return column
    return np.asarray(column) if hasattr(column, "__array__") else list(column)


def _is_array_or_list(column: object) -> bool:
    return isinstance(column, np.ndarray | list)


def _refusal(
    where: str,
    encoding: Encoding,
    values: Any,  # noqa: ANN401 - an array or a list
    first: int,
    cause: Exception,
) -> SampleError:
    """Return the error that names the first value that does not fit."""
    for row, value in enumerate(values):
        try:
            encode_value(encoding, value)
        except ENCODE_ERRORS as error:
            return SampleError(f"sample {first + row} (row {row} of the batch), {where}: {error}")
    return SampleError(f"sample {first} and on, {where}: {cause}")


def _encode_column(encoding: Encoding, values: Any) -> _Column:  # noqa: ANN401 - an array or a list
    reject_masked(values)
    if isinstance(encoding, Scalar | Int):
        numbers = _numbers(encoding, values)
        if numbers is not None:
            return _Uniform((numbers,))
    if isinstance(encoding, ArrayEncoding):
        arrays = _stacked(encoding, values)
        if arrays is not None:
            return arrays
    if isinstance(values, Encoded):
        return _Ragged(values)
    items = cast("list[Any]", values)
    if isinstance(values, list):
        if type(encoding) is Str and operator.countOf(map(type, items), str) == len(items):
            return _Ragged([item.encode() for item in items])
        if encoding.size is None and operator.countOf(map(type, items), bytes) == len(items):
            return _Ragged(items)
    parts = [encode_value(encoding, item) for item in items]
    if encoding.size is None:
        return _Ragged(parts)
    return _Uniform((np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), -1),))


def _numbers(encoding: Scalar | Int, values: list[Any] | Array) -> Array | None:
    """Return the numbers as an array of the encoding's type; None where each must be seen."""
    dtype = encoding.dtype if isinstance(encoding, Scalar) else np.dtype("<i8")
    if isinstance(values, list):
        code = struct_code(encoding)
        if code is None or not packs_exactly(values, code):
            return None
        try:
            return np.frombuffer(struct.pack(f"<{len(values)}{code}", *values), dtype)
        except (struct.error, *ENCODE_ERRORS):
            return None
    if values.ndim != 1 or values.dtype.kind not in "iufb":
        return None
    if dtype.kind == "f" and values.dtype.kind in "iu":
        largest = 1 << np.finfo(str(dtype)).nmant + 1
        exact = not values.size or (-largest <= values.min() and values.max() <= largest)
        return values.astype(dtype) if exact else None
    if values.dtype == dtype or np.can_cast(values.dtype, dtype, "safe"):
        return values.astype(dtype, copy=False)
    if dtype.kind == "f" and values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            narrow = values.astype(dtype)
        return narrow if np.array_equal(np.isinf(narrow), np.isinf(values)) else None
    if dtype.kind in "iu" and values.dtype.kind in "iu":
        info = np.iinfo(dtype)
        if int(values.min()) >= info.min and int(values.max()) <= info.max:
            return values.astype(dtype)
    return None


def _stacked(encoding: ArrayEncoding, values: Any) -> _Uniform | None:  # noqa: ANN401 - an array or a list
    """Return the column where all its arrays have one type and shape, given as one array."""
    if not isinstance(values, np.ndarray):
        return None
    array = cast("Array", values)
    if array.ndim < 2 or array.dtype == object:  # noqa: PLR2004 - a row each
        return None
    array = as_array(array)
    header = encoding.header(as_array(array[0]))
    rows = np.ascontiguousarray(array).reshape(len(array), -1)
    if not header:
        return _Uniform((rows,))
    return _Uniform((np.frombuffer(header, np.uint8).reshape(1, -1), rows))


def _assemble(encoded: list[_Column], variable: tuple[int, ...], count: int) -> Block:
    """Put the lengths of the variable columns in front, and all columns in order behind."""
    fixed = np.zeros((1, len(variable)), "<u4")
    ragged: list[tuple[int, NDArray[np.int64]]] = []
    for place, i in enumerate(variable):
        column = encoded[i]
        if isinstance(column, _Uniform):
            fixed[0, place] = column.size
        else:
            lengths = np.fromiter(map(len, column.values), np.int64, count)
            ragged.append((place, lengths))
    if not ragged:
        head = (fixed,) if variable else ()
        cells = [*head, *(cell for c in encoded if isinstance(c, _Uniform) for cell in c.cells)]
        return MatrixBlock(count, cells)
    words = np.repeat(fixed, count, axis=0)
    for place, lengths in ragged:
        words[:, place] = lengths
    runs = _runs(_Uniform((words,)), encoded, count)
    sizes: NDArray[np.int64] = np.full(count, words.nbytes // count, np.int64)
    for column in encoded:
        if isinstance(column, _Uniform):
            sizes += column.size
    for _, lengths in ragged:
        sizes += lengths
    parts: list[Bytes] = [b""] * (len(runs) * count)
    for i, run in enumerate(runs):
        parts[i :: len(runs)] = run
    return PartsBlock(parts, len(runs), sizes)


def _runs(head: _Uniform, encoded: list[_Column], count: int) -> list[Sequence[Bytes]]:
    """Return the pieces of all records, neighbouring uniform columns joined to one piece."""
    runs: list[Sequence[Bytes]] = []
    cells: list[Array] = list(head.cells)
    for column in [*encoded, None]:
        if isinstance(column, _Uniform):
            cells += column.cells
            continue
        if cells:
            runs.append(_pieces(cells, count))
            cells = []
        if column is not None:
            runs.append(column.values)
    return runs


def _pieces(cells: list[Array], count: int) -> list[bytes]:
    """Return one bytes object per record."""
    block = MatrixBlock(count, cells)
    size = int(block.lengths[0])
    out = np.empty(count * size, np.uint8)
    block.write(0, count, out)
    return out.view(f"V{size}").tolist()
