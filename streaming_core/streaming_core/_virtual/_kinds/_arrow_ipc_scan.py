"""Finding the batches of Arrow files and streams without reading their bodies."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from streaming_core._extras import require
from streaming_core._virtual._kinds._ahead import Ahead
from streaming_core._virtual._kinds._arrow_ipc_messages import (
    BATCH,
    DICTIONARY,
    SCHEMA,
    Column,
    dictionary_of,
    encapsulated,
    head_of,
    message_kind,
    schema_of_footer,
    schema_of_message,
)
from streaming_core._virtual._kinds._sparse_file import SparseFile
from streaming_core._virtual._model import Piece

if TYPE_CHECKING:
    from streaming_core._virtual._model import SourceReader

__all__ = ["Block", "Layout", "layout_of"]

_FILE_MAGIC: Final = b"ARROW1"
_OLD_MAGIC: Final = b"FEA1"
_FILE_END: Final = 10
_TAIL_BYTES: Final = 64 << 10
_HEAD_LEAST: Final = 8
_HEAD_MOST: Final = 64 << 20


class Block(msgspec.Struct, frozen=True, array_like=True):
    """The message of a batch, or of a dictionary, and where its body is."""

    head: bytes
    start: int
    """The body's first byte in the file."""
    before: int = 0
    """How many batches came before a dictionary in a stream; 0 in a file."""


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """Where everything in a file is."""

    schema: bytes
    """A message, its dictionaries numbered anew."""
    columns: tuple[Column, ...]
    batches: tuple[Block, ...]
    dictionaries: tuple[Block, ...]


def layout_of(reader: SourceReader) -> Layout:
    """Return where the batches of a file lie, whether it is an Arrow file or a stream.

    Raises `ValueError` if it is neither, or broken.
    """
    tail = reader.tail(_TAIL_BYTES)
    if tail.data.endswith(_FILE_MAGIC) and reader.file.size > _FILE_END + len(_FILE_MAGIC):
        return _file_layout(reader, tail)
    ahead = Ahead(reader)
    front = ahead.read(0, len(_FILE_MAGIC))
    if front == _FILE_MAGIC:
        msg = f"an Arrow file that ends with {tail.data[-6:]!r} where {_FILE_MAGIC!r} belongs"
        raise ValueError(msg)
    if front.startswith(_OLD_MAGIC):
        msg = "a Feather file of version 1, which is not read; write it again as version 2"
        raise ValueError(msg)
    return _stream_layout(reader, ahead)


# --- files ----------------------------------------------------------------------------------------


def _file_layout(reader: SourceReader, tail: Piece) -> Layout:
    arrow = require("pyarrow", extra="parquet", purpose="Arrow files")
    ipc = require("pyarrow.ipc", extra="parquet", purpose="Arrow files")
    size = reader.file.size
    (length,) = struct.unpack("<i", tail.data[-_FILE_END : -len(_FILE_MAGIC)])
    begin = size - _FILE_END - length
    if not len(_FILE_MAGIC) <= begin < size - _FILE_END:
        msg = f"a footer of {length} bytes in a file of {size}"
        raise ValueError(msg)
    if begin < tail.start:
        tail = Piece(begin, reader.ranges([(begin, tail.start)])[0].data + tail.data)
    footer = tail.data[begin - tail.start : -_FILE_END]
    columns, dictionaries, batches = schema_of_footer(footer)
    opened = ipc.open_file(arrow.PythonFile(SparseFile([tail], size), mode="r"))
    places = [_place(raw, begin) for raw in (*dictionaries, *batches)]
    # Blocks that claim one another's bytes would be read again and again.
    if sum(head + body for _, head, body in places) > size:
        msg = f"blocks of more bytes than the {size} of the file"
        raise ValueError(msg)
    missing = [(at, at + head) for at, head, _ in places if at < tail.start]
    sparse = SparseFile([*_apart(reader, missing), tail], size)
    blocks: list[Block] = []
    for at, head, body in places:
        sparse.seek(at)
        data = _without_prefix(sparse.read(head))
        wanted = DICTIONARY if len(blocks) < len(dictionaries) else BATCH
        kind, claimed = message_kind(data)
        if kind != wanted or claimed > body:
            msg = (
                f"at byte {at} a message of kind {kind}, {wanted} was expected; its body {claimed}"
            )
            raise ValueError(msg)
        head_of(data)
        blocks.append(Block(data, at + head))
    split = len(dictionaries)
    return Layout(
        opened.schema.serialize().to_pybytes(),
        columns,
        tuple(blocks[split:]),
        _once(blocks[:split]),
    )


