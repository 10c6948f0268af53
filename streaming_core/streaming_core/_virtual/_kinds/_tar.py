"""WebDataset archives: a sample is the files in a row that share a name up to its first dot."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._kinds._tar_bytes import HoppingBytes, UnpackedBytes, unpacked
from streaming_core._virtual._kinds._tar_headers import BLOCK_BYTES, walk
from streaming_core._virtual._kinds._tar_samples import (
    KEY,
    MOST_DIGITS,
    Grouper,
    Table,
    bounds_of,
    dump_table,
    parse_table,
    parsed_number,
)
from streaming_core._virtual._model import Kind, Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core.errors import SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streaming_core._virtual._kinds._tar_headers import ArchiveBytes

__all__ = ["Tar"]

_PACKED: Final = (".tar.gz", ".tgz")
_UNIT_BYTES: Final = 16 << 20
_GAP_BYTES: Final = 3 * BLOCK_BYTES
"""Wanted files with no more than a header between them are one range; what is worth
reading over beyond that, the store knows best."""
_MOST_UNPACKED: Final = 4 << 30
Value: TypeAlias = bytes | memoryview | None
_DECODES: Final = ("raw", "bytes")


class Tar(Kind):
    """Tar archives as WebDataset writes them.

    Columns are `__key__` and one for each extension, missing where a sample lacks that file. Text
    (`txt`, `text`, `json`) is a string, a class or number (`cls`, `cls2`, `index`, `inx`, `id`) a
    whole number if all of the archive's are, else a string; all else, such as images, is kept as
    bytes. With `decode="bytes"` everything is bytes.
    """

    name = "webdataset"
    suffixes = (".tar", *_PACKED)
    options = ("decode",)

    def __init__(self, decode: str = "raw") -> None:
        if decode not in _DECODES:
            msg = f"decode must be one of {', '.join(map(repr, _DECODES))}; came {decode!r}"
            raise SchemaError(msg)
        self._decode = decode

    def scan(self, reader: SourceReader) -> Scan:
        """Read the headers, and the files that may be numbers."""
        if reader.file.key.lower().endswith(_PACKED):
            with closing(unpacked(reader.pieces(), reader.where, _MOST_UNPACKED)) as pieces:
                archive = UnpackedBytes(pieces)
                grouper = self._gathered(archive, reader.where)
                table = grouper.table(archive.end)
        else:
            table = self._gathered(HoppingBytes(reader), reader.where).table(0)
        return Scan(_schema(table), tuple(_units(table)), dump_table(table))

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return where the wanted files lie; of a compressed archive all is read."""
        table = parse_table(meta, file.key)
        members = _members(table, unit, columns)
        members = members[table.sizes[members] > 0]
        if not len(members):
            return []
        if table.unpacked:
            return [(0, file.size)]
        starts = table.starts[members]
        stops = starts + table.sizes[members]
        (cuts,) = np.nonzero(starts[1:] - stops[:-1] > _GAP_BYTES)
        firsts = starts[np.append(0, cuts + 1)]
        lasts = stops[np.append(cuts, len(stops) - 1)]
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Cut the files out and put them into columns."""
        arrow = require("pyarrow", extra="parquet", purpose="WebDataset archives")
        table = parse_table(meta, file.key)
        if table.unpacked and pieces:
            pieces = [_unpacked_whole(pieces[0].data, table.unpacked, file.key)]
        pieces = sorted(pieces)
        schema = _schema(table)
        wanted = [at for at, name in enumerate(schema.names) if columns is None or name in columns]
        wanted = wanted or [0]  # a table without columns would have no rows
        where = f"{file.key}, samples {unit.number} to {unit.number + unit.samples - 1}"
        arrays: list[Any] = []
        for at in wanted:
            field = schema.field(at)
            values = _values(table, unit, at - 1, pieces, where) if at else _keys(table, unit)
            arrays.append(_typed(values, field, where))
        return arrow.table(arrays, schema=arrow.schema([schema.field(at) for at in wanted]))

    def _gathered(self, archive: ArchiveBytes, where: str) -> Grouper:
        grouper = Grouper(where, typed=self._decode == "raw")
        for member in walk(archive, where):
            column = grouper.add(member)
            if column is not None and grouper.wants(column):
                is_short = member.size <= MOST_DIGITS
                data = archive.read(member.start, member.size) if is_short else b""
                grouper.see(column, data)
        return grouper


def _schema(table: Table) -> Any:  # noqa: ANN401 - of an optional dependency
    arrow = require("pyarrow", extra="parquet", purpose="WebDataset archives")
    types = {
        "binary": arrow.large_binary(),
        "text": arrow.large_string(),
        "number": arrow.int64(),
    }
    fields = [arrow.field(KEY, arrow.large_string(), nullable=False)]
    fields += [arrow.field(name, types[kind]) for name, kind in table.columns.items()]
    return arrow.schema(fields)


def _units(table: Table) -> Iterator[Unit]:
    """Yield samples in a row that take about as much as is fetched at once, headers included."""
    if not len(table.starts):
        return
    count = len(table.first) - 1
    starts: list[int] = table.starts[table.first[:-1]].tolist()
    ends = bounds_of(table.sizes)
    at = 0
    while at < count:
        stop = count
        if not table.unpacked:
            stop = bisect_left(starts, starts[at] + _UNIT_BYTES)
        nbytes = int(ends[table.first[stop]] - ends[table.first[at]])
        keys = int(table.keys[1][stop] - table.keys[1][at])
        overhead = 8 * (stop - at) * (1 + len(table.columns))
        yield Unit(stop - at, nbytes + keys + overhead, at)
        at = stop


def _members(table: Table, unit: Unit, columns: Sequence[str] | None) -> NDArray[np.int64]:
    """Return the numbers of a unit's members that are of some columns."""
    last = unit.number + unit.samples
    if not 0 <= unit.number <= last < len(table.first):
        msg = f"no samples {unit.number} to {last}; the index does not fit itself: index it again"
        raise SourceFormatError(msg)
    bounds = (int(table.first[unit.number]), int(table.first[last]))
    members = np.arange(*bounds, dtype=np.int64)
    if columns is None:
        return members
    wanted = [at for at, name in enumerate(table.columns) if name in columns]
    return members[np.isin(table.kinds[members], wanted)]


