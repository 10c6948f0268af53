"""Damage anywhere: with sums it is noticed, without them it never leaves the error classes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.core.format.mds.making import NAME, info_of, key, make_shard, opened, packed_by
from tests.core.format.mds.values import picture

from streaming_core._codec import digest
from streaming_core._index import ShardInfo, dump_index, parse_index
from streaming_core._read import (
    SUM_ALGORITHM,
    fetch_shard,
    format_sums,
    iterate_samples,
    parse_sums,
)
from streaming_core._store import MemoryStore
from streaming_core.errors import ChecksumError, ShardCorruptError, ShardSizeError, StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLUMNS = {
    "a": "int",
    "b": "str",
    "c": "float32",
    "d": "ndarray",
    "e": "json",
    "f": "str_decimal",
    "g": "str_int",
    "h": "pil",
    "i": "ndarray:int8:3",
}
SAMPLES = [
    {
        "a": -i,
        "b": "né" * i,
        "c": 0.5 * i,
        "d": np.arange(i + 2, dtype=np.int16),
        "e": {"k": [i, None]},
        "f": Decimal("1.50"),
        "g": 10**i,
        "h": picture("L", 2, 1),
        "i": np.full(3, i, np.int8),
    }
    for i in range(2)
]
INFO, RAW = make_shard(COLUMNS, SAMPLES)
SCHEMA = INFO.schema
WANTED = [key(sample) for sample in opened(INFO, RAW)]
CODES = [None, "zstd"]


def stored(code: str | None, *, hashed: bool = False) -> tuple[ShardInfo, bytes]:
    """Return the shard and its file, plain or compressed."""
    if code is None:
        return info_of(SCHEMA, RAW, len(SAMPLES), hashed=hashed), RAW
    packed = packed_by(code, RAW)
    schema = replace(SCHEMA, compression=code)
    return info_of(schema, RAW, len(SAMPLES), packed, hashed=hashed), packed


def flips(data: bytes) -> Iterator[bytes]:
    """Yield `data` with each of its bits changed."""
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def outcome(call: Callable[[], Any]) -> type[StreamingError] | Any:
    """Return the values that come, or the class of our error; any other error is the test's."""
    try:
        return [key(sample) for sample in call()]
    except StreamingError as error:
        return type(error)


class Reader:
    """Reads one shard from a store again and again, its file changed each time."""

    def __init__(self, info: ShardInfo, sums: dict[str, str] | None = None) -> None:
        """Remember what the index says."""
        self.info, self.sums = info, sums
        self.file = info.zip or info.raw
        self.store = MemoryStore()

    def read(self, data: bytes, *, truthful: bool = False) -> Any:
        """Return the outcome of `data`; `truthful` has the index give its size."""
        self.store.put(self.file.basename, [data])
        file = replace(self.file, bytes=len(data)) if truthful else self.file
        plain = self.info.zip is None
        info = replace(self.info, raw=file) if plain else replace(self.info, zip=file)
        return outcome(lambda: list(fetch_shard(self.store, info, sums=self.sums)))


def summed(info: ShardInfo, data: bytes) -> Reader:
    """Return a reader that checks the sum of the file."""
    return Reader(info, {(info.zip or info.raw).basename: digest(SUM_ALGORITHM, [data])})


@pytest.mark.parametrize("code", CODES)
def test_the_shard_that_is_damaged_is_good(code: str | None) -> None:
    """Undamaged, every sample comes back, with sums and without."""
    info, data = stored(code)
    assert summed(info, data).read(data) == Reader(info).read(data) == WANTED
    assert len(WANTED) == 2


@pytest.mark.parametrize("code", CODES)
def test_every_flipped_bit_is_noticed_by_the_sums(code: str | None) -> None:
    """A changed file is never decoded."""
    info, data = stored(code)
    reader = summed(info, data)
    assert {reader.read(changed) for changed in flips(data)} == {ChecksumError}


@pytest.mark.parametrize("code", CODES)
def test_every_flipped_bit_is_noticed_by_the_hashes_of_the_index(code: str | None) -> None:
    """Hashes in the index do what the sums do."""
    info, data = stored(code, hashed=True)
    reader = Reader(info)
    assert {reader.read(changed) for changed in flips(data)} == {ChecksumError}


