"""ORC: a unit is a stripe, some small ones together, or a part of a large one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streaming_core._extras import require
from streaming_core._virtual._kinds._orc_bounds import (
    Said,
    kinds_of,
    stripe_bounds,
    stripe_statistics,
)
from streaming_core._virtual._kinds._orc_streams import Stream, check_lengths, spans_of, streams_of
from streaming_core._virtual._kinds._orc_tail import (
    MAGIC,
    Form,
    PostScript,
    Stripe,
    Tail,
    post_script,
    tail_of,
    without_stripes,
)
from streaming_core._virtual._kinds._packing import PackedKind, packed, parts_of, without_columns
from streaming_core._virtual._kinds._sparse_file import SparseFile
from streaming_core._virtual._model import Bounds, Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Orc"]

_TAIL_BYTES: Final = 64 << 10
_LEAST_BYTES: Final = 4
_STATISTICS_MOST: Final = 8 << 20
_GROWS: Final = 4
"""By how much encoded bytes grow when they are decoded, where no statistics tell."""


class _Meta(msgspec.Struct, frozen=True, array_like=True):
    form: Form
    stripes: tuple[Stripe, ...]
    footers: tuple[bytes, ...]
    """Each stripe's own, as it lies in the file."""
    names: tuple[str, ...] = ()
    """Of the columns."""
    statistics: bytes = b""
    """Of the stripes, as they lie in the file."""


_META: Final = msgspec.msgpack.Decoder(_Meta)


class Orc(PackedKind):
    """ORC files, of which only the wanted columns' streams are fetched."""

    name = "orc"
    suffixes = (".orc",)

    def scan(self, reader: SourceReader) -> Scan:
        """Read the tail, and the stripes' footers, which say where each column lies."""
        where = reader.where
        piece = reader.tail(_TAIL_BYTES)
        try:
            tail, piece, statistics = _tail(reader, piece)
        except ValueError as error:
            msg = f"{where}: no ORC file that can be read: {error}"
            raise SourceFormatError(msg) from error
        missing = [
            (stripe.streams_end, stripe.end)
            for stripe in tail.stripes
            if stripe.streams_end < piece.start
        ]
        sparse = SparseFile([*reader.ranges(missing), piece], reader.file.size)
        footers: list[bytes] = []
        for stripe in tail.stripes:
            sparse.seek(stripe.streams_end)
            footers.append(sparse.read(stripe.footer))
        meta = _Meta(tail.form, tail.stripes, tuple(footers), (), statistics)
        schema = _schema(meta, where)
        meta = msgspec.structs.replace(meta, names=tuple(schema.names))
        try:
            for stripe, footer in zip(tail.stripes, footers, strict=True):
                streams_of(stripe, footer, tail.form, None)
        except ValueError as error:
            msg = f"{where}: the footer of a stripe is broken: {error}"
            raise SourceFormatError(msg) from error
        units = packed([(stripe.rows, _decoded(stripe, tail)) for stripe in tail.stripes])
        return Scan(schema, tuple(units), msgspec.msgpack.encode(meta))

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return the columns' streams."""
        known = _meta(meta, file.key)
        wanted = None if columns is None else _numbers_of(known, columns)
        try:
            return [
                span
                for at in parts_of(unit, len(known.stripes))
                for span in spans_of(_streams(known, at, wanted))
            ]
        except ValueError as error:
            raise SourceFormatError(_broken(file, unit, error)) from error

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Decode the stripes as a file of their own, and cut out the unit's rows."""
        arrow = require("pyarrow", extra="parquet", purpose="ORC")
        known = _meta(meta, file.key)
        wanted = None if columns is None else _numbers_of(known, columns)
        first = max(0, unit.part)
        if wanted == []:
            return without_columns(unit.samples)
        try:
            numbers = parts_of(unit, len(known.stripes))
            sparse = SparseFile(pieces, file.size)
            for at in numbers:
                check_lengths(_streams(known, at, wanted), known.form, _reading(sparse))
            opened = _opened(known, numbers, pieces)
            tables = [
                arrow.Table.from_batches([opened.read_stripe(at, columns=wanted)])
                for at in range(len(numbers))
            ]
            table = tables[0] if len(tables) == 1 else arrow.concat_tables(tables)
            table = table.slice(first, unit.samples)
            table.validate(full=True)
        except (arrow.ArrowException, OSError, ValueError, MemoryError) as error:
            raise SourceFormatError(_broken(file, unit, error)) from error
        return table

    def bounds(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str]
    ) -> Mapping[str, Bounds]:
        """Return what the statistics say; of a part of a stripe what they say of all of it."""
        known = _meta(meta, file.key)
        statistics, kinds, schema = _statistics(meta, file.key)
        found: dict[str, Bounds] = {}
        try:
            numbers = parts_of(unit, len(known.stripes))
            stripes = [
                Said(known.stripes[at].rows, statistics[at], known.footers[at]) for at in numbers
            ]
            for name in columns:
                at = known.names.index(name)
                first, end = known.form.columns[at]
                if end - first == 1:
                    kind = schema.field(at).type
                    found[name] = stripe_bounds(stripes, known.form, first, kinds[first], kind)
        except (ValueError, IndexError):  # broken, or none: nothing is known
            return {}
        return found


