"""A table's files as a format of their own: its columns, less the rows that it has deleted."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._kinds import open_kind
from streaming_core._virtual._model import Kind, Piece, Scan, SourceFile, SourceReader, Unit
from streaming_core._virtual._tables._plan import TablePlan, keep_bits, parse
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._virtual._tables._layout import Layout

__all__ = ["TableFiles"]


class _Span(NamedTuple):
    """The rows of a unit in its file, deleted ones included."""

    number: int
    part: int
    first: int
    rows: int


class _Meta(msgspec.Struct, frozen=True, array_like=True):
    """What decoding needs of one file."""

    schema: bytes
    spans: list[tuple[int, int, int, int]]
    meta: bytes


class TableFiles(Kind):
    """The files of a `TablePlan`, each read by the format that it has."""

    name = "table"
    suffixes = ()
    options = ("plan",)

    def __init__(self, plan: bytes) -> None:
        """Read by the plan in `plan`; raises `IndexInvalidError` if it is none."""
        self._plan = parse(bytes(plan), "the plan of a table")

    @property
    def plan(self) -> TablePlan:
        """What is read."""
        return self._plan

    @cached_property
    def _at(self) -> dict[str, int]:
        return {file.key: at for at, file in enumerate(self._plan.files)}

    def scan(self, reader: SourceReader) -> Scan:
        """Look at a file, and leave out what the table has deleted."""
        at = self._at[reader.file.key]
        planned = self._plan.files[at]
        found = open_kind(planned.kind).scan(reader)
        self._plan.check_rows(at, sum(unit.samples for unit in found.units))
        self._plan.layout(at, found.schema)  # says at once if it cannot be of this table
        spans: list[tuple[int, int, int, int]] = []
        units: list[Unit] = []
        first = 0
        for unit in found.units:
            spans.append((unit.number, unit.part, first, unit.samples))
            bounds = np.searchsorted(planned.deleted, (first, first + unit.samples)).tolist()
            left = unit.samples - (bounds[1] - bounds[0])
            first += unit.samples
            if left:
                units.append(unit._replace(samples=left))
        schema = found.schema.serialize().to_pybytes()
        meta = msgspec.msgpack.encode(_Meta(schema, spans, found.meta))
        return Scan(self._schema, tuple(units), meta)

    @cached_property
    def _schema(self) -> Any:  # noqa: ANN401 - of an optional dependency
        """The table's columns, without what finds them in files."""
        arrow = require("pyarrow", extra="parquet", purpose="reading a table")
        return arrow.schema([field.remove_metadata() for field in self._plan.schema])

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return which bytes hold the columns, by whatever names the file has them."""
        at, known = self._at[file.key], _parsed(meta, file.key)
        names = self._layout(at, known).sources(columns)
        if not names:  # all of them are the same in all rows
            return []
        kind = open_kind(self._plan.files[at].kind)
        return kind.ranges(file, known.meta, _whole(known, unit), names)

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Decode a unit by its file's own format, in the table's columns, without what is gone."""
        arrow = require("pyarrow", extra="parquet", purpose="reading a table")
        at, known = self._at[file.key], _parsed(meta, file.key)
        planned, layout, span = self._plan.files[at], self._layout(at, known), _span(known, unit)
        names = layout.sources(columns)
        raw = None
        if names:
            kind = open_kind(planned.kind)
            raw = kind.decode(file, known.meta, _whole(known, unit), pieces, names)
        table = layout.table(raw, columns, span.rows)
        bits = keep_bits(planned.deleted, span.first, span.rows)
        if bits is None:
            return table
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=span.rows).astype(bool)
        return table.filter(arrow.array(mask))

    def _layout(self, at: int, known: _Meta) -> Layout:
        arrow = require("pyarrow", extra="parquet", purpose="reading a table")
        schema = arrow.ipc.read_schema(arrow.py_buffer(known.schema))
        return self._plan.layout(at, schema)


@lru_cache(maxsize=32)
def _parsed(meta: bytes, where: str) -> _Meta:
    try:
        return msgspec.msgpack.decode(meta, type=_Meta)
    except msgspec.DecodeError as error:
        msg = f"{where}: what was noted of the file is broken: {error!s:.200}; index it again"
        raise SourceFormatError(msg) from error


def _span(known: _Meta, unit: Unit) -> _Span:
    for span in known.spans:
        if span[:2] == (unit.number, unit.part):
            return _Span(*span)
    msg = f"no rows were noted of part {unit.number}, {unit.part}; index it again"
    raise SourceFormatError(msg)


def _whole(known: _Meta, unit: Unit) -> Unit:
    """Return a unit as the file's own format counted it."""
    return unit._replace(samples=_span(known, unit).rows)
