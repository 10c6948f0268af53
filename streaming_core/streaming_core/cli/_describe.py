"""What a data set is, from its index and one sample of each schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._read import SUMS
from streaming_core.cli._place import (
    Part,
    Unfinished,
    find_parts,
    find_unfinished,
    load_table,
)
from streaming_core.cli._rows import read_first
from streaming_core.cli._values import show_value
from streaming_core.errors import IndexMissingError, ObjectNotFoundError, StreamingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._index import ShardInfo, ShardSchema, ShardTable
    from streaming_core._store import Store

__all__ = ["Column", "Data", "Inspection", "Schema", "Spread", "describe", "inspect_place"]

_EXAMPLE_WIDTH: Final = 60


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number is spread over the shards."""

    min: int
    """The smallest."""
    median: int
    """The middle one, rounded down."""
    max: int
    """The largest."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a schema."""

    name: str
    """Its name."""
    encoding: str
    """Its encoding, as the index gives it."""
    num_bytes: int | None
    """Bytes of each value, or None where they vary."""
    example: str | None
    """The value of the first sample in short form, or None if there is none to show."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What some shards have in common."""

    format: str
    """`mds`, `json`, `xsv`, `csv` or `tsv`."""
    compression: str | None
    """Such as `zstd:7`, or None."""
    hashes: tuple[str, ...]
    """Hashes of each file that the index carries."""
    size_limit: int | str | None
    """The size at which shards were cut, as the index gives it."""
    num_shards: int
    """Shards of this schema."""
    num_samples: int
    """Samples in them."""
    columns: tuple[Column, ...]
    """The columns in record order."""
    no_example: str | None
    """Why no example can be shown, or None."""


@dataclass(frozen=True, slots=True)
class Data:
    """A data set."""

    num_shards: int
    """Shards, empty ones included."""
    num_samples: int
    """Samples in all shards."""
    num_empty_shards: int
    """Shards without any sample."""
    raw_bytes: int
    """Bytes of all files, decompressed."""
    stored_bytes: int
    """Bytes of all files as they are stored."""
    samples_per_shard: Spread | None
    """None without shards."""
    raw_bytes_per_shard: Spread | None
    """None without shards."""
    has_sums: bool
    """Whether `checksums.xxh128` lies beside the index."""
    fingerprint: str
    """Tells this data from other data, however it is compressed."""
    schemas: tuple[Schema, ...]
    """One, unless data sets of several kinds were merged."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lies at a place; the document of `inspect --json`."""

    url: str
    """The place."""
    state: str
    """`finished`: a data set; `unfinished`: a conversion; `parts`: data sets in sub-folders."""
    data: Data | None = None
    """Given if `finished`."""
    unfinished: Unfinished | None = None
    """The conversion that has not ended; beside a data set, one that adds to it."""
    parts: tuple[Part, ...] = field(default=())
    """The data sets in sub-folders, if it is those."""


def inspect_place(store: Store, *, allow_unsafe: bool = False) -> Inspection:
    """Describe what lies in `store`; raises `IndexMissingError` if nothing does."""
    try:
        table = load_table(store)
    except IndexMissingError:
        unfinished = find_unfinished(store)
        if unfinished is not None:
            return Inspection(store.url, "unfinished", unfinished=unfinished)
        parts = tuple(find_parts(store))
        if not parts:
            raise
        return Inspection(store.url, "parts", parts=parts)
    unfinished = find_unfinished(store)
    if unfinished is not None and not unfinished.appends:
        unfinished = None  # a journal that only waits to be removed
    data = describe(store, table, allow_unsafe=allow_unsafe)
    return Inspection(store.url, "finished", data=data, unfinished=unfinished)


def describe(store: Store, table: ShardTable, *, allow_unsafe: bool = False) -> Data:
    """Describe the data set `table` in `store`, from which one sample of each schema is read."""
    raw = _positive(table.raw_bytes) + _positive(table.raw_meta_bytes)
    stored = _stored(table.raw_bytes, table.zip_bytes)
    stored = stored + _stored(table.raw_meta_bytes, table.zip_meta_bytes)
    return Data(
        num_shards=table.num_shards,
        num_samples=table.num_samples,
        num_empty_shards=int(np.count_nonzero(table.samples == 0)),
        raw_bytes=int(raw.sum()),
        stored_bytes=int(stored.sum()),
        samples_per_shard=_spread(table.samples),
        raw_bytes_per_shard=_spread(raw),
        has_sums=_has_sums(store),
        fingerprint=table.fingerprint(),
        schemas=tuple(
            _describe_schema(store, table, number, schema, allow_unsafe=allow_unsafe)
            for number, schema in enumerate(table.schemas)
        ),
    )


def _describe_schema(
    store: Store, table: ShardTable, number: int, schema: ShardSchema, *, allow_unsafe: bool
) -> Schema:
    mine = table.schema_ids == number
    filled = np.flatnonzero(mine & (table.samples > 0))
    examples: dict[str, str] = {}
    reason: str | None = "all its shards are empty"
    if filled.size:
        shard = table.shard(int(filled[0]))
        examples, reason = _examples(store, shard, allow_unsafe=allow_unsafe)
    sizes = schema.column_sizes or (None,) * len(schema.column_names)
    triples = zip(schema.column_names, schema.column_encodings, sizes, strict=True)
    return Schema(
        format=schema.format,
        compression=schema.compression,
        hashes=schema.hashes,
        size_limit=schema.size_limit,
        num_shards=int(np.count_nonzero(mine)),
        num_samples=int(table.samples[mine].sum()),
        columns=tuple(
            Column(name, encoding, size, examples.get(name)) for name, encoding, size in triples
        ),
        no_example=reason,
    )


def _examples(
    store: Store, shard: ShardInfo, *, allow_unsafe: bool
) -> tuple[dict[str, str], str | None]:
    try:
        sample = read_first(store, shard, allow_unsafe=allow_unsafe)
    except StreamingError as error:
        # The index alone tells most of what was asked, so a broken shard must not hide it.
        return {}, str(error)
    return {name: show_value(value, width=_EXAMPLE_WIDTH) for name, value in sample.items()}, None


def _has_sums(store: Store) -> bool:
    try:
        store.head(SUMS)
    except ObjectNotFoundError:
        return False
    return True


def _positive(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.maximum(sizes, 0)


def _stored(raw: NDArray[np.int64], packed: NDArray[np.int64]) -> NDArray[np.int64]:
    return _positive(np.where(packed >= 0, packed, raw))


def _spread(numbers: NDArray[np.int64]) -> Spread | None:
    if not numbers.size:
        return None
    return Spread(int(numbers.min()), int(np.median(numbers)), int(numbers.max()))
