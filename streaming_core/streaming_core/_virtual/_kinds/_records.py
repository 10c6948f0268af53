"""Text that is cut between its records: what JSON lines, plain lines, JSON arrays and CSV share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from streaming_core._extras import require
from streaming_core._virtual._kinds._inflate import (
    Inflater,
    compression_of,
    family_of,
    marks_of,
    span_of,
)
from streaming_core._virtual._kinds._lines import Block, Text, cut, ends_in, first_bad
from streaming_core._virtual._model import Kind, Scan, Unit
from streaming_core.errors import SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from streaming_core._codec import Buffer
    from streaming_core._virtual._kinds._lines import Scanner
    from streaming_core._virtual._model import Piece, SourceFile, SourceReader

__all__ = ["LIMITS", "Form", "Limits", "Records", "RowError", "arrow", "leaves_of"]

_UNIT_BYTES: Final = 8 << 20
_RECORD_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 1100  # gzip cannot reach it
_CELL_BYTES: Final = 8
_TABLE_BYTES: Final = 1 << 30


def arrow(module: str = "") -> Any:  # noqa: ANN401 - a module of an optional dependency
    """Return a module of pyarrow."""
    return require(f"pyarrow{module}", extra="parquet", purpose="text files as data")


def leaves_of(schema: Any) -> int:  # noqa: ANN401 - of an optional dependency
    """Return how many columns a schema has, those within others counted."""
    return sum(_leaves(field.type) for field in schema)


def _leaves(kind: Any) -> int:  # noqa: ANN401 - of an optional dependency
    return 1 + sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))


@dataclass(frozen=True, slots=True)
class Limits:
    """How large things may be."""

    unit_bytes: int = _UNIT_BYTES
    """Text of more is cut at the end of the next record."""
    max_record_bytes: int = _RECORD_BYTES
    """A record of more is refused."""
    max_ratio: int = _MOST_RATIO
    """A compressed file that expands to more than so many times its size is refused."""

    def __post_init__(self) -> None:
        for name in LIMITS:
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                msg = f"{name} must be a whole number from 1 on; came {value!r}"
                raise SchemaError(msg)


LIMITS: Final = ("unit_bytes", "max_record_bytes", "max_ratio")


class RowError(Exception):
    """A row that cannot be read: which of its block, and why."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


class Form(ABC):
    """How the records of one file are written. What `learn` changes is of one scan only."""

    code = ""
    """What tells it from other forms of the kind, for `Records.form_of`."""
    header = False
    """Whether the first record is none of the rows; it is handed to `read_header`."""

    @abstractmethod
    def scanner(self) -> Scanner:
        """Return what finds the records' ends."""

    def read_header(self, data: bytes) -> None:
        """Take the first record; `ValueError` says what is wrong with it."""
        raise NotImplementedError

    @abstractmethod
    def learn(self, data: bytes, ends: Any) -> int:  # noqa: ANN401 - an array
        """Look at rows for the types of the columns; return about how many bytes they decode to.

        Raises:
            RowError: A row is broken, or does not fit those before.
        """

    @abstractmethod
    def schema(self) -> Any:  # noqa: ANN401 - of an optional dependency
        """Return the `pyarrow.Schema` that all rows seen fit; `ValueError` if there is none."""

    def names(self) -> list[str]:
        """Return the names of all columns in their order, where rows do not tell them."""
        return []

    @abstractmethod
    def table(self, data: bytes, schema: Any, columns: Sequence[str] | None) -> Any:  # noqa: ANN401 - of an optional dependency
        """Return the rows of whole records; a `ValueError`, as Arrow's are, if they do not fit."""


class About(msgspec.Struct, frozen=True, array_like=True):
    """What decoding needs to know of a file."""

    schema: bytes
    form: str
    names: list[str]
    starts: bytes
    """Of each unit, where in the text it begins."""
    lines: bytes
    """Of each unit, the number of its first line."""
    marks: bytes
    """Of a compressed file, the places where expanding can begin."""


_ABOUT: Final = msgspec.msgpack.Decoder(About)


