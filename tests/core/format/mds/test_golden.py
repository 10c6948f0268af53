"""Bytes and values that mosaicml-streaming 0.13 wrote, read and made again."""

from __future__ import annotations

import base64
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from tests.core.format.mds.making import info_of, key, opened, round_trip, schema_of

from streaming_core._format._mds import (
    MDSColumns,
    MDSShard,
    config_bytes,
    mds_encodings,
    shard_header,
)
from streaming_core._index import ShardTable, parse_index
from streaming_core._read import fetch_shard, iterate_samples
from streaming_core._store import LocalStore
from streaming_core.errors import UnsafeEncodingError

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[3] / "data"
GIVEN = sorted(path for path in (DATA / "golden/datasets").glob("mds_*"))
MORE = sorted(path for path in (DATA / "golden_more").glob("mds_*"))
ALL = GIVEN + MORE
every = pytest.mark.parametrize("folder", ALL, ids=[path.name for path in ALL])


def wanted(document: Any) -> Any:
    """Return the value that `values.json` stands for."""
    if isinstance(document, list):
        return [wanted(item) for item in document]
    if not isinstance(document, dict):
        return document
    if "dtype" in document:
        return numbers(document)
    match document:
        case {"pixels": data, "mode": mode, "size": size}:
            return Image.frombytes(mode, size, base64.b64decode(data))
        case {"file": data}:
            return Image.open(io.BytesIO(base64.b64decode(data)))
        case {"repr": text}:
            return eval(text, {})  # noqa: S307 - our own golden data
    for name, kind in TEXTS.items():
        if document.keys() == {name}:
            return kind(document[name])
    return document


TEXTS: dict[str, Callable[[str], Any]] = {
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "str_float": float,
    "str_int": int,
}


def numbers(document: dict[str, Any]) -> Any:
    """Return the array or numpy scalar that a document with a type stands for."""
    dtype = np.dtype(document["dtype"])
    data, shape = document.get("ndarray", document.get("bytes")), document.get("shape", [])
    if data is not None:
        array = np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
        return array if "shape" in document else array[()]
    return np.zeros(shape, dtype) if "zeros" in document else dtype.type(document["scalar"])


def table_of(folder: Path) -> ShardTable:
    """Return the data set's index."""
    return parse_index((folder / "index.json").read_bytes(), folder.name)


@every
def test_golden_data_read_back_to_their_values(folder: Path) -> None:
    """Every value that the reference wrote comes back, to the last bit of every float."""
    document = json.loads((folder / "values.json").read_text())
    samples = list(iterate_samples(LocalStore(folder), table_of(folder), allow_unsafe=True))
    assert len(samples) == len(document["samples"])
    for number, (sample, values) in enumerate(zip(samples, document["samples"], strict=True)):
        assert sample.keys() == document["columns"].keys()
        for name, value in values.items():
            assert key(sample[name]) == key(wanted(value)), (number, name)


@every
def test_golden_shards_are_made_again_from_their_samples(folder: Path) -> None:
    """Values encoded anew, with header and settings, are byte for byte what the reference wrote."""
    document = json.loads((folder / "values.json").read_text())
    samples = iter(document["samples"])
    columns = MDSColumns(document["columns"])
    store, table = LocalStore(folder), table_of(folder)
    for info in map(table.shard, range(table.num_shards)):
        schema = info.schema
        assert isinstance(schema.size_limit, int)
        settings = columns.config(
            compression=schema.compression, hashes=schema.hashes, size_limit=schema.size_limit
        )
        shard = fetch_shard(store, info, allow_unsafe=True)
        assert isinstance(shard, MDSShard)
        records = [
            columns.encode({**sources(next(samples)), **pictures(columns, shard.record(row))})
            for row in range(info.samples)
        ]
        lengths = np.array([len(record) for record in records], np.int64)
        header = shard_header(lengths, config_bytes(settings))
        remade = opened(info, b"".join([header, *records]), allow_unsafe=True)
        assert [remade.record(row) for row in range(len(remade))] == records
        assert [shard.record(row) for row in range(info.samples)] == records
        assert len(header) + int(lengths.sum()) == info.raw.bytes
    assert next(samples, None) is None


