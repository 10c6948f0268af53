"""Avro object container files: a unit is some blocks that follow each other."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streaming_core._extras import require
from streaming_core._virtual._kinds._ahead import Ahead
from streaming_core._virtual._kinds._avro_columns import Column, column_of
from streaming_core._virtual._kinds._avro_read import read_long, skipper_of
from streaming_core._virtual._kinds._avro_schema import arrow_field, parse_schema
from streaming_core._virtual._kinds._bounded import expand
from streaming_core._virtual._kinds._packing import without_columns
from streaming_core._virtual._model import Kind, Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streaming_core._virtual._kinds._avro_schema import Node

__all__ = ["Avro"]

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_HEADER_FIRST: Final = 16 << 10
_HEADER_MOST: Final = 64 << 20
_BLOCK_HEAD: Final = 20
"""Bytes of two whole numbers at most."""
_UNIT_BYTES: Final = 4 << 20
"""Blocks are taken together up to so many decoded bytes."""
_CODECS: Final = {
    "null": "",
    "deflate": "deflate",
    "snappy": "snappy",
    "zstandard": "zstd",
    "bzip2": "bzip2",
    "xz": "xz",
}
_GROWS: Final = 4
"""By about how much compressed blocks grow."""
_SMALL: Final = 256 << 20
_RATIO: Final = 256
"""A unit's blocks may grow to `_SMALL`, or by so much."""
_FREE_ROWS: Final = 1 << 24
"""Rows that take no bytes, so that their number is bounded by nothing else."""


class _Meta(msgspec.Struct, frozen=True, array_like=True):
    schema: bytes
    codec: str
    sync: bytes


_META: Final = msgspec.msgpack.Decoder(_Meta)


class Avro(Kind):
    """Avro files; rows are written one after the other, so whole blocks are fetched."""

    name = "avro"
    suffixes = (".avro",)

    def scan(self, reader: SourceReader) -> Scan:
        """Read the header, and hop from block to block."""
        arrow = require("pyarrow", extra="parquet", purpose="Avro")
        ahead = Ahead(reader)
        try:
            meta, begin = _header(ahead)
            columns = parse_schema(meta.schema)
            least = sum(node.least for _, node in columns)
            units = tuple(_units(ahead, reader.file.size, meta, begin, least))
            schema = arrow.schema([arrow_field(name, node) for name, node in columns])
        except ValueError as error:
            msg = f"{reader.where}: no Avro file that can be read: {error!s:.300}"
            raise SourceFormatError(msg) from error
        return Scan(schema, units, msgspec.msgpack.encode(meta))

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return the unit's blocks, whatever the columns, if the file has one of them."""
        _, nodes = _known(meta, file.key)
        return [(unit.number, unit.part)] if _chosen(nodes, columns) else []

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Read all rows, and keep the wanted columns of them."""
        arrow = require("pyarrow", extra="parquet", purpose="Avro")
        known, nodes = _known(meta, file.key)
        chosen = _chosen(nodes, columns)
        if not chosen:
            return without_columns(unit.samples)
        kept = {name: column_of(node) for name, node in chosen}
        try:
            _read(known, pieces[0], nodes, kept, unit.samples)
            table = arrow.table(
                [column.finish(None) for column in kept.values()],
                schema=arrow.schema([arrow_field(name, node) for name, node in chosen]),
            )
            table.validate(full=True)
        except (arrow.ArrowException, ValueError, IndexError, OverflowError) as error:
            msg = f"{file.key}, bytes {unit.number} to {unit.part}: {error!s:.300}"
            raise SourceFormatError(msg) from error
        return table


def _chosen(
    nodes: Sequence[tuple[str, Node]], columns: Sequence[str] | None
) -> list[tuple[str, Node]]:
    return [one for one in nodes if columns is None or one[0] in columns]


# --- blocks ---------------------------------------------------------------------------------------


def _header(ahead: Ahead) -> tuple[_Meta, int]:
    """Return what the header says, and where the first block begins."""
    size = _HEADER_FIRST
    while True:
        data = ahead.read(0, size)
        if data[: len(_MAGIC)] != _MAGIC:
            msg = f"it begins with {data[: len(_MAGIC)]!r} where {_MAGIC!r} was expected"
            raise ValueError(msg)
        try:
            return _parsed_header(data)
        except IndexError as error:
            if len(data) < size or size >= _HEADER_MOST:
                msg = f"its header does not end within {len(data)} bytes"
                raise ValueError(msg) from error
            size *= 4


def _parsed_header(data: bytes) -> tuple[_Meta, int]:
    """Raise `IndexError` where the header is longer than the data."""
    pairs: dict[bytes, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = read_long(data, at)
        if not count:
            break
        if count < 0:
            count = -count
            _, at = read_long(data, at)
        for _ in range(count):
            key, at = _bytes(data, at)
            pairs[key], at = _bytes(data, at)
    sync = data[at : at + _SYNC]
    if len(sync) < _SYNC:
        raise IndexError
    codec = pairs.get(b"avro.codec", b"null").decode()
    if codec not in _CODECS:
        msg = f"its codec is {codec!r:.80}; those that are read are {', '.join(_CODECS)}"
        raise ValueError(msg)
    if b"avro.schema" not in pairs:
        msg = "its header has no schema"
        raise ValueError(msg)
    return _Meta(pairs[b"avro.schema"], codec, sync), at + _SYNC


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    if size < 0:
        msg = f"a text of {size} bytes at byte {at}"
        raise ValueError(msg)
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _units(ahead: Ahead, size: int, meta: _Meta, begin: int, least: int) -> Iterator[Unit]:
    """Yield the units of a file, whose first block begins at `begin`."""
    grows = 1 if meta.codec == "null" else _GROWS
    first, rows, nbytes = begin, 0, 0
    at = begin
    head = ahead.read(at, _BLOCK_HEAD)
    while at < size:
        count, length, width = _block_head(head, at)
        end = at + width + length + _SYNC
        if end > size:
            msg = f"it ends within the block at byte {at}"
            raise ValueError(msg)
        after = ahead.read(end - _SYNC, _SYNC + _BLOCK_HEAD)
        _check_block(meta, count, length, least, after[:_SYNC], at)
        if rows and nbytes + length * grows > _UNIT_BYTES:
            yield Unit(rows, nbytes, first, at)
            first, rows, nbytes = at, 0, 0
        rows, nbytes = rows + count, nbytes + length * grows
        at, head = end, after[_SYNC:]
    if rows:
        yield Unit(rows, nbytes, first, at)


def _block_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return a block's rows, bytes, and how many bytes say so."""
    try:
        count, width = read_long(data, 0)
        length, width = read_long(data, width)
    except IndexError as error:
        msg = f"it ends within the head of the block at byte {at}"
        raise ValueError(msg) from error
    if count < 0 or length < 0:
        msg = f"a block of {count} rows and {length} bytes at byte {at}"
        raise ValueError(msg)
    return count, length, width


