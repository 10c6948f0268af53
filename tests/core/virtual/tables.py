"""What tests of tables share: reading by a plan as the product does, and snapshots by hand."""

from __future__ import annotations

import itertools
import struct
import uuid
import zlib
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyroaring import BitMap

from streaming_core._store import open_store
from streaming_core._virtual import SourceReader, open_kind
from streaming_core._virtual._tables import TablePlan, keep_bits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table

VECTOR_MAGIC = 1681511377


def catalog_properties(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog in SQLite, with a warehouse beside it."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }


@contextmanager
def sqlite_catalog(folder: Path) -> Generator[Catalog]:
    """Yield such a catalog with the namespace `db`."""
    with closing(load_catalog("default", **catalog_properties(folder))) as catalog:
        catalog.create_namespace("db")
        yield catalog


def read(plan: TablePlan, columns: Sequence[str] | None = None) -> pa.Table:
    """Read all rows of a plan, file by file and unit by unit, by our own means only."""
    store = open_store(plan.root)
    names = plan.schema.names if columns is None else list(columns)
    schema = pa.schema([plan.schema.field(name).remove_metadata() for name in names])
    found = [schema.empty_table()]
    for at, file in enumerate(plan.files):
        kind, reader = open_kind(file.kind), SourceReader(store, file.source())
        scan = kind.scan(reader)
        plan.check_rows(at, sum(unit.samples for unit in scan.units))
        layout = plan.layout(at, scan.schema)
        wanted = layout.sources(columns)
        first = 0
        for unit in scan.units:
            pieces = reader.ranges(kind.ranges(reader.file, scan.meta, unit, wanted))
            raw = kind.decode(reader.file, scan.meta, unit, pieces, wanted)
            table = layout.table(raw, columns, unit.samples)
            assert table.num_rows == unit.samples
            bits = keep_bits(file.deleted, first, unit.samples)
            if bits is not None:
                mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=unit.samples)
                table = table.filter(pa.array(mask.astype(bool)))
            found.append(table)
            first += unit.samples
    return pa.concat_tables(found)


def plain(table: pa.Table, plan: TablePlan, *, by: str = "id") -> pa.Table:
    """Return what another reader read, in the plan's types and in a fixed order."""
    schema = pa.schema([field.remove_metadata() for field in plan.schema])
    columns = []
    for field in schema:
        column = table.column(field.name)
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], field.type)
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema).sort_by(by).combine_chunks()


def same_rows(plan: TablePlan, other: pa.Table, *, by: str = "id") -> None:
    """Assert that a plan reads to exactly the rows that another reader found."""
    mine, theirs = plain(read(plan), plan, by=by), plain(other, plan, by=by)
    assert mine.schema.equals(theirs.schema)
    assert mine.num_rows == theirs.num_rows
    if not mine.equals(theirs):
        # NaN equals nothing, itself neither; as Python's own values they print alike.
        assert list(map(str, mine.to_pylist())) == list(map(str, theirs.to_pylist()))


# --- snapshots that pyiceberg does not write ------------------------------------------------------


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeletesWriter(
            spec,
            self._transaction.table_metadata.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )


def local(location: str) -> Path:
    """Return the path of a file of this machine."""
    return Path(location.removeprefix("file://"))


def commit(table: Table, *files: DataFile) -> None:
    """Add files to a table as one snapshot: of deletes if the first is one, else of data."""
    producer = _FastAppendFiles if files[0].content == DataFileContent.DATA else _AppendDeletes
    with table.transaction() as transaction:
        update = producer(Operation.APPEND, transaction, table.io)
        for file in files:
            update.append_data_file(file)
        update.commit()


def described(
    table: Table,
    path: Path,
    rows: int,
    content: DataFileContent = DataFileContent.DATA,
    form: FileFormat = FileFormat.PARQUET,
    partition: Sequence[Any] = (),
    **more: Any,
) -> DataFile:
    """Return an entry for a file, as a writer would make it."""
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=form,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=None,
        sort_order_id=None,
        equality_ids=more.get("equality_ids"),
        key_metadata=more.get("key_metadata"),
    )
    file.spec_id = table.spec().spec_id
    return file


def _fresh(table: Table, suffix: str) -> Path:
    folder = local(table.location()) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{uuid.uuid4()}{suffix}"


def position_deletes(
    table: Table,
    rows: Iterable[tuple[str, int]],
    form: FileFormat = FileFormat.PARQUET,
    partition: Sequence[Any] = (),
) -> DataFile:
    """Write a file of position deletes, `(file, row)` each, and return its entry."""
    pairs = sorted(rows)
    fields = [
        pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": "2147483545"}),
    ]
    columns = [[path for path, _ in pairs], [row for _, row in pairs]]
    made = pa.table(columns, schema=pa.schema(fields))
    path = _fresh(table, f".{form.value.lower()}")
    if form == FileFormat.ORC:
        po.write_table(made, path)
    else:
        pq.write_table(made, path, row_group_size=400)
    return described(
        table, path, len(pairs), DataFileContent.POSITION_DELETES, form, partition=partition
    )


def equality_deletes(table: Table, ids: Sequence[int]) -> DataFile:
    """Write a file of equality deletes by the column of field id 1, and return its entry."""
    path = _fresh(table, ".parquet")
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([list(ids)], schema=pa.schema([field])), path)
    content = DataFileContent.EQUALITY_DELETES
    return described(table, path, len(ids), content, equality_ids=[1])


def portable(positions: Iterable[int]) -> bytes:
    """Return positions as a portable roaring bitmap of 64 bits, made by another library."""
    halves = itertools.groupby(sorted(set(positions)), lambda position: position >> 32)
    maps = [(high, [position & 0xFFFFFFFF for position in group]) for high, group in halves]
    out = struct.pack("<Q", len(maps))
    for high, lows in maps:
        bitmap = BitMap(lows)
        bitmap.run_optimize()
        out += struct.pack("<I", high) + bitmap.serialize()
    return out


def vector_blob(positions: Iterable[int]) -> bytes:
    """Return positions as a blob `deletion-vector-v1`."""
    body = struct.pack("<I", VECTOR_MAGIC) + portable(positions)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin(vectors: Sequence[tuple[str, Sequence[int]]], *, compressed: bool = False) -> bytes:
    """Return a Puffin file with a deletion vector for each data file."""
    out, blobs = b"PFA1", []
    for path, positions in vectors:
        blob = vector_blob(positions)
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(out),
                "length": len(blob),
                "properties": {
                    "referenced-data-file": path,
                    "cardinality": str(len(set(positions))),
                },
            }
        )
        out += blob
    footer = msgspec.json.encode({"blobs": blobs})
    if compressed:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "lz4") as stream:
            stream.write(footer)
        footer = sink.getvalue().to_pybytes()
    return out + b"PFA1" + footer + struct.pack("<iI", len(footer), int(compressed)) + b"PFA1"


def deletion_vectors(table: Table, vectors: Sequence[tuple[str, Sequence[int]]]) -> list[DataFile]:
    """Write one Puffin file with deletion vectors of data files, and return its entries."""
    path = _fresh(table, ".puffin")
    path.write_bytes(puffin(vectors))
    content, form = DataFileContent.POSITION_DELETES, FileFormat.PUFFIN
    return [described(table, path, len(rows), content, form) for _, rows in vectors]
