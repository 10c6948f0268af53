"""Columns as torch tensors, equal to what torch's default collate makes of the samples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Fixed, Foreign, Ragged
from streaming_core._extras import require
from streaming_core._foreign import block_type
from streaming_core.errors import SchemaError
from streaming_reader._batch._arrow import kept_in_arrow
from streaming_reader._batch._numpy import RaggedForm, ragged_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._columns import Column, Columns

__all__ = ["to_torch"]


def to_torch(columns: Columns, ragged: RaggedForm = "list") -> dict[str, Any]:
    """Return each column as `torch.utils.data.default_collate` would return that of the samples.

    Numbers and arrays alike become tensors without a copy where the columns own them; texts and
    bytes become lists; JSON values are collated as they are nested. Only `uint64` numbers, which
    torch refuses, come as tensors all the same. Of data that came from Arrow, lists of numbers are
    lists of tensors, however long they are, and nested values and decimals are as Python has them:
    what a column becomes does not depend on the batch.
    Times become the numbers that they count.
    With `ragged` other than `"list"`, values of different length come as `Padded` or `Offsets` of
    tensors instead, or as `pyarrow` arrays, as nested values and decimals do then.

    Raises:
        MissingExtraError: torch is not installed.
        SchemaError: The default collate cannot make one of these values; says of which column.
    """
    lists = columns.types or {}
    return {
        name: _column(name, column, ragged, is_list=name in lists)
        for name, column in columns.columns.items()
    }


def _column(name: str, column: Column, ragged: RaggedForm, *, is_list: bool) -> Any:  # noqa: ANN401 - as nested as the values are
    if isinstance(column, Fixed):
        return _tensor(column.values)
    if ragged == "arrow":
        if (kept := kept_in_arrow(column)) is not None:
            return kept
        ragged = "list"
    if isinstance(column, Ragged):
        if ragged != "list":
            arrays = ragged_arrays(column, ragged)
            return type(arrays)(*map(_tensor, arrays))
        if column.kind != "array":
            return column.to_list()
        if is_list:
            return [_tensor(value) for value in column.to_list()]
    if isinstance(column, Foreign) and not block_type(column.array.type):
        return column.to_list()
    values = column.to_list()
    try:
        return _collate()(values) if values else values
    except (RuntimeError, TypeError, LookupError, ValueError) as error:
        kinds = sorted({type(value).__name__ for value in values})
        if "NoneType" in kinds:
            msg = (
                f"column {name!r} has values that are missing, of which no tensor can be made. "
                "Say what becomes of them where the stream is made: nulls={'column': value}, or "
                "nulls='mask'; or leave the column out with columns=[...]"
            )
            raise SchemaError(msg) from error
        if any(hasattr(value, "getbbox") for value in values):  # Pillow's
            msg = (
                f"column {name!r} has images ({', '.join(kinds)}), of which no batch can be made. "
                "Make arrays or tensors of one shape of them: in __getitem__ of a subclass, or by "
                "create_dataloader(..., transform=...). batch_format='rows' and a collate_fn take "
                "them as they are"
            )
            raise SchemaError(msg) from error
        shapes = sorted({str(np.shape(value)) for value in values if hasattr(value, "shape")})
        msg = (
            f"column {name!r} cannot be collated by default: its values are of type "
            f"{', '.join(kinds)}{' and of shape ' + ', '.join(shapes[:5]) if shapes else ''}. Give "
            "ragged='padded' or ragged='offsets' for arrays of different lengths, ragged='arrow' "
            "to have the column in Arrow, or a collate_fn"
        )
        raise SchemaError(msg) from error


def _tensor(values: NDArray[Any]) -> Any:  # noqa: ANN401 - a tensor of an optional dependency
    if values.dtype.kind in "mM":  # torch knows no time: these count their unit
        values = values.view(np.int64)
    # Torch knows no other byte order, and warns of memory that must not be written to.
    if not (values.flags.writeable and values.flags.aligned and values.dtype.isnative):
        values = np.array(values, values.dtype.newbyteorder("="))
    return _torch().from_numpy(values)


@cache
def _torch() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("torch", extra="torch", purpose="a batch of tensors")


@cache
def _collate() -> Any:  # noqa: ANN401 - a function of an optional dependency
    data = require("torch.utils.data", extra="torch", purpose="a batch of tensors")
    return data.default_collate
