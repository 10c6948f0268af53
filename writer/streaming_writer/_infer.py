"""Columns from the first samples, where the user names none."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import numpy as np

from streaming_core._format._mds import DTYPE_CODES, came
from streaming_core.errors import MissingColumnError, SampleError, SchemaError

__all__ = ["InferringRows", "infer_batch", "infer_columns", "infer_encoding"]

FIRST_SAMPLES = 64
"""How many samples are looked at before the columns are settled."""

_CHANGEABLE = (list, dict, set, bytearray, np.ndarray)
_PLAIN: dict[tuple[type, ...], str] = {
    (float,): "float64",
    (str,): "str",
    (bytes, bytearray, memoryview): "bytes",
    (Decimal,): "str_decimal",
}


def infer_encoding(value: Any) -> str:  # noqa: ANN401 - any user's value
    """Return the encoding that gives `value` back; `SchemaError` if none but pickle would.

    Example:
        >>> infer_encoding("a"), infer_encoding(1), infer_encoding(np.zeros(3, np.uint16))
        ('str', 'int', 'ndarray:uint16')
    """
    scalar = _numpy_scalar(value)
    if scalar is not None:
        return scalar
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "str_int"
    for kinds, encoding in _PLAIN.items():
        if isinstance(value, kinds):
            return encoding
    if hasattr(value, "__array__") and not _is_image(value):
        name = np.asarray(value).dtype.name
        if name in DTYPE_CODES:
            return f"ndarray:{name}"
        msg = f"no encoding holds arrays of {name}; convert to one of {', '.join(DTYPE_CODES)}"
        raise SchemaError(msg)
    if _is_image(value):
        return {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png"}.get(value.format or "", "pil")
    items = _as_list(value)
    if items and all(_is_image(item) for item in items):
        kinds_found = {infer_encoding(item) for item in items}
        return f"list[{kinds_found.pop()}]" if len(kinds_found) == 1 else "list[pil]"
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"no safe encoding for {came(value)}; name one in columns ('pkl' takes any object)"
        raise SchemaError(msg) from error
    return "json"


def _numpy_scalar(value: Any) -> str | None:  # noqa: ANN401 - any user's value
    if not isinstance(value, np.generic):
        return None
    if isinstance(value, np.bool_):
        return "uint8"
    if value.dtype.name in DTYPE_CODES:
        return value.dtype.name
    return {"S": "bytes", "U": "str"}.get(value.dtype.kind) or infer_encoding(value.item())


def _is_image(value: Any) -> bool:  # noqa: ANN401 - any user's value
    # Pillow need not be installed to say that something is no image of its making.
    return any(kind.__module__ == "PIL.Image" for kind in type(value).__mro__)


def _joined(first: str, second: str) -> str | None:
    """Return an encoding that holds the values of both, or None."""
    kinds = {first, second}
    if len(kinds) == 1:
        return first
    if all(kind.startswith("ndarray") for kind in kinds):
        return "ndarray"
    for group, wider in (
        ({"int", "float64"}, "float64"),
        ({"int", "str_int"}, "str_int"),
        ({"jpeg", "png", "pil"}, "pil"),
    ):
        if kinds <= group:
            return wider
    return None


def infer_columns(samples: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of the first samples; errors name the column and sample that do not fit.

    Example:
        >>> infer_columns([{"text": "a", "score": 1}, {"text": "b", "score": 0.5}])
        {'text': 'str', 'score': 'float64'}
    """
    columns: dict[str, str] = {}
    for number, sample in enumerate(samples):
        for name, value in sample.items():
            if number and name not in columns:
                msg = (
                    f"sample {number} has a column {name!r} that the first lacks; give columns, "
                    "or fill it in"
                )
                raise SampleError(msg)
            found = _found(name, value, number)
            wider = _joined(columns.get(name, found), found)
            if wider is None:
                msg = (
                    f"sample {number}, column {name!r}: came {came(value)} ({found}), but the "
                    "samples before "
                    f"have {columns[name]}; give columns to say what is wanted"
                )
                raise SampleError(msg)
            columns[name] = wider
        missing = [name for name in columns if name not in sample]
        if missing:
            msg = (
                f"sample {number}: column {missing[0]!r} is missing, which the samples before have"
            )
            raise MissingColumnError(msg)
    return columns


def _found(name: str, value: Any, number: int) -> str:  # noqa: ANN401 - any user's value
    try:
        return infer_encoding(value)
    except SchemaError as error:
        msg = f"sample {number}, column {name!r}: {error}"
        raise SchemaError(msg) from error


def infer_batch(batch: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a first batch of arrays and lists.

    Example:
        >>> infer_batch({"x": np.arange(3, dtype=np.int32), "y": ["a", "b", "c"]})
        {'x': 'int32', 'y': 'str'}
    """
    columns: dict[str, str] = {}
    for name, values in batch.items():
        rows: Iterable[Any] = values[:FIRST_SAMPLES]
        columns.update(infer_columns([{name: value} for value in rows]))
        if name not in columns:
            msg = f"column {name!r} is empty, so nothing says what it holds; give columns"
            raise SchemaError(msg)
    return columns


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 - any user's value
    """Return `value` if it is a list, else an empty one."""
    items: list[Any] = value if isinstance(value, list) else []
    return items


def _snapshot(value: Any) -> Any:  # noqa: ANN401 - any user's value
    """Copy what the caller could change before it is encoded."""
    return copy.deepcopy(value) if type(value) in _CHANGEABLE else value


class InferringRows:
    """Keeps the first samples until there are enough to settle the columns."""

    def __init__(self) -> None:
        """Keep none yet."""
        self.first = 0
        self.samples: list[dict[str, Any]] = []

    def add(self, sample: Any) -> bool:  # noqa: ANN401 - any user's value
        """Keep a copy of `sample`; True when there are enough."""
        if not isinstance(sample, Mapping):
            msg = (
                f"sample {len(self.samples)}: wanted a mapping of columns to values, came "
                f"{came(sample)}"
            )
            raise SampleError(msg)
        given = cast("Mapping[str, Any]", sample)
        self.samples.append({name: _snapshot(value) for name, value in given.items()})
        return len(self.samples) >= FIRST_SAMPLES

    def take(self) -> None:
        """Nothing is encoded yet."""