def sources(values: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be encoded: the values, a file by its bytes."""

    def source(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], dict) and "file" in value[0]:
            return [source(item) for item in value]
        return base64.b64decode(value["file"]) if is_file(value) else wanted(value)

    return {name: source(value) for name, value in values.items()}


def is_file(value: Any) -> bool:
    """Say whether `value` is given by a file's bytes."""
    return isinstance(value, dict) and "file" in value


def pictures(columns: MDSColumns, record: bytes) -> dict[str, bytes]:
    """Return the bytes of the columns whose bytes depend on the versions of Pillow's libraries."""
    texts = dict(zip(columns.names, columns.texts, strict=True))
    named = {"png", "list[jpeg]", "list[png]"} & set(texts.values())
    if not named:
        return {}
    # Read as plain bytes, a column shows how it is stored.
    plain = MDSColumns({name: text if text == "int" else "bytes" for name, text in texts.items()})
    stored = plain.decode(record)
    return {name: stored[name] for name, text in texts.items() if text in named}


SPEC = bytes.fromhex("02000000 c1000000 cf000000 df000000")
SPEC += (
    b'{"column_encodings": ["int", "str"], "column_names": ["a", "b"], "column_sizes": [8, null], '
    b'"compression": null, "format": "mds", "hashes": [], "size_limit": 1000, "version": 2}'
)
SPEC += bytes.fromhex("02000000 0000000000000000 c3a9 04000000 0100000000000000 c3a9c3a9")


def test_the_shard_of_the_format_page_is_made_and_read() -> None:
    """The 223 bytes that the page on the format shows are what we write, and they read back."""
    samples = [{"a": 0, "b": "é"}, {"a": 1, "b": "éé"}]
    columns = MDSColumns({"b": "str", "a": "int"})
    records = [columns.encode(sample) for sample in samples]
    config = config_bytes(columns.config(compression=None, hashes=(), size_limit=1000))
    made = shard_header(np.array([14, 16]), config) + b"".join(records)
    assert made == SPEC
    assert len(made) == 223
    info = info_of(schema_of({"a": "int", "b": "str"}), SPEC, 2)
    assert list(opened(info, SPEC)) == samples


GRID = np.array([[0, 1, 2], [3, 4, 5]], np.int16)


@pytest.mark.parametrize(
    ("encoding", "array", "start"),
    [
        ("ndarray", GRID, "11 08 02 03"),
        ("ndarray:int16", GRID, "08 02 03"),
        ("ndarray:int16:2,3", GRID, "0000 0100 0200 0300 0400 0500"),
        ("ndarray", np.zeros((300, 1), np.uint8), "08 09 2c01 0100 00"),
        ("ndarray", np.zeros(70000, np.uint8), "08 06 70110100 00"),
    ],
)
def test_the_arrays_of_the_format_page_are_made(encoding: str, array: Any, start: str) -> None:
    """Header bytes are those that the page on the format shows."""
    (kind,) = MDSColumns({"x": encoding}).encodings
    data = kind.encode(array)
    assert data.startswith(bytes.fromhex(start))
    assert data.endswith(array.tobytes())
    assert key(round_trip(encoding, array)) == key(array)


def test_all_encodings_of_the_format_are_known() -> None:
    """The registry has the 28 names of the format, and nothing else before a user adds to it."""
    ints = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    floats = {"float16", "float32", "float64"}
    images = {"pil", "jpeg", "png", "jpeg_array", "jpegarray", "list[pil]", "list[jpeg]"}
    others = {"bytes", "str", "int", "str_int", "str_float", "str_decimal", "ndarray"}
    assert set(mds_encodings) == {"list[png]", "pkl", "json", *ints, *floats, *images, *others}
    assert len(mds_encodings) == 28


def test_pickled_golden_data_need_permission() -> None:
    """Without permission by name, nothing of a data set with a pickled column is decoded."""
    folder = DATA / "golden_more/mds_pickled"
    with pytest.raises(UnsafeEncodingError, match=r"shard\.00000\.mds.* x .*allow_unsafe_types"):
        list(iterate_samples(LocalStore(folder), table_of(folder)))
