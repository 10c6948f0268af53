"""What messages of Arrow's say of their batches, and messages of some columns alone. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from streaming_core._virtual._kinds._arrow_ipc_flat import Table, Writer, root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "BATCH",
    "DICTIONARY",
    "SCHEMA",
    "Column",
    "Head",
    "columns_of",
    "dictionary_of",
    "encapsulated",
    "head_of",
    "message_kind",
    "rebuilt",
    "schema_of_footer",
    "schema_of_message",
]

SCHEMA: Final = 1
DICTIONARY: Final = 2
BATCH: Final = 3
_NEWEST_V4: Final = 3
_V5: Final = 4
_COMPRESSION_KEY: Final = "ARROW:experimental_compression"
_CODECS: Final = {"lz4": 0, "lz4_frame": 0, "zstd": 1}
_ALIGNED: Final = 8
_DEPTH_MOST: Final = 64
_FIELDS_MOST: Final = 1 << 18
_ROWS_MOST: Final = 1 << 48

# Numbers of types, and how many buffers each has.
_UNION, _BINARY_VIEW, _UTF8_VIEW = 14, 23, 24
_BUFFERS: Final = {
    1: 0,  # null
    4: 3,  # binary
    5: 3,  # text
    12: 2,  # list
    13: 1,  # struct
    16: 1,  # list of fixed size
    17: 2,  # map
    19: 3,  # large binary
    20: 3,  # large text
    21: 2,  # large list
    22: 0,  # run-end encoded
    25: 3,  # list view
    26: 3,  # large list view
}
_TYPES: Final = 26


class Column(msgspec.Struct, frozen=True, array_like=True):
    """How many parts of a batch are one column's."""

    name: str
    nodes: int
    buffers: int
    unions: int
    """Fields that have one buffer more in files of old versions."""
    views: int
    """Fields that have any number of buffers more."""
    ids: tuple[int, ...]
    """Dictionaries that its fields refer to, in the order of the fields."""