@pytest.mark.parametrize("code", CODES)
def test_without_sums_a_flipped_bit_is_a_value_or_our_error(code: str | None) -> None:
    """Damage gives another value, or an error that says where; never another class, or a crash."""
    info, data = stored(code)
    reader = Reader(info)
    outcomes = [reader.read(changed) for changed in flips(data)]
    errors = [found for found in outcomes if isinstance(found, type)]
    assert all(issubclass(found, ShardCorruptError) for found in errors)
    # Counts, offsets, settings and lengths are most of a small shard, and each is checked.
    assert len(errors) > len(outcomes) // 2
    assert all(len(found) == 2 for found in outcomes if not isinstance(found, type))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("checked", [True, False])
def test_every_cut_is_refused(code: str | None, checked: bool) -> None:
    """A file that ends early is refused by its size, and by its content where the size agrees."""
    info, data = stored(code)
    reader = summed(info, data) if checked else Reader(info)
    cuts = [data[:end] for end in range(len(data))]
    assert {reader.read(cut) for cut in cuts} == {ShardSizeError}
    found = {reader.read(cut, truthful=True) for cut in cuts}
    if checked:
        assert found == {ChecksumError}
    else:
        assert all(issubclass(error, ShardCorruptError) for error in found)


@pytest.mark.parametrize("code", CODES)
def test_a_flipped_bit_of_the_index_is_an_error_or_changes_nothing(code: str | None) -> None:
    """What an index says is checked against the shards: no damage to it gives other samples."""
    info, data = stored(code)
    entry = {
        **info.schema.document(),
        "samples": info.samples,
        "raw_data": {"basename": info.raw.basename, "bytes": info.raw.bytes, "hashes": {}},
        "zip_data": info.zip
        and {"basename": info.zip.basename, "bytes": info.zip.bytes, "hashes": {}},
    }
    index = dump_index([entry])
    store = MemoryStore()
    store.put((info.zip or info.raw).basename, [data])

    def samples(document: bytes) -> Any:
        return outcome(lambda: list(iterate_samples(store, parse_index(document, "test"))))

    assert samples(index) == WANTED
    outcomes = [samples(changed) for changed in flips(index)]
    assert [found for found in outcomes if not isinstance(found, type) and found != WANTED] == []
    assert sum(isinstance(found, type) for found in outcomes) > len(outcomes) // 2


def test_a_damaged_list_of_sums_is_refused_or_notices_the_file() -> None:
    """A flipped bit in the sums names the line, or makes them disagree with a good file."""
    info, data = stored(None)
    sums = format_sums({NAME: digest(SUM_ALGORITHM, [data])})
    store = MemoryStore()
    store.put(NAME, [data])

    def fetch_with(document: bytes) -> Any:
        return fetch_shard(store, info, sums=parse_sums(document))

    for changed in flips(sums):
        found = outcome(partial(fetch_with, changed))
        hidden = not isinstance(found, type) and changed[:34].lower() == sums[:34]
        # Another name is that of a file that is not there; another case the same hash.
        assert found is ChecksumError or hidden


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"x", 1),
        (b"\n", 1),
        (b"99aa06d3014798d86001c324468d497f  a", 1),
        (b"99aa06d3014798d86001c324468d497f  a\n99aa06d3014798d86001c324468d497f b\n", 2),
        (b"99aa06d3014798d86001c324468d497  a\n", 1),
        (b"99aa06d3014798d86001c324468d497f  \n", 1),
    ],
)
def test_lines_that_are_no_sums_are_refused(data: bytes, line: int) -> None:
    """The error says which line, what was wanted, and what came."""
    with pytest.raises(ChecksumError, match=f"line {line}: wanted a hash of 32 hex digits"):
        parse_sums(data)


@pytest.mark.parametrize("name", ["a b", "part-0/é", "line\u2028end", "x" * 200])
def test_sums_keep_every_name(name: str) -> None:
    """Names with spaces, slashes and any letters come back."""
    sums = {name: "0" * 32, "b": "f" * 32}
    assert parse_sums(format_sums(sums)) == sums
    assert parse_sums(b"") == {}
