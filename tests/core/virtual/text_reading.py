"""What tests of text formats share: a file that comes in pieces of any size, read by units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from streaming_core._store import MemoryStore
from streaming_core._virtual import SourceFile, SourceReader, open_kind
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from streaming_core._virtual import Scan, Unit


class PiecesStore(MemoryStore):
    """Streams pieces of a given size, all in one buffer, as stores may."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the object; each piece is overwritten by the next."""
        data = b"".join(super().stream(key, start=start, max_bytes=max_bytes))
        buffer = bytearray(self._size)
        for at in range(0, len(data), self._size):
            piece = data[at : at + self._size]
            buffer[: len(piece)] = piece
            yield memoryview(buffer)[: len(piece)].toreadonly()


class TextFile:
    """One file, scanned."""

    def __init__(self, name: str, data: bytes, *, piece: int = 1 << 20, **options: Any) -> None:
        kind = name.split(".")[1]
        self.store = PiecesStore(piece)
        info = self.store.put(name, [data])
        self.file = SourceFile(info.key, info.size, info.etag)
        self.reader = SourceReader(self.store, self.file)
        self.kind = open_kind({"txt": "text"}.get(kind, kind), options)
        self.scan: Scan = self.kind.scan(self.reader)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units that it was cut into."""
        return self.scan.units

    def unit(self, unit: Unit, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of one unit from its own bytes."""
        pieces = self.reader.ranges(self.kind.ranges(self.file, self.scan.meta, unit, columns))
        return self.kind.decode(self.file, self.scan.meta, unit, pieces, columns)

    def family(self, at: int) -> range:
        """Return the units that are made together with one."""
        return self.kind.kin(self.file, lambda: self.scan.meta, self.units, at)

    def tables(self, some: list[int]) -> list[pa.Table]:
        """Return the rows of some units, made together."""
        units = [self.units[at] for at in some]
        return list(self.kind.tables(self.reader, self.scan.meta, units, None))

    def rows(self, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """Return all rows, unit by unit, and check that each has as many as were counted."""
        found: list[dict[str, Any]] = []
        for unit in self.units:
            table = self.unit(unit, columns)
            assert table.num_rows == unit.samples
            # A table of no columns could not say how many rows it has.
            if columns is None and len(self.scan.schema):
                assert table.schema.equals(self.scan.schema)
            found += table.to_pylist()
        return found


def same(came: Any, wanted: Any) -> bool:
    """Tell whether a value is what was written; what was not written is None."""
    if isinstance(wanted, dict):
        keys = came.keys() | wanted.keys()
        return all(same(came.get(key), wanted.get(key)) for key in keys)
    if isinstance(wanted, list):
        return len(came) == len(wanted) and all(map(same, came, wanted))
    if wanted is None and isinstance(came, dict):
        return all(value is None for value in came.values())
    return bool(came == wanted)


def survives(name: str, data: bytes, **options: Any) -> None:
    """Check that hostile bytes give rows or the error for them, and nothing else."""
    try:
        TextFile(name, data, **options).rows()
    except ShardCorruptError as error:
        assert name in str(error)  # noqa: PT017 - whatever else is raised fails the test


CUTS = st.integers(1, 40)
"""Bytes of a unit, or of a piece of a stream."""
