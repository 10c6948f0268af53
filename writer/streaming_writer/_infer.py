"""Columns from the first samples, where the user names none."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np

from streaming_core._format._mds import DTYPE_CODES, came, reject_masked
from streaming_core.errors import MissingColumnError, SampleError, SchemaError
from streaming_writer._mds_batch import checked_batch

if TYPE_CHECKING:
    from streaming_writer._blocks import Block
    from streaming_writer._mds_rows import Rows

__all__ = [
    "Guess",
    "InferringRows",
    "KnownKeysRows",
    "infer_batch",
    "infer_columns",
    "infer_encoding",
]

FIRST_SAMPLES = 64
"""How many samples are looked at before the columns are settled."""

_MOST_EXACT = 1 << 53
_UNCHANGEABLE = (int, float, str, bytes, Decimal, np.generic, type(None))
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
    if _is_scalar(value):
        return _numpy_scalar(value)
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "str_int"
    for kinds, encoding in _PLAIN.items():
        if isinstance(value, kinds):
            return encoding
    if hasattr(value, "__array__") and not _is_image(value):
        try:
            reject_masked(value)
        except TypeError as error:
            raise SchemaError(str(error)) from error
        name = np.asarray(value).dtype.name
        if name in DTYPE_CODES:
            return f"ndarray:{name}"
        msg = f"no encoding holds arrays of {name}; convert to one of {', '.join(DTYPE_CODES)}"
        raise SchemaError(msg)
    if _is_image(value):
        return {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png"}.get(value.format or "", "pil")
    if _is_list(value) and value and all(_is_image(item) for item in value):
        kinds_found = {infer_encoding(item) for item in value}
        return f"list[{kinds_found.pop()}]" if len(kinds_found) == 1 else "list[pil]"
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"no safe encoding for {came(value)}; name one in columns ('pkl' takes any object)"
        raise SchemaError(msg) from error
    return "json"


def _is_scalar(value: object) -> TypeGuard[np.generic[Any]]:
    return isinstance(value, np.generic)


def _is_a(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _numpy_scalar(value: np.generic[Any]) -> str:
    if isinstance(value, np.bool_):
        return "uint8"
    if value.dtype.name in DTYPE_CODES:
        return value.dtype.name
    texts = {"S": "bytes", "U": "str"}
    if value.dtype.kind in texts:
        return texts[value.dtype.kind]
    msg = f"no encoding holds {value.dtype.name}; convert to one of {', '.join(DTYPE_CODES)}"
    raise SchemaError(msg)


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


class Guess:
    """The columns that fit all samples seen so far."""

    def __init__(self) -> None:
        """Begin with no sample."""
        self.columns: dict[str, str] = {}
        self._too_big: set[str] = set()
        self.seen = 0

    def add(self, sample: Mapping[str, Any]) -> None:
        """Widen the columns to hold `sample` too.

        Where they cannot, the error names column and sample, and the guess stays as it was.
        """
        number, columns = self.seen, dict(self.columns)
        for name, value in sample.items():
            if number and name not in columns:
                msg = (
                    f"sample {number} has a column {name!r} that the first lacks; give columns, "
                    "or fill it in"
                )
                raise SampleError(msg)
            found = _found(name, value, number)
            wider = _joined(columns.get(name, found), found)
            if isinstance(value, int) and abs(value) > _MOST_EXACT:
                self._too_big.add(name)
            if wider == "float64" and name in self._too_big:
                wider = None  # the float next to such an int is another number
            if wider is None:
                msg = (
                    f"sample {number}, column {name!r}: came {came(value)} ({found}), but the "
                    f"samples before have {columns[name]}; give columns to say what is wanted"
                )
                raise SampleError(msg)
            columns[name] = wider
        missing = [name for name in columns if name not in sample]
        if missing:
            msg = (
                f"sample {number}: column {missing[0]!r} is missing, which the samples before have"
            )
            raise MissingColumnError(msg)
        self.columns, self.seen = columns, number + 1


def infer_columns(samples: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of the first samples; errors name the column and sample that do not fit.

    Example:
        >>> infer_columns([{"text": "a", "score": 1}, {"text": "b", "score": 0.5}])
        {'text': 'str', 'score': 'float64'}
    """
    guess = Guess()
    for sample in samples:
        guess.add(sample)
    return guess.columns


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
    for name, values in checked_batch(batch).items():
        rows: Iterable[Any] = islice(values, FIRST_SAMPLES)
        columns.update(infer_columns([{name: value} for value in rows]))
        if name not in columns:
            msg = f"column {name!r} is empty, so nothing says what it holds; give columns"
            raise SchemaError(msg)
    return columns


def _snapshot(value: Any) -> Any:  # noqa: ANN401 - any user's value
    """Copy what the caller could change before it is encoded; images are not looked into."""
    if _is_a(value, *_UNCHANGEABLE) or _is_image(value):
        return value
    if _is_a(value, bytearray, memoryview):
        return bytes(value)
    if hasattr(value, "__array__"):
        return np.asarray(value).copy()
    return copy.deepcopy(value)


class InferringRows:
    """Keeps the first samples until there are enough to settle the columns."""

    def __init__(self) -> None:
        """Keep none yet."""
        self.first = 0
        self.samples: list[dict[str, Any]] = []
        self._guess = Guess()

    def add(self, sample: Any) -> bool:  # noqa: ANN401 - any user's value
        """Keep a copy of `sample`; True when there are enough."""
        if not isinstance(sample, Mapping):
            msg = (
                f"sample {len(self.samples)}: wanted a mapping of columns to values, came "
                f"{came(sample)}"
            )
            raise SampleError(msg)
        given = cast("Mapping[str, Any]", sample)
        self._guess.add(given)
        self.samples.append({name: _snapshot(value) for name, value in given.items()})
        return len(self.samples) >= FIRST_SAMPLES

    @property
    def columns(self) -> dict[str, str]:
        """The columns that fit the samples kept."""
        return self._guess.columns

    def take(self) -> None:
        """Nothing is encoded yet."""


class KnownKeysRows:
    """Refuses samples with keys that no column was inferred for; they would be lost silently."""

    def __init__(self, rows: Rows, columns: Mapping[str, str]) -> None:
        """Hand the other samples on to `rows`."""
        self._rows = rows
        self._known = columns.keys()

    @property
    def first(self) -> int:
        """The number of the first sample after the last block."""
        return self._rows.first

    @first.setter
    def first(self, number: int) -> None:
        self._rows.first = number

    def add(self, sample: Any) -> bool:  # noqa: ANN401 - any user's value
        """Encode one sample; True when a block is ready."""
        given = cast("Mapping[str, Any]", sample if _is_a(sample, Mapping) else {})
        if not given.keys() <= self._known:
            extra = sorted(map(str, given.keys() - self._known))
            msg = (
                f"a sample has a column {extra[0]!r} that the first {FIRST_SAMPLES} lack; give "
                "columns to say which are wanted"
            )
            raise SampleError(msg)
        return self._rows.add(sample)

    def take(self) -> Block | None:
        """Return the records gathered since the last call, if any."""
        return self._rows.take()
