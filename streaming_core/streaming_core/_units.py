"""Sizes and counts as people write them."""

from __future__ import annotations

import re

from streaming_core.errors import SchemaError

__all__ = ["format_bytes", "format_count", "parse_bytes", "parse_count"]

_POWERS = {"": 0, "b": 0, "kb": 1, "mb": 2, "gb": 3, "tb": 4, "pb": 5, "eb": 6}
_SIZE = re.compile(
    r"\s*(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII
)


def parse_bytes(value: int | str) -> int:
    """Return the number of bytes that `value` names; suffixes are powers of 1024, any case.

    Example:
        >>> parse_bytes("64mb"), parse_bytes("1.5kb"), parse_bytes(100)
        (67108864, 1536, 100)
    """
    if isinstance(value, int):
        return int(value)
    match = _SIZE.fullmatch(value)
    power = _POWERS.get(match[2].lower().replace("ib", "b")) if match else None
    if match is None or power is None:
        msg = f"not a size: {value!r}; give an integer or a text such as '64mb' or '1.5gb'"
        raise SchemaError(msg)
    if match[2].lower() in {"", "b"} and "." in match[1]:
        msg = f"not a size: {value!r}; a number of bytes must be whole"
        raise SchemaError(msg)
    return int(float(match[1]) * 1024**power) if "." in match[1] else int(match[1]) * 1024**power


def parse_count(value: str) -> int:
    """Return the number that `value` names; suffixes k, m, b and t are powers of 1000, any case.

    Example:
        >>> parse_count("100k"), parse_count("1.5m"), parse_count("7")
        (100000, 1500000, 7)
    """
    match = _SIZE.fullmatch(value)
    power = {"": 0, "k": 1, "m": 2, "b": 3, "t": 4}.get(match[2].lower()) if match else None
    if match is None or power is None or (power == 0 and "." in match[1]):
        msg = f"not a count: {value!r}; give an integer or a text such as '100k' or '1.5m'"
        raise SchemaError(msg)
    unit: int = 1000**power
    return round(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def format_bytes(count: float) -> str:
    """Return `count` bytes for people, in powers of 1024.

    Example:
        >>> format_bytes(67108864), format_bytes(100)
        ('64.0 MiB', '100 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024:  # noqa: PLR2004 - the base of the units
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} PiB"


def format_count(count: float) -> str:
    """Return a count for people, in powers of 1000.

    Example:
        >>> format_count(1234567), format_count(12)
        ('1.23M', '12')
    """
    for unit in ("", "k", "M", "G"):
        if abs(count) < 1000:  # noqa: PLR2004 - the base of the units
            return f"{count:.0f}" if unit == "" else f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g}T"
