"""The formats that a batch can have, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from streaming_core._arguments import checked
from streaming_reader._batch._arrow import to_arrow
from streaming_reader._batch._jax import to_jax
from streaming_reader._batch._mixed import Mixed
from streaming_reader._batch._numpy import RaggedForm, to_numpy
from streaming_reader._batch._torch import to_torch

if TYPE_CHECKING:
    from streaming_core._columns import Columns
    from streaming_reader._batch._mixed import Batch

__all__ = ["BatchFormat", "as_format", "check_format", "to_dict"]

BatchFormat: TypeAlias = Literal["torch", "numpy", "jax", "arrow", "dict", "rows"]
"""What a batch is: a dict of tensors, of arrays (two ways) or of lists, an Arrow table, or rows."""


def to_dict(columns: Columns) -> dict[str, list[Any]]:
    """Return each column as a list of the values that single samples have.

    Example:
        >>> import numpy as np
        >>> from streaming_core._columns import Columns, Fixed
        >>> to_dict(Columns(2, {"x": Fixed(np.array([1, 2]), "int")}))
        {'x': [1, 2]}
    """
    return {name: list(column.to_list()) for name, column in columns.columns.items()}


def check_format(format: str, ragged: str = "list") -> None:
    """Raise `SchemaError` where there is no such format or form of ragged columns."""
    checked({"batch_format": format, "ragged": ragged})


def as_format(columns: Batch, format: BatchFormat, ragged: RaggedForm = "list") -> Any:  # noqa: ANN401 - as the format says
    """Return the samples in the format; `ragged` concerns torch, numpy and jax only.

    Raises:
        SchemaError: There is no such format, or it cannot hold the values or differing columns.
        MissingExtraError: It needs a package that is not installed.
    """
    check_format(format, ragged)
    if isinstance(columns, Mixed):
        if format != "rows":
            raise columns.refusal(format)
        return columns.rows()
    match format:
        case "torch":
            return to_torch(columns, ragged)
        case "numpy":
            return to_numpy(columns, ragged)
        case "jax":
            return to_jax(columns, ragged)
        case "arrow":
            return to_arrow(columns)
        case "dict":
            return to_dict(columns)
        case "rows":
            return columns.rows()
