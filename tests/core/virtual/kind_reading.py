"""What tests of formats share: one file in a store that counts, read by a format's three steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streaming_core._store import MemoryStore
from streaming_core._virtual import Decoder, SourceFile, SourceReader, View, build_index, open_kind
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from streaming_core._store import Parts
    from streaming_core._store._contract import ByteRange
    from streaming_core._virtual import Scan


class CountingStore(MemoryStore):
    """Counts the ranges that were asked for, and their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.spans: list[ByteRange] = []
        self.nbytes = 0

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges, and remember them."""
        found = super().get_ranges(key, ranges)
        self.calls += 1
        self.spans += ranges
        self.nbytes += sum(map(len, found))
        return found


class Opened:
    """One file, scanned."""

    def __init__(self, kind: str, data: bytes) -> None:
        self.store = CountingStore()
        info = self.store.put(f"a.{kind}", [data])
        self.file = SourceFile(info.key, info.size, info.etag)
        self.reader = SourceReader(self.store, self.file)
        self.kind = open_kind(kind)
        self.scan: Scan = self.kind.scan(self.reader)
        self.scan_calls, self.scan_bytes = self.store.calls, self.store.nbytes

    @property
    def rows(self) -> int:
        """Rows of all units."""
        return sum(unit.samples for unit in self.scan.units)

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """Return all rows, unit by unit, and check that each is exactly as counted."""
        tables: list[pa.Table] = []
        for unit in self.scan.units:
            wanted = self.kind.ranges(self.file, self.scan.meta, unit, columns)
            pieces = self.reader.ranges(wanted)
            table = self.kind.decode(self.file, self.scan.meta, unit, pieces, columns)
            assert table.num_rows == unit.samples > 0
            wanted_fields = [
                field
                for field in self.scan.schema
                if columns is None or field.name in columns or field.name in table.column_names
            ]
            assert table.schema.names == [field.name for field in wanted_fields]
            assert table.schema.types == [field.type for field in wanted_fields]
            tables.append(table)
        if not tables:
            names = [name for name in self.scan.schema.names if columns is None or name in columns]
            return pa.Table.from_batches([], self.scan.schema).select(names)
        return pa.concat_tables(tables).replace_schema_metadata(None)

    def bytes_of(self, columns: list[str] | None = None) -> int:
        """Return how many bytes the units' ranges have."""
        return sum(
            stop - start
            for unit in self.scan.units
            for start, stop in self.kind.ranges(self.file, self.scan.meta, unit, columns)
        )


def outcome(kind: str, data: bytes) -> str:
    """Read all of a file that may be broken: `read`, or `refused` with the error meant for that."""
    try:
        Opened(kind, data).read()
    except SourceFormatError:
        return "refused"
    return "read"


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file of which some bytes are others, or the end is missing."""
    if rng.random() < 0.2:
        return data[: int(rng.integers(len(data)))]
    out = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 2, 5, 30]))):
        near_end = rng.random() < 0.5
        back = min(len(out), 1 + int(rng.exponential(300)))
        at = len(out) - back if near_end else int(rng.integers(len(out)))
        flipped = out[at] ^ 1 << int(rng.integers(8))
        out[at] = (int(rng.integers(256)), 0, 255, flipped)[int(rng.integers(4))]
    return bytes(out)


def decoded(kind: str, data: bytes, columns: tuple[str, ...] | None = None) -> pa.Table:
    """Return all rows as a data set gets them: through an index, in one form."""
    store = MemoryStore()
    info = store.put(f"a.{kind}", [data])
    index = build_index(store, [SourceFile(info.key, info.size, info.etag)], kind)
    decoder = Decoder(index, store, View(columns))
    batches = [decoder.batch(at) for at in range(len(index.files))]
    return pa.Table.from_batches(batches, decoder.schema)
