"""Shards made by hand, without the writer, and the comparison of what comes back."""

from __future__ import annotations

import struct
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from streaming_core._codec import digests, parse_compression
from streaming_core._format import open_shard
from streaming_core._format._mds import MDSColumns, MDSShard, config_bytes, shard_header
from streaming_core._index import FileInfo, ShardInfo, ShardSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_core._format import Shard
    from streaming_core._store import Buffer

NAME = "shard.00007.mds"


def schema_of(columns: Mapping[str, str], *, compression: str | None = None) -> ShardSchema:
    """Return the schema of MDS shards with `columns`."""
    mds = MDSColumns(columns)
    return ShardSchema("mds", mds.names, mds.texts, mds.sizes, compression=compression)


def info_of(
    schema: ShardSchema,
    raw: bytes,
    samples: int,
    packed: bytes | None = None,
    *,
    hashed: bool = False,
) -> ShardInfo:
    """Return what an index says of the shard with these bytes."""

    def file(name: str, data: bytes) -> FileInfo:
        return FileInfo(name, len(data), digests(["xxh64"], [data]) if hashed else {})

    zipped = None if packed is None else file(f"{NAME}.{schema.compression}", packed)
    return ShardInfo(7, samples, schema, file(NAME, raw), zipped)


def make_shard(
    columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]]
) -> tuple[ShardInfo, bytes]:
    """Return a good shard: what the index says of it, and its bytes."""
    mds = MDSColumns(columns)
    records = [mds.encode(sample) for sample in samples]
    config = config_bytes(mds.config(compression=None, hashes=(), size_limit=1 << 26))
    lengths = np.array([len(record) for record in records], np.int64)
    raw = b"".join([shard_header(lengths, config), *records])
    return info_of(schema_of(columns), raw, len(samples)), raw


def of_record(columns: Mapping[str, str], record: bytes) -> tuple[ShardInfo, bytes]:
    """Return a shard of one sample with these bytes for a record."""
    config = config_bytes(MDSColumns(columns).config(compression=None, hashes=(), size_limit=None))
    raw = shard_header(np.array([len(record)]), config) + record
    return info_of(schema_of(columns), raw, 1), raw


def of_value(encoding: str, data: bytes) -> tuple[ShardInfo, bytes]:
    """Return a shard of one sample with one column `x`, whose value has these bytes."""
    fixed = MDSColumns({"x": encoding}).sizes[0] is not None
    return of_record({"x": encoding}, data if fixed else struct.pack("<I", len(data)) + data)


def promised(info: ShardInfo, raw: bytes) -> ShardInfo:
    """Return `info` with the size that `raw` has, so that size alone gives nothing away."""
    return replace(info, raw=replace(info.raw, bytes=len(raw)))


def opened(info: ShardInfo, raw: Buffer, *, allow_unsafe: bool = False) -> MDSShard:
    """Return the shard opened as the readers do."""
    shard: Shard = open_shard(info, {"raw": raw}, allow_unsafe=allow_unsafe)
    assert isinstance(shard, MDSShard)
    return shard


def packed_by(code: str, raw: bytes) -> bytes:
    """Return `raw` compressed."""
    codec = parse_compression(code)
    assert codec is not None
    return codec.compress([raw])


def round_trip(encoding: str, value: Any) -> Any:
    """Return what a column of `encoding` gives back for `value`, through a whole shard."""
    info, raw = make_shard({"x": encoding}, [{"x": value}])
    (sample,) = opened(info, raw, allow_unsafe=encoding == "pkl")
    return sample["x"]


def key(value: Any) -> Any:
    """Return something that is equal exactly where type, value and, for floats, every bit are."""
    name = type(value).__name__
    match value:
        case np.ndarray():
            return name, value.dtype.name, value.shape, value.tobytes()
        case np.generic():
            return name, value.dtype.name, value.tobytes()
        case float():
            return name, struct.pack("<d", value)
        case Decimal():
            return name, str(value)
        case list() | tuple():
            return name, [key(item) for item in value]
        case dict():
            return name, [(name, key(item)) for name, item in value.items()]
        case Image.Image():
            return "image", value.mode, value.size, value.tobytes()
        case _:
            return name, value