def _keys(table: Table, unit: Unit) -> list[Value]:
    return [table.key(row) for row in range(unit.number, unit.number + unit.samples)]


def _values(
    table: Table, unit: Unit, column: int, pieces: Sequence[Piece], where: str
) -> list[Value]:
    """Return the bytes of one column's files, None for each sample that has none."""
    members = _members(table, unit, None)
    members = members[table.kinds[members] == column]
    rows = np.searchsorted(table.first, members, side="right") - 1 - unit.number
    begins = [piece.start for piece in pieces]
    views = [memoryview(piece.data) for piece in pieces]
    nothing = memoryview(b"")
    found: list[Value] = [None] * unit.samples
    places = zip(
        rows.tolist(), table.starts[members].tolist(), table.sizes[members].tolist(), strict=True
    )
    for row, start, size in places:
        at = bisect_right(begins, start) - 1
        data = nothing
        if size and at >= 0:
            begin = start - begins[at]
            data = views[at][begin : begin + size]
        if len(data) < size:
            msg = f"{where}: the {size} bytes from byte {start} on did not come; index it again"
            raise SourceFormatError(msg)
        found[row] = data
    return found


def _typed(values: list[Value], field: Any, where: str) -> Any:  # noqa: ANN401 - see above
    """Return values as a column of the field's type."""
    arrow = require("pyarrow", extra="parquet", purpose="WebDataset archives")
    if field.type == arrow.int64():
        numbers = [None if value is None else parsed_number(bytes(value)) for value in values]
        for value, number in zip(values, numbers, strict=True):
            if number is None and value is not None:
                msg = (
                    f"{where}: {field.name!r} is {bytes(value[:40])!r} where a whole number was "
                    "when it was indexed; index it again"
                )
                raise SourceFormatError(msg)
        return arrow.array(numbers, field.type)
    array = arrow.array(values, arrow.large_binary())
    try:
        return array if field.type == array.type else array.cast(field.type)
    except arrow.ArrowException as error:
        msg = (
            f"{where}: a file {field.name!r} is no text in UTF-8; with format_options="
            '{"decode": "bytes"} all files are bytes'
        )
        raise SourceFormatError(msg) from error


def _unpacked_whole(data: bytes, size: int, where: str) -> Piece:
    """Return the archive in a compressed file."""
    whole = b"".join(unpacked(iter([memoryview(data)]), where, size))
    if len(whole) != size:
        msg = f"{where}: it expands to {len(whole)} bytes where {size} were when it was indexed"
        raise SourceFormatError(msg)
    return Piece(0, whole)