def _tail(reader: SourceReader, piece: Piece) -> tuple[Tail, Piece, bytes]:
    """Return what the file's end says, its last bytes, and what these say of the stripes' values.

    Statistics that are too long, or cannot be there, are none.
    """
    size = reader.file.size
    if size < _LEAST_BYTES:
        msg = f"it has {size} bytes"
        raise ValueError(msg)
    length = piece.data[-1]
    if length + 1 > size:
        msg = f"it claims a last part of {length} bytes and has {size} in all"
        raise ValueError(msg)
    script = _script(reader, piece.data[-1 - length : -1])
    end = size - 1 - length
    begin = end - script.footer
    if begin < len(MAGIC):
        msg = f"a footer of {script.footer} bytes in a file of {size}"
        raise ValueError(msg)
    first = begin - script.metadata
    if not len(MAGIC) <= first or script.metadata > _STATISTICS_MOST:
        first = begin
    if first < piece.start:
        missing = reader.ranges([(first, piece.start)])[0]
        piece = Piece(first, missing.data + piece.data)
    tail = tail_of(piece.data[begin - piece.start : end - piece.start], script, begin)
    return tail, piece, piece.data[first - piece.start : begin - piece.start]


def _script(reader: SourceReader, data: bytes) -> PostScript:
    try:
        script = post_script(data)
        problem: ValueError | None = None
    except ValueError as error:
        script, problem = None, error
    if script is None or not script.magic:
        # The first files of this format have the magic at the front alone.
        front = reader.ranges([(0, len(MAGIC))])[0].data
        if front != MAGIC:
            msg = f"it begins with {front!r} where {MAGIC!r} was expected"
            raise ValueError(msg)
        if script is None:
            raise problem or ValueError
    return script


def _streams(known: _Meta, at: int, wanted: Sequence[int] | None) -> list[Stream]:
    return streams_of(known.stripes[at], known.footers[at], known.form, wanted)


def _reading(sparse: SparseFile) -> Callable[[int, int], bytes]:
    def read(start: int, stop: int) -> bytes:
        sparse.seek(start)
        return sparse.read(stop - start)

    return read


def _decoded(stripe: Stripe, tail: Tail) -> int:
    if tail.row_bytes:
        return int(stripe.rows * tail.row_bytes)
    return stripe.data * _GROWS


def _opened(known: _Meta, numbers: Sequence[int], pieces: Sequence[Piece]) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return a file of some stripes, as far as its pieces are here."""
    arrow = require("pyarrow", extra="parquet", purpose="ORC")
    orc = require("pyarrow.orc", extra="parquet", purpose="ORC")
    stripes = tuple(known.stripes[at] for at in numbers)
    end = max((stripe.end for stripe in stripes), default=len(MAGIC))
    tail = without_stripes(known.form, stripes, end)
    parts = [
        *pieces,
        *(Piece(known.stripes[at].streams_end, known.footers[at]) for at in numbers),
        Piece(end, tail),
    ]
    return orc.ORCFile(arrow.PythonFile(SparseFile(parts, end + len(tail)), mode="r"))


def _schema(meta: _Meta, where: str) -> Any:  # noqa: ANN401 - see above
    arrow = require("pyarrow", extra="parquet", purpose="ORC")
    try:
        return _opened(meta, (), ()).schema.remove_metadata()
    except (arrow.ArrowException, OSError, ValueError) as error:
        msg = f"{where}: its columns cannot be read: {error!s:.300}"
        raise SourceFormatError(msg) from error


def _numbers_of(known: _Meta, columns: Sequence[str]) -> list[int]:
    wanted = set(columns)
    return [at for at, name in enumerate(known.names) if name in wanted]


@lru_cache(maxsize=32)
def _meta(data: bytes, where: str) -> _Meta:
    try:
        return _META.decode(data)
    except msgspec.DecodeError as error:
        msg = f"{where}: its index is broken: {error}; index it again"
        raise SourceFormatError(msg) from error


@lru_cache(maxsize=32)
def _statistics(data: bytes, where: str) -> tuple[list[list[bytes]], list[int], Any]:
    """Return the statistics of each stripe, the kinds of types, and the columns."""
    known = _meta(data, where)
    try:
        statistics = stripe_statistics(known.statistics, known.form)
        if len(statistics) == len(known.stripes):
            return statistics, kinds_of(known.form), _schema(known, where)
    except ValueError:
        pass
    return [], [], None


def _broken(file: SourceFile, unit: Unit, error: Exception) -> str:
    return f"{file.key}, stripe {unit.number}: {error!s:.300}"
