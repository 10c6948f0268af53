"""Passing over Avro's values one by one, of which some are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._virtual._kinds._avro_schema import Node

__all__ = [
    "INT_BITS",
    "Read",
    "in_turn",
    "items_reader",
    "nullable_reader",
    "read_long",
    "skipper_of",
]

Read: TypeAlias = "Callable[[bytes, int], int]"
"""Takes a value from bytes at a place, and returns the place behind it.

What lies beyond the bytes is an `IndexError`, or found by the place that is returned."""

INT_BITS: Final = 63
"""A whole number's bits before its last byte, at most."""
_FREE_MOST: Final = 1 << 24
"""Items that take no bytes, so that their number is bounded by nothing else."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return a whole number, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more follows
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > INT_BITS:
            msg = f"a number of more than ten bytes before byte {at}"
            raise ValueError(msg)


def skipper_of(node: Node) -> Read:
    """Return what passes over a value of a type."""
    if node.kind in {"int", "long", "enum"}:
        return _skip_long
    if node.kind in {"bytes", "string"}:
        return _skip_bytes
    if node.kind == "nullable":
        return nullable_reader(node, skipper_of(node.item), _nothing, _nothing)
    if node.kind == "record":
        return in_turn([skipper_of(one) for _, one in node.fields])
    if node.kind in {"array", "map"}:
        item = skipper_of(node.item)
        return items_reader(
            node, item if node.kind == "array" else in_turn([_skip_bytes, item]), skips=True
        )[0]
    least = node.least

    def skip(data: bytes, at: int) -> int:
        del data
        return at + least

    return skip


def _nothing() -> None:
    """Keep nothing."""


def _skip_long(data: bytes, at: int) -> int:
    while data[at] >= 0x80:  # noqa: PLR2004 - the bit that says more follows
        at += 1
    return at + 1


def _skip_bytes(data: bytes, at: int) -> int:
    size, at = read_long(data, at)
    return at + _checked(size, data, at)


def _checked(size: int, data: bytes, at: int) -> int:
    if not 0 <= size <= len(data) - at:
        msg = f"{size} bytes at byte {at} of {len(data)}"
        raise ValueError(msg)
    return size


def in_turn(readers: list[Read]) -> Read:
    """Return what takes one value after the other."""

    def read(data: bytes, at: int) -> int:
        for one in readers:
            at = one(data, at)
        return at

    return read


def nullable_reader(
    node: Node, inner: Read, absent: Callable[[], None], present: Callable[[], None]
) -> Read:
    """Return what reads a union with null, and tells each time which of the two it was."""
    null, value = (0, 2) if node.null_first else (2, 0)

    def read(data: bytes, at: int) -> int:
        branch = data[at]
        if branch == value:
            present()
            return inner(data, at + 1)
        if branch == null:
            absent()
            return at + 1
        branch, behind = read_long(data, at)
        if branch not in {0, 1}:
            msg = f"branch {branch} of a union of two at byte {at}"
            raise ValueError(msg)
        if 2 * branch == null:
            absent()
            return behind
        present()
        return inner(data, behind)

    return read


def items_reader(node: Node, item: Read, *, skips: bool = False) -> tuple[Read, list[int]]:
    """Return what reads an array or a map, and where each ends among all items."""
    ends: list[int] = []
    total = 0
    least = node.item.least + (node.kind == "map")

    def read(data: bytes, at: int) -> int:
        nonlocal total
        while True:
            count, at = read_long(data, at)
            if not count:
                break
            if count < 0:
                count = -count
                size, at = read_long(data, at)
                _checked(size, data, at)
                if skips:
                    at += size
                    continue
            if count * least > len(data) - at or (not least and total + count > _FREE_MOST):
                msg = f"{count} items at byte {at} of {len(data)}"
                raise ValueError(msg)
            total += count
            for _ in range(count):
                at = item(data, at)
        if not skips:
            ends.append(total)
        return at

    return read, ends
