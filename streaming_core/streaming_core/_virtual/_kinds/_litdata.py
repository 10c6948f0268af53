"""litData chunks, as its `optimize` writes them: binary items, compressed batches, Arrow tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from streaming_core._codec import parse_compression
from streaming_core._codec._zstd_frames import FrameError, frame_header
from streaming_core._extras import require
from streaming_core._virtual._kinds._litdata_chunk import (
    MOST_BYTES,
    Batch,
    Chunk,
    Form,
    chunk_of,
    cuts_of,
    items_of,
    places_of,
)
from streaming_core._virtual._kinds._litdata_values import (
    Layout,
    Leaf,
    layout_of,
    leaf_array,
    leaf_of,
    leaf_type,
    parts_of,
)
from streaming_core._virtual._kinds._sparse_file import SparseFile
from streaming_core._virtual._model import Kind, Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core.errors import DecompressionError, SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._virtual._kinds._litdata_chunk import Read

__all__ = ["LitData"]

_INDEX: Final = "index.json"
_MOST_INDEX: Final = 256 << 20
_TAIL_BYTES: Final = 64 << 10
_ARROW_END: Final = 10
"""A table ends with the length of its footer, and six letters."""
_UNKNOWN: Final = ("error", "bytes")


class _Meta(msgspec.Struct, frozen=True, array_like=True):
    """What decoding a chunk needs."""

    form: Form
    expanded: int
    """Bytes of the chunk, if the file is compressed as a whole."""
    bounds: list[int]
    """Where each unit's items begin, and the last one's end, among the bytes once expanded."""
    batches: list[Batch]
    table: tuple[int, int]
    layout: Layout
    leaves: list[Leaf]


_META: Final = msgspec.msgpack.Decoder(_Meta)


class LitData(Kind):
    """Chunks of litData; beside them lies the `index.json` that says what is in an item.

    Columns are the values of an item: `value` if it is a single one, else the keys or numbers, with
    dots between levels. Numbers, text and bytes are such; images are the bytes of their files (or,
    for `pil`, as litData stores pixels); arrays and tensors are lists within lists. What is stored
    in another way is refused, or with `unknown="bytes"` given as it is stored.
    """

    name = "litdata"
    suffixes = (".bin",)
    is_told_by_name = False
    options = ("unknown",)

    def __init__(self, unknown: str = "error") -> None:
        if unknown not in _UNKNOWN:
            msg = f"unknown must be one of {', '.join(map(repr, _UNKNOWN))}; came {unknown!r}"
            raise SchemaError(msg)
        self._unknown = unknown

    def scan(self, reader: SourceReader) -> Scan:
        """Read where the items are, the first of them, and the index beside the chunk."""
        where, size = reader.where, reader.file.size

        def read(start: int, stop: int) -> bytes:
            return reader.ranges([(start, stop)])[0].data if start < stop else b""

        chunk = chunk_of(read, size, where)
        expanded = b""
        if chunk.form == "whole":
            expanded = _expanded_whole(reader.whole(), where)
            chunk = chunk_of(lambda start, stop: expanded[start:stop], len(expanded), where)
            if chunk.form != "items":
                msg = f"{where}: compressed, and within it again {chunk.form}, which is not read"
                raise SourceFormatError(msg)
            chunk = chunk._replace(form="whole")
        layout, leaves = Layout([], []), list[Leaf]()
        if chunk.form == "arrow":
            start, stop = chunk.table
            tail = max(start, stop - _TAIL_BYTES)
            schema = _table_file([Piece(tail, read(tail, stop))], chunk.table, where, read).schema
            schema = schema.remove_metadata()
        else:
            layout = layout_of(reader.beside(_INDEX, _MOST_INDEX), _index_of(where))
            if chunk.samples:
                item = _first_item(chunk, expanded, read, where)
                parts = parts_of(item, layout, where)
                told = zip(layout.names, layout.serializers, parts, strict=True)
                leaves = [leaf_of(*one, where, unknown=self._unknown) for one in told]
            schema = _schema(leaves)
        cuts = cuts_of(chunk)
        bounds = [int(chunk.offsets[cut.first]) for cut in cuts] + [int(chunk.offsets[-1])]
        meta = _Meta(
            chunk.form, len(expanded), bounds, list(chunk.batches), chunk.table, layout, leaves
        )
        units = [Unit(cut.samples, cut.nbytes, cut.first, at) for at, cut in enumerate(cuts)]
        return Scan(schema, tuple(units), msgspec.msgpack.encode(meta))

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return where the unit's items lie, with all their values, and their places."""
        del columns
        told = _parsed(meta, file.key)
        if told.form == "arrow":
            return [told.table]
        if told.form == "whole":
            return [(0, file.size)]
        spans = [places_of(told.form, unit.number, unit.samples), _span(told, unit)]
        return [(start, stop) for start, stop in spans if start < stop]

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Take the items apart into columns."""
        arrow = require("pyarrow", extra="parquet", purpose="chunks of litData")
        told = _parsed(meta, file.key)
        where = f"{file.key}, items {unit.number} to {unit.number + unit.samples - 1}"
        try:
            if told.form == "arrow":
                table = _table_file(pieces, told.table, where).read_all().replace_schema_metadata()
                table.validate(full=True)
                names = [name for name in table.column_names if not columns or name in columns]
                return table.select(names or table.column_names[:1])
            items = _items(told, unit, SparseFile(pieces, file.size), where)
        except (arrow.ArrowException, OSError) as error:
            msg = f"{where}: {error!s:.300}"
            raise SourceFormatError(msg) from error
        parts = [parts_of(item, told.layout, where) for item in items]
        wanted = [at for at, leaf in enumerate(told.leaves) if not columns or leaf.name in columns]
        wanted = wanted or [0]  # a table without columns would have no rows
        arrays = [leaf_array(told.leaves[at], [one[at] for one in parts], where) for at in wanted]
        return arrow.table(arrays, schema=_schema([told.leaves[at] for at in wanted]))


def _schema(leaves: Sequence[Leaf]) -> Any:  # noqa: ANN401 - of an optional dependency
    arrow = require("pyarrow", extra="parquet", purpose="chunks of litData")
    return arrow.schema([arrow.field(leaf.name, leaf_type(leaf)) for leaf in leaves])


def _parsed(meta: bytes, where: str) -> _Meta:
    problem = "its values do not fit each other"
    try:
        told = _META.decode(meta)
    except (msgspec.DecodeError, ValueError) as error:
        problem = str(error)[:200]
    else:
        if told.form == "arrow" or [one.name for one in told.leaves] == told.layout.names:
            return told
    msg = f"{where}: what the index says of it is broken: {problem}; index it again"
    raise SourceFormatError(msg)


def _index_of(where: str) -> str:
    return f"{where.rpartition('/')[0]}/{_INDEX}"


def _table_file(
    pieces: Sequence[Piece], table: tuple[int, int], where: str, read: Read | None = None
) -> Any:  # noqa: ANN401 - see above
    """Open the Arrow file within a chunk; if its footer is longer than what is there, read it."""
    arrow = require("pyarrow", extra="parquet", purpose="chunks of litData")
    start, stop = table
    end = pieces[-1].data[-_ARROW_END:] if pieces else b""
    footer = stop - _ARROW_END - int.from_bytes(end[:4], "little")
    if len(end) < _ARROW_END or not start <= footer:
        msg = f"{where}: the table in the chunk has no footer; it is damaged"
        raise SourceFormatError(msg)
    if read is not None and footer < pieces[0].start:
        pieces = [Piece(footer, read(footer, stop))]
    moved = [Piece(piece.start - start, piece.data) for piece in pieces]
    try:
        source = arrow.PythonFile(SparseFile(moved, stop - start), mode="r")
        options = arrow.ipc.IpcReadOptions(use_threads=False)
        return arrow.ipc.open_file(source, options=options)
    except (arrow.ArrowException, OSError) as error:
        msg = f"{where}: the table in the chunk cannot be read: {error!s:.300}"
        raise SourceFormatError(msg) from error


def _first_item(chunk: Chunk, expanded: bytes, read: Read, where: str) -> memoryview:
    start, stop = int(chunk.offsets[0]), int(chunk.offsets[1])
    if chunk.form == "batches":
        batch = chunk.batches[0]
        packed = read(batch.start, batch.start + batch.packed)
        return memoryview(_expanded(packed, batch.size, where))[: stop - start]
    return memoryview(expanded[start:stop] if expanded else read(start, stop))


def _batches(told: _Meta, unit: Unit) -> list[Batch]:
    last = unit.number + unit.samples
    return [batch for batch in told.batches if unit.number <= batch.first < last]


def _span(told: _Meta, unit: Unit) -> tuple[int, int]:
    """Return where in the file a unit's items lie."""
    if told.form == "batches" and (batches := _batches(told, unit)):
        return batches[0].start, batches[-1].start + batches[-1].packed
    if told.form == "batches" or not 0 <= unit.part < len(told.bounds) - 1:
        msg = f"no items {unit.number} on; the index does not fit itself: index it again"
        raise SourceFormatError(msg)
    return told.bounds[unit.part], told.bounds[unit.part + 1]


