"""Reading the golden data sets' expected values."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["GOLDEN", "golden_values", "same_value"]

GOLDEN = Path(__file__).parent / "data" / "golden" / "datasets"


def golden_values(name: str) -> tuple[dict[str, str], dict[str, Any], list[dict[str, Any]]]:
    """Return columns, writer arguments and samples of a golden data set."""
    document = json.loads((GOLDEN / name / "values.json").read_text())
    samples = [
        {key: _value(value) for key, value in sample.items()} for sample in document["samples"]
    ]
    return document["columns"], document["kwargs"], samples


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"bytes"}:
        return base64.b64decode(value["bytes"])
    if set(value) == {"scalar", "dtype"}:
        return np.dtype(value["dtype"]).type(value["scalar"])
    if set(value) == {"decimal"}:
        return Decimal(value["decimal"])
    if "ndarray" in value:
        data = base64.b64decode(value["ndarray"])
        return np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"])
    return value


def same_value(first: Any, second: Any) -> bool:
    """Return whether two decoded values are the same in type, shape and content."""
    if isinstance(first, np.ndarray | np.generic) or isinstance(second, np.ndarray | np.generic):
        one, two = np.asarray(first), np.asarray(second)
        same_kind = one.dtype == two.dtype and one.shape == two.shape
        return same_kind and one.tobytes() == two.tobytes()
    if isinstance(first, float) and isinstance(second, float) and first != first:  # noqa: PLR0124
        return second != second  # noqa: PLR0124 - not a number
    return type(first) is type(second) and bool(first == second)
