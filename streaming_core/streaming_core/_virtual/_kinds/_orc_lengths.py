"""Lengths of texts and lists in a stripe: checked, as libraries trust them. Pure.

A wrong length lets the decoder behind `pyarrow.orc` read and write where it must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._virtual._kinds._orc_bytes import varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["sum_of_lengths"]

_LENGTH_MOST: Final = (1 << 31) - 1
_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)

_WHOLE: Final = {8: ">u1", 16: ">u2", 32: ">u4", 64: ">u8"}
_SHORT, _DIRECT, _PATCHED = 0, 1, 2
_LEAST_RUN: Final = 3


def sum_of_lengths(data: bytes, *, newer: bool) -> int:
    """Return the sum of a stream of lengths, encoded in the older or the newer way.

    Raises `ValueError` if one is negative or beyond 31 bits, or the stream ends within a run.
    """
    total = at = 0
    run = _newer_run if newer else _older_run
    try:
        while at < len(data):
            added, at = run(data, at)
            total += added
    except IndexError as error:
        msg = "a stream of lengths ends within a run"
        raise ValueError(msg) from error
    return total


def _checked(least: int, most: int) -> None:
    if not 0 <= least <= most <= _LENGTH_MOST:
        msg = f"lengths from {least} to {most}"
        raise ValueError(msg)


def _series(base: int, delta: int, count: int) -> int:
    """Return the sum of numbers that grow by the same."""
    last = base + delta * (count - 1)
    _checked(min(base, last), max(base, last))
    return (base + last) * count // 2


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _older_run(data: bytes, at: int) -> tuple[int, int]:
    control = data[at]
    if control < 0x80:  # noqa: PLR2004 - a run, not single numbers
        delta = int.from_bytes(data[at + 1 : at + 2], "big", signed=True)
        base, at = varint(data, at + 2)
        return _series(base, delta, control + _LEAST_RUN), at
    total = 0
    at += 1
    for _ in range(0x100 - control):
        value, at = varint(data, at)
        _checked(value, value)
        total += value
    return total, at


def _newer_run(data: bytes, at: int) -> tuple[int, int]:
    head = data[at]
    kind = head >> 6
    if kind == _SHORT:
        width = (head >> 3 & 7) + 1
        value = int.from_bytes(_cut(data, at + 1, width), "big")
        return _series(value, 0, (head & 7) + _LEAST_RUN), at + 1 + width
    code = head >> 1 & 31
    count = ((head & 1) << 8 | data[at + 1]) + 1
    if kind == _DIRECT:
        values, at = _unpacked(data, at + 2, count, _WIDTHS[code])
        return _total(values), at
    if kind == _PATCHED:
        return _patched(data, at, count, _WIDTHS[code])
    base, at = varint(data, at + 2)
    delta, at = varint(data, at)
    delta = _signed(delta)
    if not code:
        return _series(base, delta, count), at
    steps, at = _unpacked(data, at, max(0, count - 2), _WIDTHS[code])
    if len(steps) and int(steps.max()) > _LENGTH_MOST:
        _checked(0, int(steps.max()))
    _checked(min(base, base + delta), max(base, base + delta))
    grown = np.cumsum(steps.astype(np.int64)) * (1 if delta >= 0 else -1) + base + delta
    if not len(grown):
        return base + delta * (count > 1), at
    _checked(int(grown.min()), int(grown.max()))
    return base + base + delta + int(grown.sum()), at


def _patched(data: bytes, at: int, count: int, width: int) -> tuple[int, int]:
    """Read a run of small numbers, of which a few have more bits that come behind."""
    third, fourth = data[at + 2], data[at + 3]
    base_bytes, patch_bits = (third >> 5) + 1, _WIDTHS[third & 31]
    gap_bits, patches = (fourth >> 5) + 1, fourth & 31
    base = int.from_bytes(_cut(data, at + 4, base_bytes), "big")
    sign = 1 << (8 * base_bytes - 1)
    base = -(base & ~sign) if base & sign else base
    values, at = _unpacked(data, at + 4 + base_bytes, count, width)
    together = next((w for w in _WIDTHS if w >= gap_bits + patch_bits), 65)
    entries, at = _unpacked(data, at, patches, together)
    numbers = values.tolist()
    where = 0
    for entry in entries.tolist():
        where += entry >> patch_bits
        patch = entry & ((1 << patch_bits) - 1)
        if where >= count:
            msg = f"a patch of number {where} in a run of {count}"
            raise ValueError(msg)
        numbers[where] |= patch << width
    _checked(min(numbers) + base, max(numbers) + base)
    return sum(numbers) + base * count, at


def _total(values: NDArray[np.uint64]) -> int:
    _checked(0, int(values.max()))
    return int(values.sum())


def _cut(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) < size:
        raise IndexError
    return found


def _unpacked(data: bytes, at: int, count: int, width: int) -> tuple[NDArray[np.uint64], int]:
    """Return numbers of `width` bits each, the highest bits first, and the place behind them."""
    if width > 64:  # noqa: PLR2004 - no number is wider
        msg = f"numbers of {width} bits"
        raise ValueError(msg)
    size = -(-count * width // 8)
    raw = np.frombuffer(_cut(data, at, size), np.uint8)
    if width in _WHOLE:
        return raw.view(_WHOLE[width]).astype(np.uint64), at + size
    bits = np.zeros((count, 64), np.uint8)
    bits[:, 64 - width :] = np.unpackbits(raw, count=count * width).reshape(count, width)
    return np.packbits(bits, axis=1).view(">u8").reshape(count).astype(np.uint64), at + size
