"""JSON objects, one a row: their types from all of them, and their values by Arrow's parser."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from streaming_core._virtual._kinds._json_numbers import NumbersAgain, number_leaves
from streaming_core._virtual._kinds._json_types import (
    AS_TEXT,
    depth_of,
    joined,
    mended,
    plain,
    schema_of,
    stand_in,
)
from streaming_core._virtual._kinds._lines import INK, LineScanner, Scanner, ends_in, first_bad
from streaming_core._virtual._kinds._records import Form, RowError, arrow, leaves_of
from streaming_core._virtual._kinds._whole_numbers import WholeNumbers
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["JsonRows"]

_CHUNK_BYTES: Final = 1 << 19
_CHUNK_CELLS: Final = 100_000_000
"""Most rows times bytes of what is parsed without knowing its columns: each row may have others,
and each column takes room in all rows."""
_MOST_COLUMNS: Final = 10_000
_MOST_NESTED: Final = 48
"""Arrow's own files go to 63, and its parser ends the process from some thousands on."""
_BLANKS_IN_ROW: Final = 64
_NULL_LINE: Final = re.compile(rb"\n[ \t\r]*null")
"""Which Arrow's parser takes for a row."""
_KEY: Final = re.compile(rb'"([^"\\]*)"[ \t\r\n]*:')
_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{")
_IN_ROW: Final = re.compile(r"\.? in row \d+$")
_GUARD: Final = "\0"


class JsonRows(Form):
    """JSON objects on a line each."""

    code = "lines"

    def __init__(self, schema: Mapping[str, Any] | None, as_text: Sequence[str]) -> None:
        self._given = None if schema is None else _checked(schema_of(schema))
        self._as_text = frozenset(as_text)
        self._schema: Any = None
        self._numbers = WholeNumbers()

    def scanner(self) -> Scanner:
        """Return that of lines."""
        return LineScanner()

    def rows_apart(self, data: bytes, ends: NDArray[np.int64] | None) -> bytes:
        """Return the same bytes with the rows apart by blanks only."""
        del ends
        return data

    def learn(self, data: bytes, ends: NDArray[np.int64]) -> int:
        """Infer the types of all columns, unless they were given."""
        _check_objects(data, ends)
        if self._given is not None:
            return len(data)
        lines = self.rows_apart(data, ends)
        nbytes = row = 0
        for stop in _chunks(ends):
            cuts = ends[row:stop]
            base = int(ends[row - 1]) if row else 0
            nbytes += self._infer(lines[base : int(cuts[-1])], cuts - base, row)
            row = stop
        return nbytes

    def _infer(self, lines: bytes, ends: NDArray[np.int64], first: int) -> int:
        """Join the types of some rows to those before; return their size."""

        def attempt(count: int) -> tuple[Any, Any, bytes]:
            part = lines[: int(ends[count - 1])]
            if self._as_text:
                part = _with_texts(part, ends[:count], self._as_text)
            table = _parse(part, None)
            _check_columns(len(table.schema))
            if table.num_rows != count:
                msg = f"{table.num_rows - count + 1} objects where one was expected"
                raise ValueError(msg)
            schema = plain(field for field in table.schema if field.name != _GUARD)
            known = schema if self._schema is None else joined(self._schema, schema)
            _check_columns(leaves_of(known))
            return known, table, part

        _check_depth(lines, ends, first)
        try:
            if len(ends) == 1 and len(lines) > _CHUNK_BYTES:
                _check_columns(len({found[1] for found in _KEY.finditer(lines)}))
            self._schema, table, part = attempt(len(ends))
        except _TooManyError as error:
            raise RowError(first, str(error)) from error
        except ValueError as error:
            row, why = first_bad(len(ends), attempt)
            raise RowError(first + row, why or str(error)) from error
        self._see_numbers(table, part, ends_in(LineScanner(), part) if self._as_text else ends)
        return int(table.nbytes)

    def _see_numbers(self, table: Any, lines: bytes, ends: NDArray[np.int64]) -> None:  # noqa: ANN401 - of an optional dependency
        for name, column in zip(table.column_names, table.columns, strict=True):
            for chunk in column.chunks:
                for path, values in number_leaves((name,), chunk):
                    again = NumbersAgain(path, lines, ends, _parse)
                    self._numbers.see(path, values, again)

    def schema(self) -> Any:  # noqa: ANN401 - of an optional dependency
        """Return the types that were given, else those that all rows fit."""
        if self._given is not None:
            return self._given
        fields = [] if self._schema is None else list(self._schema)
        return arrow().schema([self._numbers.field((field.name,), field) for field in fields])

    def table(self, data: bytes, schema: Any, columns: Sequence[str] | None) -> Any:  # noqa: ANN401 - of an optional dependency
        """Parse the wanted columns, in steps that stay in a processor's cache."""
        fields = list(schema)
        if columns is not None:
            fields = [field for field in fields if field.name in set(columns)] or fields[:1]
        wanted = arrow().schema(fields)
        scanner = self.scanner()
        ends = None if isinstance(scanner, LineScanner) else ends_in(scanner, data)
        lines = self.rows_apart(data, ends)
        if ends is None and (null := _NULL_LINE.search(lines)) is not None:
            msg = f"a JSON object was expected, here is {null[0].strip()!r}"
            raise ValueError(msg)
        texts = self._as_text.intersection(wanted.names)
        if texts:
            ends = ends_in(self.scanner(), data) if ends is None else ends
            lines = _with_texts(lines, ends, texts)
            ends = None
        parts = [_parse(part, wanted) for part in _steps(lines, ends)]
        return arrow().concat_tables(parts) if parts else wanted.empty_table()


class _TooManyError(ValueError):
    """Columns that are more than can be meant."""


def _check_columns(count: int) -> None:
    if count > _MOST_COLUMNS:
        msg = (
            f"{count} columns, from here on if not before, where {_MOST_COLUMNS} are allowed: keys "
            "that are data make no columns; read what they are in with as_text=[...], or name the "
            "columns wanted with schema="
        )
        raise _TooManyError(msg)


def _parse(lines: bytes, schema: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the objects in `lines` as a table; without a schema its types are inferred.

    Where it would have no columns it has an empty one, as rows of none are lost.
    """
    library, json = arrow(), arrow(".json")
    # Arrow's parser ends the process at a null that no object precedes.
    if not _OBJECT.match(lines):
        msg = f"this is no JSON object: {lines.lstrip()[:40]!r}"
        raise ValueError(msg)
    infer = schema is None
    wanted = schema
    if infer or not len(schema):
        wanted = library.schema([(_GUARD, library.null())])
    parsed = library.schema([field.with_type(stand_in(field.type)) for field in wanted])
    try:
        table = json.read_json(
            library.BufferReader(lines),
            read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=json.ParseOptions(
                explicit_schema=parsed, unexpected_field_behavior="infer" if infer else "ignore"
            ),
        )
    except library.ArrowException as error:
        why = _IN_ROW.sub("", str(error)).removeprefix("JSON parse error: ")
        raise ValueError(f"{why}; {AS_TEXT}" if "changed from" in why else why) from error
    if infer or parsed.equals(wanted):
        return table
    columns = [
        library.chunked_array([mended(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, wanted, strict=True)
    ]
    return library.Table.from_arrays(columns, schema=wanted)


def _chunks(ends: NDArray[np.int64]) -> Iterator[int]:
    """Yield after which rows to cut, so that no part can take too much memory."""
    row = base = 0
    most = max(1, int((_CHUNK_CELLS * len(ends) / int(ends[-1])) ** 0.5))
    while row < len(ends):
        stop = int(np.searchsorted(ends, base + _CHUNK_BYTES, side="right"))
        stop = max(row + 1, min(stop, row + most))
        while stop > row + 1 and (stop - row) * (int(ends[stop - 1]) - base) > _CHUNK_CELLS:
            stop = (row + stop + 1) // 2
        yield stop
        row, base = stop, int(ends[stop - 1])


def _steps(lines: bytes, ends: NDArray[np.int64] | None) -> Iterator[bytes]:
    """Yield whole rows, some at a time; `ends` says where rows end if newlines do not."""
    at = 0
    while at < len(lines):
        least = at + _CHUNK_BYTES
        if ends is None:
            stop = lines.find(b"\n", least) + 1 if least < len(lines) else 0
        else:
            nth = int(np.searchsorted(ends, least))
            stop = int(ends[nth]) if nth < len(ends) else 0
        part = lines[at : stop or len(lines)]
        at = stop or len(lines)
        if part.strip():
            yield part


def _check_objects(data: bytes, ends: NDArray[np.int64]) -> None:
    """Raise `RowError` unless each row begins as an object does."""
    array = np.frombuffer(data, np.uint8)
    starts = np.concatenate(([0], ends[:-1]))
    for _ in range(_BLANKS_IN_ROW):
        blank = ~INK[array[starts]]
        if not blank.any():
            break
        starts += blank
    for row in np.flatnonzero(array[starts] != ord("{")).tolist():
        first = int(ends[row - 1]) if row else 0
        text = data[first : int(ends[row])].lstrip()
        if text[:1] != b"{":
            raise RowError(row, f"a JSON object was expected, here is {text[:40]!r}")


def _check_depth(lines: bytes, ends: NDArray[np.int64], first: int) -> None:
    """Raise `RowError` if a row is nested so deep that parsing it would end the process."""
    array = np.frombuffer(lines, np.uint8)
    opening = np.flatnonzero((array | 0x20) == ord("{"))  # of { and [ only, 0x20 apart
    if len(opening) <= _MOST_NESTED:
        return
    counts = np.diff(np.searchsorted(opening, ends), prepend=0)
    for row in np.flatnonzero(counts > _MOST_NESTED).tolist():
        text = lines[int(ends[row - 1]) if row else 0 : int(ends[row])]
        if _nested(text) > _MOST_NESTED:
            why = f"it is nested deeper than {_MOST_NESTED}; give the columns wanted with schema="
            raise RowError(first + row, why)


def _nested(text: bytes) -> int:
    """Return how deep a JSON text is nested."""
    bare = re.sub(rb'"(?:[^"\\]|\\.)*+"?', b"", text, flags=re.DOTALL)
    array = np.frombuffer(bare, np.uint8) | 0x20
    steps = (array == ord("{")).astype(np.int8) - (array == ord("}")).astype(np.int8)
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))


def _with_texts(lines: bytes, ends: NDArray[np.int64], names: frozenset[str]) -> bytes:
    """Return the rows anew, with what is no string in the columns `names` put into one."""
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    out: list[bytes] = []
    for start, stop in pairwise([0, *ends.tolist()]):
        try:
            row = decoder.decode(lines[start:stop])
        except RecursionError as error:
            msg = "it is nested too deep"
            raise ValueError(msg) from error
        for name in names & row.keys():
            value = bytes(row[name])
            if value[:1] != b'"' and value != b"null":
                row[name] = msgspec.Raw(msgspec.json.encode(value.decode()))
        out.append(msgspec.json.encode(row))
    return b"\n".join(out)


def _checked(schema: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the schema if Arrow's parser knows all its types."""
    library = arrow()
    if depth_of(schema) > _MOST_NESTED:
        msg = f"schema: it is nested deeper than {_MOST_NESTED}"
        raise SchemaError(msg)
    for field in schema:
        try:
            _parse(b"{}", library.schema([field]))
        except ValueError as error:
            msg = f"schema: {field.name!r} cannot be {field.type} in JSON: {error!s:.200}"
            raise SchemaError(msg) from error
    return schema
