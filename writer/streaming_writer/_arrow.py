"""Arrow tables as columns for the batch encoder, without an object per value where possible."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from streaming_core._extras import require
from streaming_core.errors import SampleError
from streaming_writer._mds_batch import Encoded

__all__ = ["arrow_columns", "as_table", "infer_arrow", "is_arrow", "python_columns"]


def is_arrow(batch: Any) -> bool:  # noqa: ANN401 - any user's value
    """Return whether `batch` is a table or record batch by Arrow's interchange protocol."""
    return not isinstance(batch, Mapping) and (
        hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__")
    )


def as_table(batch: Any) -> Any:  # noqa: ANN401 - Arrow's types
    """Return an Arrow table or record batch of any library as a `pyarrow.Table`, views resolved."""
    pa = require("pyarrow", extra="parquet", purpose="writing Arrow tables")
    table = batch if isinstance(batch, pa.Table) else pa.table(batch)
    names = table.column_names
    if len(set(names)) != len(names):
        msg = f"an Arrow table whose column names repeat: {names}; rename them first"
        raise SampleError(msg)
    for i, field in enumerate(table.schema):
        kind = pa.types
        if kind.is_string_view(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_string()))
        elif kind.is_binary_view(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_binary()))
    return table


def infer_arrow(table: Any) -> dict[str, str]:  # noqa: ANN401 - a pyarrow.Table
    """Return the columns of an Arrow table by its types, `json` where no encoding fits."""
    pa = require("pyarrow", extra="parquet", purpose="writing Arrow tables")
    return {field.name: _encoding(pa, field.type) for field in table.schema}


def _encoding(pa: Any, kind: Any) -> str:  # noqa: ANN401 - Arrow's types
    types = pa.types
    if types.is_dictionary(kind):
        return _encoding(pa, kind.value_type)
    if _is_plain(pa, kind):
        return str(np.dtype(kind.to_pandas_dtype()).name)
    if _is_list_of_numbers(pa, kind):
        return f"ndarray:{_encoding(pa, kind.value_type)}"
    for test, encoding in (
        (types.is_boolean, "int"),
        (types.is_string, "str"),
        (types.is_large_string, "str"),
        (types.is_binary, "bytes"),
        (types.is_large_binary, "bytes"),
        (types.is_fixed_size_binary, "bytes"),
        (types.is_decimal, "str_decimal"),
    ):
        if test(kind):
            return encoding
    return "json"


def arrow_columns(table: Any, encodings: Mapping[str, str]) -> dict[str, Any]:  # noqa: ANN401 - any Arrow table
    """Return the columns named in `encodings` as arrays or lists that `encode_batch` takes.

    Text and binary come as views of Arrow's own buffers; missing values (nulls) come as None, which
    the encodings refuse unless they can hold it (`json`, `pkl`).
    """
    pa = require("pyarrow", extra="parquet", purpose="writing Arrow tables")
    return {
        name: _column(pa, table.column(name), encodings[name])
        for name in table.column_names
        if name in encodings
    }


def _column(pa: Any, column: Any, encoding: str) -> Any:  # noqa: ANN401 - Arrow's types
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if column.null_count:
        return column.to_pylist()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy()
    if pa.types.is_boolean(kind):
        return column.to_pylist()
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    # Bytes count as encoded already, as in `write`; text only where its UTF-8 is the encoding.
    if (is_text and encoding == "str") or (is_binary and encoding in {"bytes", "jpeg", "png"}):
        return Encoded(view for chunk in column.chunks for view in _views(pa, chunk))
    if not _is_list_of_numbers(pa, kind):
        return column.to_pylist()
    if any(chunk.flatten().null_count for chunk in column.chunks):
        return column.to_pylist()  # numpy would make them NaN, and integers floats
    if pa.types.is_fixed_size_list(kind):
        if not len(column):
            return []
        parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
        return np.concatenate(parts).reshape(len(column), -1)
    if encoding.startswith("ndarray"):
        return [array for chunk in column.chunks for array in _slices(chunk)]
    return column.to_pylist()


def _is_list_of_numbers(pa: Any, kind: Any) -> bool:  # noqa: ANN401 - Arrow's types
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and _is_plain(pa, kind.value_type)


def _is_plain(pa: Any, kind: Any) -> bool:  # noqa: ANN401 - Arrow's types
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _offsets(chunk: Any, width: type[np.signedinteger[Any]]) -> list[int]:  # noqa: ANN401 - Arrow's types
    buffer = chunk.buffers()[1]
    start = chunk.offset * width().itemsize
    ends: list[int] = np.frombuffer(buffer, width, len(chunk) + 1, start).tolist()
    return ends


def _views(pa: Any, chunk: Any) -> list[memoryview]:  # noqa: ANN401 - Arrow's types
    """Return each value of a text or binary array as a view of its bytes."""
    if not len(chunk):
        return []
    large = pa.types.is_large_string(chunk.type) or pa.types.is_large_binary(chunk.type)
    ends = _offsets(chunk, np.int64 if large else np.int32)
    values = chunk.buffers()[2]
    data = memoryview(b"" if values is None else values).cast("B")
    return [data[start:stop] for start, stop in itertools.pairwise(ends)]


def _slices(chunk: Any) -> list[Any]:  # noqa: ANN401 - Arrow's types
    """Return each list of numbers as an array."""
    ends = chunk.offsets.to_numpy().tolist()
    values = chunk.values.to_numpy(zero_copy_only=False)
    return [values[start:stop] for start, stop in itertools.pairwise(ends)]


def python_columns(table: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - any Arrow table
    """Return the columns of an Arrow table as lists of Python objects."""
    columns: dict[str, list[Any]] = table.to_pydict()
    return columns