def _apart(reader: SourceReader, spans: list[tuple[int, int]]) -> list[Piece]:
    """Read spans, which pieces may stand side by side but never one in the other."""
    ordered = sorted(set(spans))
    for (_, stop), (start, _) in itertools.pairwise(ordered):
        if start < stop:
            msg = f"blocks that overlap at byte {start}"
            raise ValueError(msg)
    return reader.ranges(ordered)


def _place(raw: bytes, before: int) -> tuple[int, int, int]:
    """Return where a block begins, and the bytes of its message and its body."""
    at, head, body = struct.unpack("<qi4xq", raw)
    good = at >= 0 and _HEAD_LEAST <= head <= _HEAD_MOST and body >= 0
    if not good or at + head + body > before:
        msg = f"a block of {head} and {body} bytes at {at}, where blocks end before {before}"
        raise ValueError(msg)
    return at, head, body


def _without_prefix(data: bytes) -> bytes:
    """Return a message without the length before it, which has four bytes in the first files."""
    skip = 8 if data.startswith(b"\xff\xff\xff\xff") else 4
    (length,) = struct.unpack("<i", data[skip - 4 : skip])
    if not 0 < length <= len(data) - skip:
        msg = f"a message of {length} bytes where {len(data) - skip} belong"
        raise ValueError(msg)
    return data[skip : skip + length]


def _once(dictionaries: list[Block]) -> tuple[Block, ...]:
    """Return the dictionaries of a file, where none may take the place of another."""
    seen: set[int] = set()
    for block in dictionaries:
        number, adds = dictionary_of(block.head)
        if number in seen and not adds:
            msg = f"dictionary {number} comes twice, which a file cannot have"
            raise ValueError(msg)
        seen.add(number)
    return tuple(dictionaries)


# --- streams --------------------------------------------------------------------------------------


def _stream_layout(reader: SourceReader, ahead: Ahead) -> Layout:
    size = reader.file.size
    batches: list[Block] = []
    dictionaries: list[Block] = []
    head, at = _next_message(ahead, 0, size)
    if head is None or message_kind(head)[0] != SCHEMA:
        msg = "it does not begin with a schema"
        raise ValueError(msg)
    columns = schema_of_message(head)
    schema = _serialized(head)
    while at < size:
        head, at = _next_message(ahead, at, size)
        if head is None:
            break
        kind, body = message_kind(head)
        if kind not in {BATCH, DICTIONARY} or not 0 <= body <= size - at:
            msg = f"a message of kind {kind} and {body} bytes before byte {at} of {size}"
            raise ValueError(msg)
        head_of(head)
        if kind == BATCH:
            batches.append(Block(head, at))
        else:
            dictionaries.append(Block(head, at, len(batches)))
        at += body
    if at < size:
        msg = f"its end is marked at byte {at}, and {size - at} bytes follow"
        raise ValueError(msg)
    return Layout(schema, columns, tuple(batches), tuple(dictionaries))


def _next_message(ahead: Ahead, at: int, size: int) -> tuple[bytes | None, int]:
    """Return a message, None where the end is marked, and where its body begins."""
    prefix = ahead.read(at, 8)
    width = 4
    if prefix.startswith(b"\xff\xff\xff\xff"):
        prefix, width = prefix[4:], 8
    if len(prefix) < 4:  # noqa: PLR2004 - a length
        msg = f"it ends within the length of a message, at byte {size}"
        raise ValueError(msg)
    (length,) = struct.unpack("<i", prefix[:4])
    if not length:
        return None, at + width
    if not 0 < length <= min(_HEAD_MOST, size - at - width):
        msg = f"a message of {length} bytes at byte {at} of {size}"
        raise ValueError(msg)
    return ahead.read(at + width, length), at + width + length


def _serialized(message: bytes) -> bytes:
    arrow = require("pyarrow", extra="parquet", purpose="Arrow files")
    ipc = require("pyarrow.ipc", extra="parquet", purpose="Arrow files")
    schema = ipc.read_schema(arrow.py_buffer(encapsulated(message)))
    found: bytes = schema.serialize().to_pybytes()
    return found
