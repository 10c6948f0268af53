"""Samples for looking at: what could run code when decoded stays undecoded unless allowed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, final

from streaming_core._format._mds import DECODE_ERRORS, MDSColumns, MDSShard
from streaming_core._read import fetch_shard
from streaming_core.cli._values import Pickled
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming_core._format import Shard
    from streaming_core._index import ShardInfo, ShardSchema, ShardTable
    from streaming_core._store import Store

__all__ = ["Rows", "SafeColumns", "iterate_rows", "read_first"]

_PREFIX: Final = struct.Struct("<III")


@final
class SafeColumns:
    """The columns of an MDS schema; those whose decoding can run code give `Pickled`.

    Example:
        >>> from streaming_core._index import ShardSchema
        >>> columns = SafeColumns(ShardSchema("mds", ("p",), ("pkl",), column_sizes=(None,)))
        >>> columns.undecoded, columns.decode(bytes([2, 0, 0, 0]) + b"N.")
        (('p',), {'p': Pickled(num_bytes=2)})
    """

    __slots__ = ("_columns", "undecoded")

    def __init__(self, schema: ShardSchema, *, allow_unsafe: bool = False) -> None:
        texts = dict(zip(schema.column_names, schema.column_encodings, strict=True))
        columns = MDSColumns(texts)
        self.undecoded = () if allow_unsafe else tuple(columns.unsafe())
        """Names of the columns that are not decoded."""
        # The layout of a record knows only sizes, so the bytes of a column can be had as they are.
        as_bytes = dict.fromkeys(self.undecoded, "bytes")
        self._columns = MDSColumns(texts | as_bytes) if as_bytes else columns

    def decode(self, record: bytes) -> dict[str, Any]:
        """Return the sample; raises one of `DECODE_ERRORS` where the record is none."""
        sample = self._columns.decode(record)
        return sample | {name: Pickled(len(sample[name])) for name in self.undecoded}


@final
class Rows:
    """The samples of one opened shard by number."""

    __slots__ = ("_columns", "_name", "_shard", "undecoded")

    def __init__(self, info: ShardInfo, shard: Shard, *, allow_unsafe: bool = False) -> None:
        self._name = info.raw.basename
        self._shard = shard
        self._columns: SafeColumns | None = None
        self.undecoded: tuple[str, ...] = ()
        """Names of the columns that are not decoded."""
        if isinstance(shard, MDSShard):
            self._columns = SafeColumns(info.schema, allow_unsafe=allow_unsafe)
            self.undecoded = self._columns.undecoded

    def __len__(self) -> int:
        return len(self._shard)

    def row(self, row: int) -> dict[str, Any]:
        """Return sample `row`, counted from 0; `ShardCorruptError` where it does not decode."""
        if self._columns is None or not isinstance(self._shard, MDSShard):
            return self._shard.row(row)
        record = self._shard.record(row)
        try:
            return self._columns.decode(record)
        except DECODE_ERRORS as error:
            msg = f"{self._name}: sample {row}: {error}"
            raise ShardCorruptError(msg) from error


def iterate_rows(
    store: Store, table: ShardTable, *, skip: int, count: int, allow_unsafe: bool = False
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield number, shard and sample of `count` samples after the first `skip`, as far as they go.

    One shard is in memory at a time.
    """
    at, stop = skip, min(skip + count, table.num_samples)
    while at < stop:
        located, _ = table.locate([at])
        shard = int(located[0])
        first, last = (int(offset) for offset in table.sample_offsets[shard : shard + 2])
        info = table.shard(shard)
        # Opening decodes nothing; what is decoded is decided by `Rows`.
        rows = Rows(info, fetch_shard(store, info, allow_unsafe=True), allow_unsafe=allow_unsafe)
        for sample in range(at, min(last, stop)):
            yield sample, shard, rows.row(sample - first)
        at = min(last, stop)


def read_first(store: Store, info: ShardInfo, *, allow_unsafe: bool = False) -> dict[str, Any]:
    """Return the first sample of a shard that has one; reads no more of it than needed."""
    if info.schema.format != "mds" or info.zip is not None:
        rows = Rows(info, fetch_shard(store, info, allow_unsafe=True), allow_unsafe=allow_unsafe)
        return rows.row(0)
    name = info.raw.basename
    columns = SafeColumns(info.schema, allow_unsafe=allow_unsafe)
    _, start, stop = _PREFIX.unpack(store.get_ranges(name, [(0, _PREFIX.size)])[0])
    if not start <= stop <= info.raw.bytes:
        msg = f"{name}: sample 0 lies at bytes {start} to {stop} of {info.raw.bytes}"
        raise ShardCorruptError(msg)
    try:
        return columns.decode(store.get_ranges(name, [(start, stop)])[0])
    except DECODE_ERRORS as error:
        msg = f"{name}: sample 0: {error}"
        raise ShardCorruptError(msg) from error
