"""From Avro's rows to columns: each type has a reader that keeps values, or skips them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._kinds._avro_read import (
    INT_BITS,
    Read,
    in_turn,
    items_reader,
    nullable_reader,
    read_long,
)
from streaming_core._virtual._kinds._avro_schema import Node, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Column", "column_of"]


class Column(NamedTuple):
    """Collects the values of one type. Closures, as they are called for every value."""

    read: Read
    """Takes a value."""
    absent: Callable[[], None]
    """Takes that there is none; what stands for it counts for nothing."""
    finish: Callable[[bytearray | None], Any]
    """Returns the `pyarrow.Array`, given which values are there (all if None)."""


def column_of(node: Node) -> Column:
    """Return what collects the values of a type."""
    return _MAKERS[node.kind](node)


# --- columns --------------------------------------------------------------------------------------


def _bits(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
    if valid is None or 0 not in valid:
        return None
    arrow = require("pyarrow", extra="parquet", purpose="Avro")
    return arrow.py_buffer(np.packbits(np.frombuffer(valid, np.uint8), bitorder="little"))


def _array(kind: Any, count: int, buffers: list[Any], children: list[Any] | None = None) -> Any:  # noqa: ANN401 - of an optional dependency
    arrow = require("pyarrow", extra="parquet", purpose="Avro")
    wrapped = [
        one if one is None or isinstance(one, arrow.Buffer) else arrow.py_buffer(one)
        for one in buffers
    ]
    return arrow.Array.from_buffers(kind, count, wrapped, children=children)


def _null(node: Node) -> Column:
    count = 0

    def absent() -> None:
        nonlocal count
        count += 1

    def read(data: bytes, at: int) -> int:
        del data
        absent()
        return at

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        del valid
        return _array(arrow_type(node), count, [None])

    return Column(read, absent, finish)


def _boolean(node: Node) -> Column:
    values = bytearray()

    def read(data: bytes, at: int) -> int:
        value = data[at]
        if value > 1:
            msg = f"a boolean of {value} at byte {at}"
            raise ValueError(msg)
        values.append(value)
        return at + 1

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        bits = np.packbits(np.frombuffer(values, np.uint8), bitorder="little")
        return _array(arrow_type(node), len(values), [_bits(valid), bits])

    return Column(read, lambda: values.append(0), finish)


def _integer(node: Node) -> Column:
    values: list[int] = []
    append = values.append

    def read(data: bytes, at: int) -> int:
        byte = data[at]
        at += 1
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more follows
            append((byte >> 1) ^ -(byte & 1))
            return at
        value, shift = byte & 0x7F, 7
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - see above
                append((value >> 1) ^ -(value & 1))
                return at
            shift += 7
            if shift > INT_BITS:
                msg = f"a number of more than ten bytes before byte {at}"
                raise ValueError(msg)

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        numbers = np.array(values, np.int32 if node.kind == "int" else np.int64)
        return _array(arrow_type(node), len(values), [_bits(valid), numbers])

    return Column(read, lambda: append(0), finish)


def _enum(node: Node) -> Column:
    arrow = require("pyarrow", extra="parquet", purpose="Avro")
    values: list[int] = []
    most = len(node.symbols)

    def read(data: bytes, at: int) -> int:
        value, at = read_long(data, at)
        if not 0 <= value < most:
            msg = f"value {value} of an enum of {most} before byte {at}"
            raise ValueError(msg)
        values.append(value)
        return at

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        numbers = _array(arrow.int32(), len(values), [_bits(valid), np.array(values, np.int32)])
        return arrow.array(node.symbols, arrow_type(node)).take(numbers)

    return Column(read, lambda: values.append(0), finish)


def _fixed(node: Node) -> Column:
    """Collect values of a fixed number of bytes, floating-point ones among them."""
    values: list[bytes] = []
    append = values.append
    size = node.least
    blank = bytes(size)

    def read(data: bytes, at: int) -> int:
        append(data[at : at + size])
        return at + size

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        if node.logical == "decimal":
            return _decimals(node, values, valid)
        return _array(arrow_type(node), len(values), [_bits(valid), b"".join(values)])

    return Column(read, lambda: append(blank), finish)


def _varying(node: Node) -> Column:
    """Collect texts and bytes."""
    values: list[bytes] = []
    append = values.append

    def read(data: bytes, at: int) -> int:
        size = data[at]
        at += 1
        if size >= 0x80:  # noqa: PLR2004 - the bit that says more follows
            size, at = read_long(data, at - 1)
        elif size & 1:
            size = -1
        else:
            size >>= 1
        end = at + size
        if size < 0 or end > len(data):
            msg = f"{size} bytes at byte {at} of {len(data)}"
            raise ValueError(msg)
        append(data[at:end])
        return end

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        if node.logical == "decimal":
            return _decimals(node, values, valid)
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
        return _array(arrow_type(node), len(values), [_bits(valid), offsets, b"".join(values)])

    return Column(read, lambda: append(b""), finish)


def _decimals(node: Node, values: list[bytes], valid: bytearray | None) -> Any:  # noqa: ANN401 - see above
    kind = arrow_type(node)
    width = kind.byte_width
    data = b"".join(
        int.from_bytes(value, "big", signed=True).to_bytes(width, "little", signed=True)
        for value in values
    )
    return _array(kind, len(values), [_bits(valid), data])


def _nullable(node: Node) -> Column:
    inner = column_of(node.item)
    valid = bytearray()

    def absent() -> None:
        valid.append(0)
        inner.absent()

    read = nullable_reader(node, inner.read, absent, lambda: valid.append(1))

    def finish(outer: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        del outer  # no union is within another
        return inner.finish(valid)

    return Column(read, absent, finish)


def _record(node: Node) -> Column:
    columns = [column_of(one) for _, one in node.fields]
    count = 0
    each = in_turn([column.read for column in columns])

    def read(data: bytes, at: int) -> int:
        nonlocal count
        count += 1
        return each(data, at)

    def absent() -> None:
        nonlocal count
        count += 1
        for column in columns:
            column.absent()

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        children = [column.finish(None) for column in columns]
        return _array(arrow_type(node), count, [_bits(valid)], children)

    return Column(read, absent, finish)


def _items(node: Node) -> Column:
    """Collect arrays, or maps."""
    arrow = require("pyarrow", extra="parquet", purpose="Avro")
    item = column_of(node.item)
    each = item.read
    keys = _varying(_KEYS) if node.kind == "map" else None
    if keys is not None:
        each = in_turn([keys.read, item.read])
    read, ends = items_reader(node, each)

    def finish(valid: bytearray | None) -> Any:  # noqa: ANN401 - of an optional dependency
        kind = arrow_type(node)
        offsets = np.array([0, *ends], np.int64 if keys is None else np.int32)
        child = item.finish(None)
        if keys is not None:
            pair = arrow.struct([kind.key_field, kind.item_field])
            names = keys.finish(None).cast(arrow.string())
            child = _array(pair, len(child), [None], [names, child])
        return _array(kind, len(ends), [_bits(valid), offsets], [child])

    return Column(read, lambda: ends.append(ends[-1] if ends else 0), finish)


_KEYS: Final = Node("string", 1)
_MAKERS: Final[dict[str, Callable[[Node], Column]]] = {
    "array": _items,
    "boolean": _boolean,
    "bytes": _varying,
    "double": _fixed,
    "enum": _enum,
    "fixed": _fixed,
    "float": _fixed,
    "int": _integer,
    "long": _integer,
    "map": _items,
    "null": _null,
    "nullable": _nullable,
    "record": _record,
    "string": _varying,
}