def _items(told: _Meta, unit: Unit, file: SparseFile, where: str) -> list[memoryview]:
    """Return the bytes of a unit's items."""

    def read(start: int, stop: int) -> bytes:
        file.seek(start)
        return file.read(stop - start)

    if told.form == "whole":
        data = _expanded(read(0, file.size()), told.expanded, where)
        start, stop = places_of("items", unit.number, unit.samples)
        places = data[start:stop]
        data = data[slice(*_span(told, unit))]
    else:
        places = read(*places_of(told.form, unit.number, unit.samples))
        data = b""
        if told.form == "batches":
            for batch in _batches(told, unit):
                packed = read(batch.start, batch.start + batch.packed)
                data += _expanded(packed, batch.size, where)
        else:
            data = read(*_span(told, unit))
    return items_of(places, memoryview(data), where)


def _expanded_whole(data: bytes, where: str) -> bytes:
    """Return what a compressed file expands to, which says itself how much that is."""
    try:
        header = frame_header(data)
    except FrameError as error:
        msg = f"{where}: the zstd data is broken: {error}"
        raise SourceFormatError(msg) from error
    size = None if header is None else header.content
    if size is None or size > MOST_BYTES:
        msg = f"{where}: compressed as a whole, to {size} bytes; at most {MOST_BYTES} are read"
        raise SourceFormatError(msg)
    return _expanded(data, size, where)


def _expanded(data: bytes, size: int, where: str) -> bytes:
    codec = parse_compression("zstd")
    try:
        return b"" if codec is None else codec.decompress(data, size, where=where)
    except DecompressionError as error:
        raise SourceFormatError(str(error)) from error