class Records(Kind):
    """A format whose files are records one after the other, plain or compressed.

    A unit is the records whose first bytes lie in a range of the text; `number` is where it begins
    and `part` where it ends. Counting reads each file once.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @abstractmethod
    def form(self, text: Text) -> Form:
        """Return the form of a file by its first bytes, which it may pass over."""

    @abstractmethod
    def form_of(self, code: str, names: list[str]) -> Form:
        """Return the form that a scan found."""

    def scan(self, reader: SourceReader) -> Scan:
        """Read the whole file, count its rows, and learn their columns."""
        where, file, limits = reader.where, reader.file, self._limits
        inflater = None
        if compression_of(file.key, where) is not None:
            inflater = self._inflater(file, where)
        units: list[Unit] = []
        lines: list[int] = []
        with closing(_pieces(reader, inflater)) as pieces:
            text = Text(pieces, where)
            form = self.form(text)
            blocks = cut(
                text,
                form.scanner(),
                where,
                unit_bytes=limits.unit_bytes,
                most_bytes=limits.max_record_bytes,
                header=form.header,
            )
            for nth, block in enumerate(blocks):
                _check_utf8(block, where)
                if not len(block.ends):
                    continue
                if form.header and not nth:
                    _read_header(form, block, where)
                else:
                    units.append(_learnt(form, block, where))
                    lines.append(block.line)
        try:
            schema = form.schema()
        except ValueError as error:
            msg = f"{where}: {error!s:.600}"
            raise SourceFormatError(msg) from error
        _check_cells(schema, units, where)
        marks = [] if inflater is None else inflater.marks
        about = About(
            schema.serialize().to_pybytes(),
            form.code,
            form.names(),
            np.array([unit.number for unit in units], "<i8").tobytes(),
            np.array(lines, "<i8").tobytes(),
            np.array(marks, "<i8").tobytes(),
        )
        return Scan(schema, tuple(units), msgspec.msgpack.encode(about))

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return the unit's bytes, or of a compressed file those that it can be expanded from."""
        del columns  # all are in the same bytes
        marks = marks_of(_about(meta, file.key)[0].marks)
        if not marks:
            return [(unit.number, unit.part)]
        mark, stop = span_of(marks, file.size, unit.number, unit.part)
        return [(mark.packed, stop)]

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Parse the unit's records."""
        about, schema = _about(meta, file.key)
        data = pieces[0].data
        if marks := marks_of(about.marks):
            mark, _ = span_of(marks, file.size, unit.number, unit.part)
            (data,) = self._inflater(file).texts([data], mark, [(unit.number, unit.part)])
        return self._parsed(file, about, schema, unit, data, columns)

    def kin(
        self, file: SourceFile, meta: Callable[[], bytes], units: Sequence[Unit], at: int
    ) -> range:
        """Return the units that are expanded from the same place, and those that reach over it."""
        if compression_of(file.key, file.key) is None:
            return range(at, at + 1)
        about, _ = _about(meta(), file.key)
        return family_of(about.marks, file.size, tuple(map(_place, units)), at)

    def tables(
        self,
        reader: SourceReader,
        meta: bytes,
        units: Sequence[Unit],
        columns: Sequence[str] | None,
    ) -> Iterator[Any]:
        """Expand the bytes of all once, as they come; a unit's text is in memory at a time."""
        file = reader.file
        about, schema = _about(meta, file.key)
        marks = marks_of(about.marks)
        if not marks:
            yield from super().tables(reader, meta, units, columns)
            return
        mark, stop = span_of(marks, file.size, units[0].number, units[-1].part)
        packed = reader.steps(mark.packed, stop)
        texts = self._inflater(file).texts(packed, mark, list(map(_place, units)))
        with closing(texts):
            for unit, data in zip(units, texts, strict=True):
                yield self._parsed(file, about, schema, unit, data, columns)

    def _inflater(self, file: SourceFile, where: str = "") -> Inflater:
        where = where or file.key
        code = compression_of(file.key, where) or ""
        return Inflater(code, where, most_ratio=self._limits.max_ratio, size=file.size)

    def _parsed(
        self,
        file: SourceFile,
        about: About,
        schema: Any,  # noqa: ANN401 - of an optional dependency
        unit: Unit,
        data: bytes,
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Return the rows of a unit's text."""
        starts = np.frombuffer(about.starts, "<i8")
        line = int(np.frombuffer(about.lines, "<i8")[np.searchsorted(starts, unit.number)])
        block = Block(unit.number, data, np.empty(0, np.int64), line)
        _check_utf8(block, file.key)
        form = self.form_of(about.form, about.names)
        try:
            table = form.table(data, schema, columns)
        except ValueError as error:
            raise _broken(form, block, schema, columns, unit, file.key) from error
        if table.num_rows != unit.samples:
            raise _broken(form, block, schema, columns, unit, file.key)
        return table


# --- scan -----------------------------------------------------------------------------------------


def _pieces(reader: SourceReader, inflater: Inflater | None) -> Generator[Buffer]:
    pieces = reader.pieces()
    yield from pieces if inflater is None else inflater.expand(pieces)


def _read_header(form: Form, block: Block, where: str) -> None:
    try:
        form.read_header(block.data)
    except ValueError as error:
        raise _placed(block, RowError(0, str(error)), where) from error


def _learnt(form: Form, block: Block, where: str) -> Unit:
    stop = int(block.ends[-1])
    try:
        nbytes = form.learn(block.data[:stop], block.ends)
    except RowError as error:
        raise _placed(block, error, where) from error.__cause__
    return Unit(len(block.ends), nbytes, block.start, block.start + stop)


def _placed(block: Block, error: RowError, where: str) -> SourceFormatError:
    line, byte = block.place(error.row)
    return SourceFormatError(f"{where}, line {line}, byte {byte}: {error!s:.600}")


def _check_utf8(block: Block, where: str) -> None:
    if block.data.isascii():
        return
    library = arrow()
    offsets = library.py_buffer(np.array([0, len(block.data)]))
    whole = library.LargeBinaryArray.from_buffers(
        library.large_binary(), 1, [None, offsets, library.py_buffer(block.data)]
    )
    try:
        whole.cast(library.large_string())
    except library.ArrowException as error:
        at = 0
        try:
            block.data.decode()
        except UnicodeDecodeError as found:
            at = found.start
        line = block.line + block.data.count(b"\n", 0, at)
        msg = (
            f"{where}, line {line}, byte {block.start + at}: {block.data[at : at + 4]!r} is no "
            "UTF-8; write the file anew in UTF-8"
        )
        raise SourceFormatError(msg) from error


def _check_cells(schema: Any, units: Sequence[Unit], where: str) -> None:  # noqa: ANN401 - of an optional dependency
    """Refuse what would not fit memory: a column takes room for each row that lacks it, too."""
    most = max((unit.samples for unit in units), default=0)
    columns = leaves_of(schema)
    if most * columns * _CELL_BYTES > _TABLE_BYTES:
        msg = (
            f"{where}: {most} rows of a unit have {columns} columns, most of them missing; cut it "
            "smaller with the option unit_bytes, choose columns with the option schema, or read "
            "those whose keys are data with as_text"
        )
        raise SourceFormatError(msg)


# --- decode ---------------------------------------------------------------------------------------


def _place(unit: Unit) -> tuple[int, int]:
    """Return where in the text a unit begins and ends."""
    return unit.number, unit.part


@lru_cache(maxsize=64)
def _about(meta: bytes, where: str) -> tuple[About, Any]:
    library = arrow()
    try:
        about = _ABOUT.decode(meta)
        return about, library.ipc.read_schema(library.py_buffer(about.schema))
    except (msgspec.DecodeError, library.ArrowException, OSError) as error:
        msg = f"{where}: what the index says of it is broken; index it again"
        raise SourceFormatError(msg) from error


def _broken(
    form: Form,
    block: Block,
    schema: Any,  # noqa: ANN401 - of an optional dependency
    columns: Sequence[str] | None,
    unit: Unit,
    where: str,
) -> SourceFormatError:
    """Return the error that names the first row that cannot be read."""
    try:
        ends = ends_in(form.scanner(), block.data)
    except ValueError as error:
        return _placed(block, RowError(0, str(error)), where)

    def attempt(count: int) -> None:
        rows = form.table(block.data[: int(ends[count - 1])], schema, columns).num_rows
        if rows != count:
            msg = f"this is no one row: {rows} came of {count}"
            raise ValueError(msg)

    row, why = first_bad(len(ends), attempt) if len(ends) else (0, "")
    if not why:
        why = f"{len(ends)} rows begin here, {unit.samples} were indexed; index it again"
        row = 0
    return _placed(block._replace(ends=ends), RowError(row, why), where)
