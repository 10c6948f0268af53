"""Arrow files, Feather and Arrow streams: a unit is a batch, some small ones, or part of one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streaming_core._extras import require
from streaming_core._virtual._kinds._arrow_ipc_messages import (
    Column,
    Head,
    dictionary_of,
    head_of,
    rebuilt,
    schema_of_message,
)
from streaming_core._virtual._kinds._arrow_ipc_scan import Block, Layout, layout_of
from streaming_core._virtual._kinds._packing import (
    PackedKind,
    joined_spans,
    packed,
    parts_of,
    without_columns,
)
from streaming_core._virtual._kinds._sparse_file import SparseFile
from streaming_core._virtual._model import Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ArrowIpc"]


_LAYOUT: Final = msgspec.msgpack.Decoder(Layout)

_GROWS: Final = 3
"""By about how much compressed bodies grow."""
_NEAR: Final = 64
"""Buffers are padded to so many bytes: what lies no farther is fetched as one."""
_SMALL: Final = 256 << 20
_RATIO: Final = 256
"""Bodies may grow to `_SMALL`, or by so much: lz4 cannot do more, and zstd seldom does."""
_LENGTH: Final = 8
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"


class ArrowIpc(PackedKind):
    """Arrow's own formats, of which only the wanted columns' buffers are fetched."""

    name = "arrow"
    suffixes = (".arrow", ".arrows", ".feather", ".ipc")

    def scan(self, reader: SourceReader) -> Scan:
        """Read the footer and the messages of batches, or hop through a stream's messages."""
        arrow = require("pyarrow", extra="parquet", purpose="Arrow files")
        try:
            layout = layout_of(reader)
            heads = [head_of(block.head) for block in layout.batches]
            for head in heads:
                head.parts(layout.columns, None)
            schema = _schema(layout).remove_metadata()
        except (arrow.ArrowException, OSError, ValueError) as error:
            msg = f"{reader.where}: no Arrow file that can be read: {error!s:.300}"
            raise SourceFormatError(msg) from error
        units = packed([(head.rows, _decoded(head)) for head in heads])
        return Scan(schema, tuple(units), msgspec.msgpack.encode(layout))

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return the buffers of the columns, and the dictionaries that they refer to."""
        layout = _layout(meta, file.key)
        try:
            spans = [
                (block.start + start, block.start + start + size)
                for block, head, parts in _pieces_of(layout, unit, columns)
                for first, last in parts[1]
                for start, size in head.buffers[first:last].tolist()
                if size
            ]
        except ValueError as error:
            raise SourceFormatError(_broken(file, unit, error)) from error
        return joined_spans(spans, _NEAR)

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Read the batches as a stream of the columns alone, and cut out the unit's rows."""
        arrow = require("pyarrow", extra="parquet", purpose="Arrow files")
        ipc = require("pyarrow.ipc", extra="parquet", purpose="Arrow files")
        layout = _layout(meta, file.key)
        if not _wanted(layout, columns):
            return without_columns(unit.samples)
        try:
            stream = _stream(layout, unit, SparseFile(pieces, file.size), columns)
            options = ipc.IpcReadOptions(use_threads=False)
            with ipc.open_stream(arrow.py_buffer(stream), options=options) as opened:
                count = len(parts_of(unit, len(layout.batches)))
                batches = [opened.read_next_batch() for _ in range(count)]
            table = arrow.Table.from_batches(batches)
            table.validate(full=True)
        except (arrow.ArrowException, OSError, ValueError, StopIteration, MemoryError) as error:
            raise SourceFormatError(_broken(file, unit, error)) from error
        return table.slice(max(0, unit.part), unit.samples)


def _decoded(head: Head) -> int:
    return head.body * (_GROWS if head.codec >= 0 else 1)


def _schema(layout: Layout) -> Any:  # noqa: ANN401 - of an optional dependency
    arrow = require("pyarrow", extra="parquet", purpose="Arrow files")
    ipc = require("pyarrow.ipc", extra="parquet", purpose="Arrow files")
    return ipc.read_schema(arrow.py_buffer(layout.schema))


def _wanted(layout: Layout, columns: Sequence[str] | None) -> list[int]:
    if columns is None:
        return list(range(len(layout.columns)))
    chosen = set(columns)
    return [at for at, column in enumerate(layout.columns) if column.name in chosen]