class Head(msgspec.Struct, frozen=True):
    """What the message of a batch says of its body."""

    version: int
    rows: int
    nodes: bytes
    buffers: NDArray[np.int64]
    """Where each begins in the body, and its bytes."""
    codec: int
    """As numbered in messages; -1 for none."""
    variadic: tuple[int, ...]
    body: int

    def parts(
        self, columns: Sequence[Column], wanted: Sequence[int] | None
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]], tuple[int, ...]]:
        """Return the nodes and buffers of some columns, as firsts and lasts, and their counts.

        Raises `ValueError` if the batch has not as many as all columns take.
        """
        chosen = set(range(len(columns)) if wanted is None else wanted)
        nodes: list[tuple[int, int]] = []
        buffers: list[tuple[int, int]] = []
        counts: tuple[int, ...] = ()
        node = buffer = view = 0
        for number, column in enumerate(columns):
            of_views = self.variadic[view : view + column.views]
            next_node = node + column.nodes
            next_buffer = buffer + column.buffers + sum(of_views)
            if self.version <= _NEWEST_V4:
                next_buffer += column.unions
            if number in chosen:
                if column.unions and self.codec >= 0 and self.version <= _NEWEST_V4:
                    msg = f"column {column.name!r}: a compressed union of the first files"
                    raise ValueError(msg)
                nodes.append((node, next_node))
                buffers.append((buffer, next_buffer))
                counts += of_views
            node, buffer, view = next_node, next_buffer, view + column.views
        if (node, buffer, view) != (len(self.nodes) // 16, len(self.buffers), len(self.variadic)):
            msg = (
                f"a batch of {len(self.nodes) // 16} fields and {len(self.buffers)} buffers, where "
                f"the schema takes {node} and {buffer}"
            )
            raise ValueError(msg)
        return nodes, buffers, counts


def schema_of_message(data: bytes) -> tuple[Column, ...]:
    """Return the columns that the message of a schema describes."""
    header = root(data).table(2)
    if header is None:
        msg = "a schema's message without a schema"
        raise ValueError(msg)
    return columns_of(header)


def schema_of_footer(data: bytes) -> tuple[tuple[Column, ...], list[bytes], list[bytes]]:
    """Return the columns, and the blocks of dictionaries and batches, that a footer lists."""
    footer = root(data)
    schema = footer.table(1)
    if schema is None:
        msg = "a footer without a schema"
        raise ValueError(msg)
    raw = [footer.structs(slot, 24) for slot in (2, 3)]
    dictionaries, batches = ([one[at : at + 24] for at in range(0, len(one), 24)] for one in raw)
    return columns_of(schema), dictionaries, batches


def columns_of(schema: Table) -> tuple[Column, ...]:
    """Return the columns of a schema."""
    if schema.number(0, "<h"):
        msg = "its numbers are big-endian; write it again on a little-endian machine"
        raise ValueError(msg)
    left = [_FIELDS_MOST]
    return tuple(_column(field, left) for field in schema.tables(1))


def _column(field: Table, left: list[int]) -> Column:
    ids: list[int] = []
    counts = [0, 0, 0, 0]
    _count(field, counts, ids, left, 0)
    nodes, buffers, unions, views = counts
    return Column(field.text(0), nodes, buffers, unions, views, tuple(ids))


def _count(
    field: Table, counts: list[int] | None, ids: list[int], left: list[int], deep: int
) -> None:
    """Add what a field and those below it have; with None only the dictionaries count."""
    left[0] -= 1
    if left[0] < 0 or deep > _DEPTH_MOST:
        msg = f"more than {_FIELDS_MOST} fields, or fields nested deeper than {_DEPTH_MOST}"
        raise ValueError(msg)
    field.text(0)  # a broken name would be an error of whoever asks for it
    encoding = field.table(4)
    if encoding is not None:
        ids.append(encoding.number(0, "<q"))
    kind = field.number(2, "<B")
    if not 0 < kind <= _TYPES:
        msg = f"a field of type {kind}, which is not known"
        raise ValueError(msg)
    if counts is not None:
        counts[0] += 1
        if encoding is not None:
            counts[1] += 2
        elif kind == _UNION:
            union = field.table(3)
            dense = union is not None and union.number(0, "<h") == 1
            counts[1] += 2 if dense else 1
            counts[2] += 1
        else:
            counts[1] += _BUFFERS.get(kind, 2)
            counts[3] += kind in {_BINARY_VIEW, _UTF8_VIEW}
    for child in field.tables(5):
        _count(child, None if encoding is not None else counts, ids, left, deep + 1)


def message_kind(data: bytes) -> tuple[int, int]:
    """Return what a message is, and how many bytes of body follow it."""
    message = root(data)
    return message.number(1, "<B"), message.number(3, "<q")


def dictionary_of(data: bytes) -> tuple[int, bool]:
    """Return which dictionary a message is of, and whether it adds to one that came before."""
    header = root(data).table(2)
    if header is None:
        msg = "a dictionary's message without one"
        raise ValueError(msg)
    return header.number(0, "<q"), bool(header.number(2, "<B"))


def head_of(data: bytes) -> Head:
    """Return what the message of a batch, or of a dictionary, says of its body.

    Raises `ValueError` if it is broken, or names bytes that the body does not have.
    """
    message = root(data)
    header = message.table(2)
    if header is not None and message.number(1, "<B") == DICTIONARY:
        header = header.table(1)
    if header is None:
        msg = "the message of a batch without one"
        raise ValueError(msg)
    rows, body = header.number(0, "<q"), message.number(3, "<q")
    buffers = np.frombuffer(header.structs(2, 16), "<i8").reshape(-1, 2)
    outside = (buffers < 0).any() or (buffers > body - buffers[:, ::-1]).any()
    if not 0 <= rows <= _ROWS_MOST or body < 0 or outside:
        msg = f"a batch of {rows} rows whose buffers leave its body of {body} bytes"
        raise ValueError(msg)
    variadic = struct.unpack(f"<{len(raw) // 8}q", raw) if (raw := header.structs(4, 8)) else ()
    if any(not 0 <= count <= len(buffers) for count in variadic):
        msg = f"fields of {variadic[:8]} buffers where there are {len(buffers)}"
        raise ValueError(msg)
    compression = header.table(3)
    codec = _old_codec(message) if compression is None else compression.number(0, "<b")
    return Head(
        message.number(0, "<h"), rows, header.structs(1, 16), buffers, codec, variadic, body
    )


def _old_codec(message: Table) -> int:
    """Return the codec as the first files with one name it."""
    for pair in message.tables(4):
        if pair.text(0) == _COMPRESSION_KEY:
            found = _CODECS.get(pair.text(1).lower())
            if found is None:
                msg = f"buffers compressed with {pair.text(1)!r}"
                raise ValueError(msg)
            return found
    return -1


def rebuilt(
    head: Head,
    parts: tuple[list[tuple[int, int]], list[tuple[int, int]], tuple[int, ...]],
    read: Callable[[int, int], bytes],
    dictionary: tuple[int, bool] | None = None,
) -> list[bytes]:
    """Return the message of some columns of a batch, or of a dictionary, and its body.

    `read` returns bytes of the old body from a start to a stop.
    """
    spans, counts = parts[1], parts[2]
    nodes = b"".join(head.nodes[16 * a : 16 * b] for a, b in parts[0])
    body: list[bytes] = []
    places: list[tuple[int, int]] = []
    at = 0
    for first, last in spans:
        for start, size in head.buffers[first:last].tolist():
            places.append((at, size))
            if size:
                body += [read(start, start + size), bytes(-size % _ALIGNED)]
                at += size + -size % _ALIGNED
    out = Writer()
    message = out.table(("h", "B", "I", "q"))
    # Before version 5 a codec has no field of its own, and libraries look for it elsewhere.
    out.put(message[1], "h", head.version if head.codec < 0 else max(head.version, _V5))
    out.put(message[2], "B", BATCH if dictionary is None else DICTIONARY)
    out.put(message[4], "q", at)
    slot = message[3]
    if dictionary is not None:
        outer = out.table(("q", "I", "B"))
        out.refer(slot, outer[0])
        out.put(outer[1], "q", dictionary[0])
        out.put(outer[3], "B", dictionary[1])
        slot = outer[2]
    batch = out.table(("q", "I", "I", "I" if head.codec >= 0 else "", "I" if counts else ""))
    out.refer(slot, batch[0])
    out.put(batch[1], "q", head.rows)
    out.refer(batch[2], out.vector(nodes, 16))
    flat = np.array(places, "<i8").tobytes()
    out.refer(batch[3], out.vector(flat, 16))
    if head.codec >= 0:
        compression = out.table(("b", "b"))
        out.put(compression[1], "b", head.codec)
        out.refer(batch[4], compression[0])
    if counts:
        out.refer(batch[5], out.vector(struct.pack(f"<{len(counts)}q", *counts), 8))
    return [encapsulated(bytes(out.data)), *body]


def encapsulated(data: bytes) -> bytes:
    """Return a message as it stands in a stream."""
    padding = -len(data) % _ALIGNED
    return struct.pack("<Ii", 0xFFFF_FFFF, len(data) + padding) + data + bytes(padding)
