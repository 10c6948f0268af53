"""Puffin files: where the deletion vectors in one are, and what they say. Pure but for reading."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from streaming_core._extras import require
from streaming_core._virtual._model import Piece
from streaming_core._virtual._tables._roaring import roaring_positions
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._virtual._model import SourceReader

__all__ = ["deletion_vectors", "vector_positions"]

_MAGIC: Final = b"PFA1"
_END_BYTES: Final = 12
"""The footer's length, its flags, and the magic."""
_TAIL_BYTES: Final = 64 << 10
_MOST_FOOTER_BYTES: Final = 64 << 20
_COMPRESSED: Final = 1
_VECTOR: Final = "deletion-vector-v1"
_VECTOR_MAGIC: Final = 1681511377
_FRAME_BYTES: Final = 12
"""Length, magic and checksum around a vector."""


class _Blob(msgspec.Struct, frozen=True):
    type: str
    offset: int
    length: int
    codec: str | None = msgspec.field(default=None, name="compression-codec")
    properties: dict[str, str] = {}


class _Footer(msgspec.Struct, frozen=True):
    blobs: list[_Blob]


_FOOTER: Final = msgspec.json.Decoder(_Footer)


def deletion_vectors(reader: SourceReader, rows: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return the deleted positions that a Puffin file has for the data files in `rows`.

    `rows` has the number of rows of each; vectors of other files are not read.

    Raises:
        SourceFormatError: The file is broken; says where.
        SourceChangedError: It is gone.
        StoreError: The store failed.
    """
    where = reader.where
    blobs: list[tuple[str, _Blob]] = []
    for blob in _footer(reader).blobs:
        path = blob.properties.get("referenced-data-file", "")
        if blob.type != _VECTOR or path not in rows:
            continue
        if blob.codec is not None:
            msg = f"{where}: a deletion vector compressed as {blob.codec!r}; none may be"
            raise SourceFormatError(msg)
        if blob.offset < 0 or blob.length < _FRAME_BYTES:
            msg = f"{where}: a blob of {blob.length} bytes at {blob.offset}"
            raise SourceFormatError(msg)
        if blob.offset + blob.length > reader.file.size:
            msg = f"{where}: a blob that ends behind the file's {reader.file.size} bytes"
            raise SourceFormatError(msg)
        blobs.append((path, blob))
    pieces = reader.ranges([(blob.offset, blob.offset + blob.length) for _, blob in blobs])
    return {
        path: vector_positions(piece.data, rows[path], where)
        for (path, _), piece in zip(blobs, pieces, strict=True)
    }


def vector_positions(blob: bytes, rows: int, where: str) -> NDArray[np.int64]:
    """Return the positions in a blob `deletion-vector-v1`; `SourceFormatError` if it is broken."""
    try:
        length, magic = struct.unpack(">I", blob[:4])[0], struct.unpack("<I", blob[4:8])[0]
        (checksum,) = struct.unpack(">I", blob[-4:])
    except struct.error as error:
        msg = f"{where}: a deletion vector of {len(blob)} bytes"
        raise SourceFormatError(msg) from error
    body = memoryview(blob)[4:-4]
    if length != len(body) or magic != _VECTOR_MAGIC or zlib.crc32(body) != checksum:
        msg = (
            f"{where}: a deletion vector is broken: {length} bytes said, {len(body)} there, it "
            f"begins with {magic}, its checksum {'fits' if zlib.crc32(body) == checksum else 'not'}"
        )
        raise SourceFormatError(msg)
    return roaring_positions(body[4:], rows, where)


def _footer(reader: SourceReader) -> _Footer:
    where = reader.where
    tail = reader.tail(_TAIL_BYTES)
    if len(tail.data) < _END_BYTES + 2 * len(_MAGIC) or tail.data[-4:] != _MAGIC:
        msg = f"{where}: no Puffin file: it ends with {tail.data[-4:]!r} where {_MAGIC!r} belongs"
        raise SourceFormatError(msg)
    size, flags = struct.unpack("<iI", tail.data[-_END_BYTES:-4])
    begin = reader.file.size - _END_BYTES - size
    if not 0 <= size <= _MOST_FOOTER_BYTES or begin < 2 * len(_MAGIC) or flags & ~_COMPRESSED:
        msg = f"{where}: a footer of {size} bytes with the flags {flags} cannot be"
        raise SourceFormatError(msg)
    if begin - len(_MAGIC) < tail.start:
        missing = reader.ranges([(begin - len(_MAGIC), tail.start)])[0]
        tail = Piece(missing.start, missing.data + tail.data)
    at = begin - tail.start
    payload = tail.data[at : at + size]
    if tail.data[at - len(_MAGIC) : at] != _MAGIC:
        msg = f"{where}: no {_MAGIC!r} before the footer at byte {begin}"
        raise SourceFormatError(msg)
    try:
        return _FOOTER.decode(_expanded(payload, where) if flags else payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{where}: the footer is broken: {error!s:.200}"
        raise SourceFormatError(msg) from error


def _expanded(payload: bytes, where: str) -> bytes:
    """Return an LZ4 frame's content, if that is not too much."""
    arrow = require("pyarrow", extra="parquet", purpose="reading a table")
    try:
        with arrow.CompressedInputStream(arrow.BufferReader(payload), "lz4") as stream:
            found: bytes = stream.read(_MOST_FOOTER_BYTES + 1)
    except (arrow.ArrowException, OSError) as error:
        msg = f"{where}: the compressed footer is broken: {error!s:.200}"
        raise SourceFormatError(msg) from error
    if len(found) > _MOST_FOOTER_BYTES:
        msg = f"{where}: the compressed footer has more than {_MOST_FOOTER_BYTES} bytes"
        raise SourceFormatError(msg)
    return found