def _pieces_of(
    layout: Layout, unit: Unit, columns: Sequence[str] | None
) -> Iterator[
    tuple[Block, Head, tuple[list[tuple[int, int]], list[tuple[int, int]], tuple[int, ...]]]
]:
    """Yield the dictionaries and batches of a unit, what their messages say, and what is wanted."""
    wanted = _wanted(layout, columns)
    ids = {number for at in wanted for number in layout.columns[at].ids}
    numbers = parts_of(unit, len(layout.batches))
    if not wanted:
        return
    for number, blocks in _in_order(layout, numbers, ids):
        for block in blocks:
            head = head_of(block.head)
            yield (
                block,
                head,
                ([(0, len(head.nodes) // 16)], [(0, len(head.buffers))], head.variadic),
            )
        block = layout.batches[number]
        head = head_of(block.head)
        yield block, head, head.parts(layout.columns, wanted)


def _in_order(layout: Layout, numbers: range, ids: set[int]) -> Iterator[tuple[int, list[Block]]]:
    """Yield each batch with the dictionaries that come before it and not before the last one.

    Before the first these are all that count there: of each the last whole one, and what was added.
    """
    first: dict[int, list[Block]] = {}
    later: dict[int, list[Block]] = {}
    for block in layout.dictionaries:
        number, adds = dictionary_of(block.head)
        if number not in ids:
            continue
        if block.before <= numbers.start:
            first.setdefault(number, [])
            first[number] = [*(first[number] if adds else ()), block]
        else:
            later.setdefault(block.before, []).append(block)
    if ids - first.keys():
        msg = f"the dictionaries {sorted(ids - first.keys())[:8]} are missing"
        raise ValueError(msg)
    wholes = [blocks[0] for blocks in first.values()]
    added = [block for blocks in first.values() for block in blocks[1:]]
    for number in numbers:
        before = [*wholes, *added] if number == numbers.start else later.get(number, [])
        yield number, before


def _stream(layout: Layout, unit: Unit, sparse: SparseFile, columns: Sequence[str] | None) -> bytes:
    """Return an Arrow stream of a unit's batches, of the wanted columns alone."""
    arrow = require("pyarrow", extra="parquet", purpose="Arrow files")
    wanted = _wanted(layout, columns)
    whole = _schema(layout)
    schema = arrow.schema([whole.field(at) for at in wanted]).serialize().to_pybytes()
    renamed = _renamed([layout.columns[at] for at in wanted], schema)
    out: list[bytes] = [schema]
    for block, head, parts in _pieces_of(layout, unit, columns):
        read = _reading(sparse, block)
        if head.codec >= 0:
            _check_growth(head, parts[1], read)
        if block in layout.dictionaries:
            number, adds = dictionary_of(block.head)
            for name in renamed[number]:
                out += rebuilt(head, parts, read, (name, adds))
        else:
            out += rebuilt(head, parts, read)
    return b"".join([*out, _END])


def _renamed(columns: Sequence[Column], schema: bytes) -> dict[int, list[int]]:
    """Return by which numbers a schema of some columns calls each dictionary."""
    found: dict[int, list[int]] = {}
    old = [number for column in columns for number in column.ids]
    new = [number for column in schema_of_message(schema[8:]) for number in column.ids]
    for number, name in zip(old, new, strict=True):
        if name not in found.setdefault(number, []):
            found[number].append(name)
    return found


def _reading(sparse: SparseFile, block: Block) -> Callable[[int, int], bytes]:
    def read(start: int, stop: int) -> bytes:
        sparse.seek(block.start + start)
        return sparse.read(stop - start)

    return read


def _check_growth(
    head: Head, spans: Sequence[tuple[int, int]], read: Callable[[int, int], bytes]
) -> None:
    """Raise `ValueError` if compressed buffers claim to become more than one can believe."""
    total = stored = 0
    for first, last in spans:
        for start, size in head.buffers[first:last].tolist():
            if size >= _LENGTH:
                claimed = int.from_bytes(read(start, start + _LENGTH), "little", signed=True)
                total += max(claimed, 0)
                stored += size
    if total > max(_SMALL, _RATIO * stored):
        msg = f"{stored} compressed bytes claim to become {total}"
        raise ValueError(msg)


@lru_cache(maxsize=32)
def _layout(data: bytes, where: str) -> Layout:
    try:
        return _LAYOUT.decode(data)
    except msgspec.DecodeError as error:
        msg = f"{where}: its index is broken: {error}; index it again"
        raise SourceFormatError(msg) from error


def _broken(file: SourceFile, unit: Unit, error: Exception) -> str:
    return f"{file.key}, batch {unit.number}: {error!s:.300}"
