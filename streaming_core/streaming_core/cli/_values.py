"""Values of samples for people and for programs, safe to print whatever the data holds."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np

__all__ = ["Pickled", "clean", "is_image", "json_line", "json_value", "show_value"]

_MAX_JSON_ITEMS: Final = 64
_MAX_HEX_BYTES: Final = 16
_MAX_SHOWN_NUMBERS: Final = 6


@dataclass(frozen=True, slots=True)
class Pickled:
    """Stands in for a value that was not decoded, because decoding it could run code."""

    num_bytes: int
    """Size of the value in the record."""


def clean(text: str) -> str:
    r"""Return `text` with all that a terminal might obey escaped; newlines too.

    Example:
        >>> clean("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def show_value(value: object, *, width: int | None = 60) -> str:
    """Return one line of about `width` characters at most that shows `value`; None for no limit.

    Example:
        >>> show_value(b"abc"), show_value(np.zeros((2, 2), np.uint8)), show_value("x" * 9, width=5)
        ('3 bytes: 616263', 'uint8[2, 2]: 0, 0, 0, 0', "'xxx…")
    """
    match value:
        case Pickled():
            return f"pickled, {value.num_bytes} bytes"
        case bytes():
            return _show_bytes(value, width)
        case np.ndarray():
            return _cut(_show_array(value, width), width)
        case np.generic():
            return str(cast("object", value))
        case str():
            return _cut(repr(value if width is None else value[: width + 1]), width)
        case _ if is_image(value):
            return _show_image(value)
        case list() if any(map(is_image, cast("list[object]", value))):
            items = cast("list[object]", value)
            return _cut(f"{len(items)} images: " + "; ".join(map(show_value, items)), width)
        case Decimal():
            return _cut(str(value), width)
        case _:
            return _cut(clean(repr(value)), width)


def json_value(value: object, *, full: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """Return `value` as JSON can hold it; without `full` only the first 64 bytes or numbers.

    Text, whole and finite numbers, lists and objects stay what they are. The others become objects:
    bytes `{"bytes": base64, "length"}`, arrays `{"dtype", "shape", "values"}` with the values flat
    in C order, images `{"image": mode, "size"}` (and, in full, `"pixels"` as base64), decimals
    `{"decimal": text}`, numbers that JSON lacks `{"float": "nan"}`, values not decoded `{"pickled":
    number of bytes}`, and whatever else unpickling gave `{"type", "repr"}`.

    Example:
        >>> json_value(b"abc"), json_value(float("inf"))
        ({'bytes': 'YWJj', 'length': 3}, {'float': 'inf'})
    """
    match value:
        case Pickled():
            return {"pickled": value.num_bytes}
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else {"float": str(float(value))}
        case bytes():
            kept = value if full else value[:_MAX_JSON_ITEMS]
            return {"bytes": base64.b64encode(kept).decode(), "length": len(value)}
        case np.ndarray():
            return _json_array(value, full=full)
        case np.generic():
            return json_value(cast("Any", value).item(), full=full)
        case Decimal():
            return {"decimal": str(value)}
        case list():
            return [json_value(item, full=full) for item in cast("list[object]", value)]
        case dict() if all(isinstance(key, str) for key in cast("dict[object, object]", value)):
            items = cast("dict[str, object]", value).items()
            return {key: json_value(item, full=full) for key, item in items}
        case _ if is_image(value):
            return _json_image(value, full=full)
        case _:
            return {"type": type(value).__qualname__, "repr": repr(value)}


def json_line(document: object) -> str:
    r"""Return `document` as one line of strict JSON, ASCII-escaped.

    Example:
        >>> print(json_line({"a": "é"}))
        {"a": "\u00e9"}
    """
    return json.dumps(document, allow_nan=False)


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: max(width - 1, 0)] + "…"


def _show_bytes(value: bytes, width: int | None) -> str:
    shown = len(value) if width is None else _MAX_HEX_BYTES
    more = "…" if len(value) > shown else ""
    plural = "" if len(value) == 1 else "s"
    return f"{len(value)} byte{plural}" + (f": {value[:shown].hex()}{more}" if value else "")


def _show_array(array: np.ndarray[Any, Any], width: int | None) -> str:
    shown = array.size if width is None else _MAX_SHOWN_NUMBERS
    numbers = ", ".join(str(number) for number in array.flat[:shown])
    more = ", …" if array.size > shown else ""
    return f"{array.dtype.name}{list(array.shape)}: {numbers}{more}"


def _json_array(array: np.ndarray[Any, Any], *, full: bool) -> dict[str, Any]:
    kept = array.ravel() if full else array.ravel()[:_MAX_JSON_ITEMS]
    values = [json_value(number) for number in kept.tolist()]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": values}


def is_image(value: object) -> bool:
    """Tell whether `value` is a Pillow image, without importing Pillow."""
    return any(cls.__module__ == "PIL.Image" for cls in type(value).__mro__)


def _show_image(image: Any) -> str:  # noqa: ANN401 - of an optional dependency
    kind = f"{image.format} " if getattr(image, "format", None) else ""
    return f"{kind}image {image.mode} {image.size[0]}x{image.size[1]}"


def _json_image(image: Any, *, full: bool) -> dict[str, Any]:  # noqa: ANN401 - see above
    document: dict[str, Any] = {"image": image.mode, "size": list(image.size)}
    if full:
        document["pixels"] = base64.b64encode(image.tobytes()).decode()
    return document
