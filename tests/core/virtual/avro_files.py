"""Avro files for tests: one schema with every type, rows of it, and a writer of our own."""

from __future__ import annotations

import bz2
import datetime as dt
import io
import json
import lzma
import zlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable

fastavro = pytest.importorskip("fastavro")

SYNC = bytes(range(16))
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "snappy": lambda data: (
        pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
    ),
    "zstandard": zstandard.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "small", "type": "int"},
    {"name": "x", "type": ["null", "double"], "default": None},
    {"name": "y", "type": ["float", "null"]},
    {"name": "flag", "type": "boolean"},
    {"name": "maybe", "type": ["boolean", "null"]},
    {"name": "nothing", "type": "null"},
    {"name": "text", "type": ["null", "string"]},
    {"name": "blob", "type": "bytes"},
    {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
    {"name": "kind2", "type": ["null", "Kind"]},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "map", "type": {"type": "map", "values": "long"}},
    {
        "name": "pair",
        "type": [
            "null",
            {
                "type": "record",
                "name": "Pair",
                "namespace": "some.space",
                "fields": [
                    {"name": "a", "type": "int"},
                    {"name": "l", "type": ["null", {"type": "array", "items": "long"}]},
                ],
            },
        ],
    },
    {"name": "pairs", "type": {"type": "array", "items": "some.space.Pair"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "ms", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "us", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "at_ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {
        "name": "money",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    },
    {
        "name": "wide",
        "type": [
            "null",
            {
                "type": "fixed",
                "name": "Wide",
                "size": 20,
                "logicalType": "decimal",
                "precision": 45,
                "scale": 5,
            },
        ],
    },
    {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
]
SCHEMA = {"type": "record", "name": "Row", "namespace": "tests", "fields": FIELDS}
NAMES = [field["name"] for field in FIELDS]
BEGIN = dt.datetime(1969, 12, 31, tzinfo=dt.UTC)


def row_of(n: int) -> dict[str, Any]:
    """Return a row, the same for the same number."""
    at = BEGIN + dt.timedelta(hours=7 * n, microseconds=1000 * n)
    pair = {"a": n, "l": [n, -n][: n % 3] if n % 2 else None}
    return {
        "id": n * (-1) ** n * 10 ** (n % 15),
        "small": (-1) ** n * n,
        "x": n / 3 if n % 4 else None,
        "y": n / 2 if n % 5 else None,
        "flag": n % 3 == 0,
        "maybe": [True, False, None][n % 3],
        "nothing": None,
        "text": f"row {n} {'ü🎈' * (n % 40)}" if n % 11 else None,
        "blob": bytes([n % 256]) * (n % 90),
        "code": bytes([n % 256, 0, 255]),
        "kind": "ABC"[n % 3],
        "kind2": [None, "B", "C"][n % 3],
        "tags": [str(n), None, ""][: n % 4],
        "map": {f"k{k}": k * n for k in range(n % 3)},
        "pair": pair if n % 3 else None,
        "pairs": [pair] * (n % 3),
        "day": at.date(),
        "ms": at.time().replace(microsecond=1000 * (n % 1000)),
        "us": at.time(),
        "at": at,
        "at_ms": at if n % 2 else None,
        "local": at.replace(tzinfo=None),
        "money": Decimal(n - 50) / 100,
        "wide": Decimal(-n) * 10**30 / 32 if n % 5 else None,
        "uuid": UUID(int=n << 64 | 1),
    }


def written(schema: Any, rows: list[Any], codec: str = "null", per_block: int = 50) -> bytes:
    """Write a file ourselves, so that every codec and any division into blocks is tested."""
    parsed = fastavro.parse_schema(schema)

    def number(value: int) -> bytes:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, "long", value)
        return sink.getvalue()

    def text(value: bytes) -> bytes:
        return number(len(value)) + value

    out = [b"Obj\x01", number(2), text(b"avro.schema"), text(json.dumps(schema).encode())]
    out += [text(b"avro.codec"), text(codec.encode()), number(0), SYNC]
    for at in range(0, len(rows), per_block):
        sink = io.BytesIO()
        for row in rows[at : at + per_block]:
            fastavro.schemaless_writer(sink, parsed, row)
        data = CODECS[codec](sink.getvalue())
        out += [number(len(rows[at : at + per_block])), text(data), SYNC]
    return b"".join(out)