def _check_block(meta: _Meta, count: int, length: int, least: int, sync: bytes, at: int) -> None:
    if sync != meta.sync:
        msg = f"the block at byte {at} does not end with the file's mark"
        raise ValueError(msg)
    grown = length if meta.codec == "null" else max(_SMALL, length * _RATIO)
    if count * least > grown or (not least and count > _FREE_ROWS):
        msg = f"the block at byte {at} claims {count} rows in {length} bytes"
        raise ValueError(msg)


def _read(
    meta: _Meta,
    piece: Piece,
    nodes: Sequence[tuple[str, Node]],
    kept: dict[str, Column],
    wanted: int,
) -> None:
    """Let columns take the rows of all blocks; `ValueError` if they are not as many as wanted."""
    readers = [kept[name].read if name in kept else skipper_of(node) for name, node in nodes]
    least = sum(node.least for _, node in nodes)
    data = bytes(piece.data)
    left = max(_SMALL, _RATIO * len(data))
    at = rows = 0
    while at < len(data):
        where = piece.start + at
        count, length, width = _block_head(data[at : at + _BLOCK_HEAD], where)
        first, last = at + width, at + width + length
        _check_block(meta, count, length, least, data[last : last + _SYNC], where)
        block = _expanded(meta.codec, data[first:last], left)
        left -= len(block)
        if count * least > len(block):
            msg = f"the block at byte {where} claims {count} rows in {len(block)} bytes"
            raise ValueError(msg)
        _read_rows(block, count, readers, where)
        rows += count
        at = last + _SYNC
    if rows != wanted:
        msg = f"{rows} rows where {wanted} were counted"
        raise ValueError(msg)


def _read_rows(
    block: bytes, count: int, readers: Sequence[Callable[[bytes, int], int]], where: int
) -> None:
    at = 0
    try:
        for _ in range(count):
            for read in readers:
                at = read(block, at)
    except IndexError:
        at = len(block) + 1
    if at != len(block):
        msg = f"the rows of the block at byte {where} do not end where it ends"
        raise ValueError(msg)


def _expanded(codec: str, data: bytes, most: int) -> bytes:
    if codec == "null":
        return data
    if codec != "snappy":
        return expand(_CODECS[codec], data, most)
    found = expand(_CODECS[codec], data[:-4], most)
    if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
        msg = "the checksum of a snappy block is wrong"
        raise ValueError(msg)
    return found


@lru_cache(maxsize=32)
def _known(data: bytes, where: str) -> tuple[_Meta, tuple[tuple[str, Node], ...]]:
    try:
        meta = _META.decode(data)
        return meta, parse_schema(meta.schema)
    except (msgspec.DecodeError, ValueError) as error:
        msg = f"{where}: its index is broken: {error}; index it again"
        raise SourceFormatError(msg) from error
