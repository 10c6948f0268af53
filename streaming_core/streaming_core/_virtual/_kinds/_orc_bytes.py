"""Protocol buffers, as far as ORC's messages take it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["every", "fields", "numbers", "put", "varint"]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it; `IndexError` beyond the end."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more follows
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:  # noqa: PLR2004 - no more bits are left
            msg = "a number of more than ten bytes"
            raise ValueError(msg)


def fields(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield number, whole number, bytes and the raw form of each field.

    Raises `ValueError` if the data are no message.
    """
    at = 0
    try:
        while at < len(data):
            begin = at
            key, at = varint(data, at)
            value, content = 0, b""
            if key & 7 == 0:
                value, at = varint(data, at)
            elif key & 7 == 2:  # noqa: PLR2004 - what has a length
                length, at = varint(data, at)
                content = data[at : at + length]
                at += length
            elif key & 7 in {1, 5}:
                width = 8 if key & 7 == 1 else 4
                content = data[at : at + width]
                at += width
            else:
                msg = f"a field of wire type {key & 7} at byte {begin}"
                raise ValueError(msg)
            if at > len(data):
                break
            yield key >> 3, value, content, data[begin:at]
    except IndexError as error:
        msg = "a message ends within a field"
        raise ValueError(msg) from error
    if at > len(data):
        msg = "a message ends within a field"
        raise ValueError(msg)


def numbers(data: bytes) -> dict[int, int]:
    """Return the whole numbers of a message, the last of each field."""
    return {number: value for number, value, _, _ in fields(data)}


def put(number: int, value: int | bytes) -> bytes:
    """Return a field."""
    if isinstance(value, int):
        return _put_varint(number << 3) + _put_varint(value)
    return _put_varint(number << 3 | 2) + _put_varint(len(value)) + value


def _put_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - what fits into seven bits
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def every(value: int, content: bytes) -> list[int]:
    """Return the numbers of a repeated field, which come one by one or many packed."""
    if not content:
        return [value]
    found: list[int] = []
    at = 0
    try:
        while at < len(content):
            one, at = varint(content, at)
            found.append(one)
    except IndexError as error:
        msg = "packed numbers end within one"
        raise ValueError(msg) from error
    return found
