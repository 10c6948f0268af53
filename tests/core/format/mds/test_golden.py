"""Bytes and values that mosaicml-streaming 0.13 wrote, read and made again."""

from __future__ import annotations

import base64
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from streaming_core._format._mds import MDSColumns, config_bytes, mds_encodings, shard_header
from streaming_core._index import ShardTable, parse_index
from streaming_core._read import fetch_shard, iterate_samples
from streaming_core._store import LocalStore
from streaming_core.errors import UnsafeEncodingError
from tests.core.format.mds.making import info_of, key, opened, round_trip, schema_of

DATA = Path(__file__).parents[3] / "data"
GIVEN = sorted(path for path in (DATA / "golden/datasets").glob("mds_*"))
MORE = sorted(path for path in (DATA / "golden_more").glob("mds_*"))
ALL = GIVEN + MORE
every = pytest.mark.parametrize("folder", ALL, ids=[path.name for path in ALL])


def wanted(document: Any) -> Any:
    """Return the value that `values.json` stands for."""
    if isinstance(document, list):
        return [wanted(item) for item in document]
    match document:
        case {"bytes": data, "dtype": dtype, "scalar": _}:
            return np.frombuffer(base64.b64decode(data), dtype)[0]
        case {"scalar": value, "dtype": dtype}:
            return np.dtype(dtype).type(value)
        case {"ndarray": data, "dtype": dtype, "shape": shape}:
            return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
        case {"zeros": True, "dtype": dtype, "shape": shape}:
            return np.zeros(shape, dtype)
        case {"bytes": data}:
            return base64.b64decode(data)
        case {"decimal": text}:
            return Decimal(text)
        case {"str_int": text}:
            return int(text)
        case {"str_float": text}:
            return float(text)
        case {"pixels": data, "mode": mode, "size": size}:
            return Image.frombytes(mode, size, base64.b64decode(data))
        case {"file": data}:
            return Image.open(io.BytesIO(base64.b64decode(data)))
        case {"repr": text}:
            return eval(text, {})  # noqa: S307 - our own golden data
        case _:
            return document


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
        records = [
            columns.encode({name: source(value) for name, value in next(samples).items()})
            for _ in range(info.samples)
        ]
        shard = fetch_shard(store, info, allow_unsafe=True)
        lengths = np.array([len(record) for record in records], np.int64)
        header = shard_header(lengths, config_bytes(settings))
        remade = opened(info, b"".join([header, *records]), allow_unsafe=True)
        assert [remade.record(row) for row in range(len(remade))] == records
        assert [shard.record(row) for row in range(info.samples)] == records  # type: ignore[attr-defined]
        assert len(header) + int(lengths.sum()) == info.raw.bytes
    assert next(samples, None) is None


def source(document: Any) -> Any:
    """Return what is to be encoded; pictures in files as the list or the file that they came from."""
    match document:
        case {"file": data}:
            return base64.b64decode(data)
        case _:
            return wanted(document)
