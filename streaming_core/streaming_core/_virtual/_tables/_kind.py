"""A table's files as a format of their own: its columns, less the rows that it has deleted."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._kinds import open_kind
from streaming_core._virtual._model import (
    Bounds,
    Kind,
    Piece,
    Scan,
    SourceFile,
    SourceReader,
    Unit,
)
from streaming_core._virtual._tables._plan import TablePlan, keep_bits, parse
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


_META: Final = msgspec.msgpack.Decoder(_Meta)


class TableFiles(Kind):
    """The files of a `TablePlan`, each read by the format that it has."""

    name = "table"
    suffixes = ()
    options = ("plan",)
    is_of_table = True

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
        try:
            found = open_kind(planned.kind).scan(reader)
        except SourceFormatError:
            reader.check_size()  # another size explains what is wrong
            raise
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
        at, known = self._at[file.key], _parsed(meta, file.key)
        names = self._layout(at, known).sources(columns)
        raw = None
        if names:
            kind = open_kind(self._plan.files[at].kind)
            raw = kind.decode(file, known.meta, _whole(known, unit), pieces, names)
        return self._left(at, known, unit, raw, columns)

    def kin(
        self, file: SourceFile, meta: Callable[[], bytes], units: Sequence[Unit], at: int
    ) -> range:
        """Return what the file's own format does."""
        kind = open_kind(self._plan.files[self._at[file.key]].kind)
        return kind.kin(file, lambda: _parsed(meta(), file.key).meta, units, at)

    def tables(
        self,
        reader: SourceReader,
        meta: bytes,
        units: Sequence[Unit],
        columns: Sequence[str] | None,
    ) -> Iterator[Any]:
        """Decode some units by their file's own format; see `decode`."""
        file = reader.file
        at, known = self._at[file.key], _parsed(meta, file.key)
        names = self._layout(at, known).sources(columns)
        raws: Iterator[Any] = iter([None] * len(units))
        if names:
            wholes = [_whole(known, unit) for unit in units]
            raws = open_kind(self._plan.files[at].kind).tables(reader, known.meta, wholes, names)
        for unit, raw in zip(units, raws, strict=True):
            yield self._left(at, known, unit, raw, columns)

    def bounds(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str]
    ) -> Mapping[str, Bounds]:
        """Return what the file's own format knows of the columns, by whatever names it has them.

        And what the table says of those that the file lacks. Deleted rows count as if they were
        there, so that bounds may be wider than need be.
        """
        at, known = self._at[file.key], _parsed(meta, file.key)
        layout = self._layout(at, known)
        sources = {name: layout.source(name) for name in columns}
        inside = [name for name in sources.values() if name is not None]
        kind = open_kind(self._plan.files[at].kind)
        told: Mapping[str, Bounds] = {}
        if inside:
            told = kind.bounds(file, known.meta, _whole(known, unit), inside)
        found: dict[str, Bounds] = {}
        for name, source in sources.items():
            if source is None:
                found[name] = _constant_bounds(layout.constant(name))
            elif source in told:
                found[name] = _fitted(told[source], self._schema.field(name).type)
        return found

    def _left(
        self,
        at: int,
        known: _Meta,
        unit: Unit,
        raw: Any,  # noqa: ANN401 - a table of an optional dependency
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - see above
        """Return a file's rows in the table's columns, without those that it has deleted."""
        arrow = require("pyarrow", extra="parquet", purpose="reading a table")
        span = _span(known, unit)
        table = self._layout(at, known).table(raw, columns, span.rows)
        bits = keep_bits(self._plan.files[at].deleted, span.first, span.rows)
        if bits is None:
            return table
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=span.rows).astype(bool)
        return table.filter(arrow.array(mask))

    def _layout(self, at: int, known: _Meta) -> Layout:
        return _layout_of(self._plan, at, known.schema)


@lru_cache(maxsize=32)
def _layout_of(plan: TablePlan, at: int, schema: bytes) -> Layout:
    arrow = require("pyarrow", extra="parquet", purpose="reading a table")
    return plan.layout(at, arrow.ipc.read_schema(arrow.py_buffer(schema)))


def _constant_bounds(value: Any) -> Bounds:  # noqa: ANN401 - an Arrow scalar
    """Return what is known of a column that has one value in all rows, or none."""
    if not value.is_valid:
        return Bounds(None, None, has_null=True, has_value=False)
    return Bounds(value, value, has_null=False, has_value=True)


def _fitted(bounds: Bounds, kind: Any) -> Bounds:  # noqa: ANN401 - an Arrow type
    """Return bounds of a file's column as those of the table's, of the type `kind`.

    Without the ends where the table's values might be in another order than the file's.
    """
    types = require("pyarrow.types", extra="parquet", purpose="reading a table")
    families: tuple[Callable[[Any], bool], ...] = (
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        lambda end: types.is_string(end) or types.is_large_string(end),
        lambda end: types.is_binary(end) or types.is_large_binary(end),
    )
    for end in (bounds.least, bounds.most):
        if end is None or end.type.equals(kind):
            continue
        if not any(family(end.type) and family(kind) for family in families):
            return bounds._replace(least=None, most=None)
    return bounds


@lru_cache(maxsize=32)
def _parsed(meta: bytes, where: str) -> _Meta:
    try:
        return _META.decode(meta)
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
