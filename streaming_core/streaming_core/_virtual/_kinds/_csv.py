"""CSV and TSV: records cut apart with quotes in mind, types that all rows fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streaming_core._virtual._kinds._csv_scan import CsvScanner
from streaming_core._virtual._kinds._inflate import named
from streaming_core._virtual._kinds._json_types import schema_of
from streaming_core._virtual._kinds._lines import first_bad
from streaming_core._virtual._kinds._records import LIMITS, Form, Limits, Records, RowError, arrow
from streaming_core._virtual._kinds._whole_numbers import WholeNumbers, whole_number
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streaming_core._virtual._kinds._lines import Scanner, Text

__all__ = ["Csv", "Tsv"]

_MOST_COLUMNS: Final = 50_000
_HEX: Final = re.compile(rb"0[xX]")
_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
"""Without 1 and 0, which Arrow takes too: numbers in one unit would be none in the next."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_IN_ROW: Final = re.compile(r"^CSV parse error: Row #\d+: |(?<=: )Row #\d+: ")


class Csv(Records):
    """CSV files. Values may be quoted and have newlines then; empty lines count for nothing.

    The types are those that all rows of a file fit, found by parsing all of it once, as
    `pyarrow.csv` finds them for a block: what is of several types is text, numbers among true and
    false too. But whole numbers never become others: those beyond 63 bits are `uint64`, and where
    neither that nor floats would have all numbers unchanged the file is refused. The option
    `schema`, of each wanted column the type, decides such, and saves the parsing. `header` is true
    if the first record names the columns, false if they are to be called f0, f1 and so on, or their
    names. `null_values` are the texts that stand for nothing, in columns of text too; by default
    those of Arrow (such as an empty one, `NA`, `null`), in other columns only.
    """

    name = "csv"
    suffixes = named(".csv")
    options = ("schema", "delimiter", "quote", "header", "null_values", *LIMITS)
    delimiter = ","

    def __init__(
        self,
        *,
        schema: Mapping[str, Any] | None = None,
        delimiter: str | None = None,
        quote: str | None = '"',
        header: bool | Sequence[str] = True,
        null_values: Sequence[str] | None = None,
        **limits: int,
    ) -> None:
        super().__init__(Limits(**limits))
        self._schema = schema
        self._delimiter = self.delimiter if delimiter is None else delimiter
        self._quote = quote
        self._header = header if isinstance(header, bool) else tuple(_texts("header", header))
        self._nulls = None if null_values is None else tuple(_texts("null_values", null_values))
        _check_mark("delimiter", self._delimiter)
        if quote is not None:
            _check_mark("quote", quote)
        if self._delimiter == quote:
            msg = f"delimiter and quote are both {quote!r}; give two characters"
            raise SchemaError(msg)

    def form(self, text: Text) -> Form:
        """Return the form, of which the names are not known yet."""
        del text
        names = [] if isinstance(self._header, bool) else list(self._header)
        return self._form(names, header=self._header is True)

    def form_of(self, code: str, names: list[str]) -> Form:
        """Return the form of a file with these columns."""
        del code
        return self._form(names, header=False)

    def _form(self, names: list[str], *, header: bool) -> Form:
        given = None if self._schema is None else schema_of(self._schema)
        return _Rows(self._delimiter, self._quote, self._nulls, names, given, header=header)


class Tsv(Csv):
    """TSV files: CSV with tabs."""

    name = "tsv"
    suffixes = named(".tsv")
    delimiter = "\t"


class _Rows(Form):
    """Records of one file."""

    def __init__(
        self,
        delimiter: str,
        quote: str | None,
        nulls: tuple[str, ...] | None,
        names: list[str],
        given: Any,  # noqa: ANN401 - of an optional dependency
        *,
        header: bool,
    ) -> None:
        self.header = header
        self._delimiter = delimiter
        self._quote = quote
        self._nulls = nulls
        self._names = names
        self._given = given
        self._types: dict[str, Any] = {}
        self._hex: set[str] = set()
        self._numbers = WholeNumbers()

    def scanner(self) -> Scanner:
        return CsvScanner(self._delimiter, self._quote)

    def read_header(self, data: bytes) -> None:
        self._take(data, header=True)

    def _take(self, record: bytes, *, header: bool) -> None:
        """Take the columns' names from the first record, or their number if it is no header."""
        count = record.count(self._delimiter.encode()) + 1
        if count > _MOST_COLUMNS:
            msg = f"{count} columns, where {_MOST_COLUMNS} are allowed; tell the delimiter"
            raise ValueError(msg)
        record = record.strip(b"\r\n") + b"\n"
        names = self._parse(record, None).schema.names
        if not header:
            names = [f"f{at}" for at in range(len(names))]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = (
                f"several columns are called {', '.join(map(repr, twice))}; leave this record out "
                "of the file, and give names with header=[...]"
            )
            raise ValueError(msg)
        self._names = names

    def learn(self, data: bytes, ends: NDArray[np.int64]) -> int:
        if not self._names:
            self._tried(lambda count: self._take(data[: int(ends[count - 1])], header=False), 1)
        if self._given is not None:
            missing = [name for name in self._given.names if name not in self._names]
            if missing:
                msg = f"schema: no column {missing[0]!r}; there are {', '.join(self._names)}"
                raise SchemaError(msg)
            return len(data)
        table = self._tried(
            lambda count: self._parse(data[: int(ends[count - 1])], self._names), len(ends)
        )
        if table.num_rows != len(ends):
            msg = (
                f"{table.num_rows} rows in {len(ends)} records from here on; tell what quotes them"
            )
            raise RowError(0, msg)
        for field in table.schema:
            before = self._types.get(field.name)
            self._types[field.name] = field.type if before is None else _both(before, field.type)
            if self._is_hex(data, field):
                self._hex.add(field.name)
            again = _Again(self, data, field.name)
            self._numbers.see((field.name,), table.column(field.name), again)
        return int(table.nbytes)

    def _is_hex(self, data: bytes, field: Any) -> bool:  # noqa: ANN401 - see above
        """Tell whether whole numbers of a column cannot be read as others, as 0x10 cannot."""
        if str(field.type) != "int64" or field.name in self._hex or not _HEX.search(data):
            return False
        try:
            self._parse(data, self._names, {field.name: arrow().float64()})
        except ValueError:
            return True
        return False

    def _tried(self, attempt: Callable[[int], Any], count: int) -> Any:  # noqa: ANN401 - see above
        """Return what becomes of that many rows; `RowError` names the first that fails."""
        try:
            return attempt(count)
        except ValueError as error:
            row, why = first_bad(count, attempt)
            raise RowError(row, why or str(error)) from error

    def schema(self) -> Any:  # noqa: ANN401 - of an optional dependency
        library = arrow()
        if self._given is not None:
            return self._given
        types = {name: self._types.get(name, library.null()) for name in self._names}
        fields: list[Any] = []
        for name, kind in types.items():
            field = library.field(name, kind)
            if name in self._hex and str(kind) == "double":
                fields.append(field.with_type(library.string()))
            else:
                fields.append(self._numbers.field((name,), field))
        return library.schema(fields)

    def names(self) -> list[str]:
        return self._names

    def column(self, data: bytes, name: str, kind: str) -> Any:  # noqa: ANN401 - see above
        """Return a column as the type of that name; `ValueError` if a value is none."""
        return self._parse(data, self._names, {name: arrow().type_for_alias(kind)}).column(name)

    def table(self, data: bytes, schema: Any, columns: Sequence[str] | None) -> Any:  # noqa: ANN401 - see above
        names = [name for name in schema.names if columns is None or name in set(columns)]
        names = names or schema.names[:1]
        types = {name: schema.field(name).type for name in names}
        return self._parse(data, self._names, types)

    def _parse(
        self,
        data: bytes,
        names: Sequence[str] | None,
        types: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - see above
        """Return whole records as a table, of the columns `types` if they are given, else all.

        Without `names` the first record has them.
        """
        library, csv = arrow(), arrow(".csv")
        nulls = {} if self._nulls is None else {"null_values": list(self._nulls)}
        try:
            return csv.read_csv(
                library.BufferReader(data),
                read_options=csv.ReadOptions(
                    use_threads=False,
                    block_size=len(data) + 1,
                    column_names=names,
                ),
                parse_options=csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=False if self._quote is None else self._quote,
                    newlines_in_values=self._quote is not None,
                ),
                convert_options=csv.ConvertOptions(
                    column_types=types,
                    include_columns=None if types is None else list(types),
                    true_values=_TRUE,
                    false_values=_FALSE,
                    strings_can_be_null=self._nulls is not None,
                    **nulls,
                ),
            )
        except library.ArrowException as error:
            raise ValueError(_IN_ROW.sub("", str(error))) from error


class _Again:
    """One column of a block, to be looked at again."""

    def __init__(self, rows: _Rows, data: bytes, name: str) -> None:
        self._rows = rows
        self._data = data
        self._name = name

    def unsigned(self) -> Any:  # noqa: ANN401 - see above
        return self._rows.column(self._data, self._name, "uint64")

    def whole(self, rows: NDArray[np.bool_]) -> Iterable[int]:
        texts = self._rows.column(self._data, self._name, "string").filter(arrow().array(rows))
        for text in texts.to_pylist():
            if _WHOLE.fullmatch(text.strip()):
                yield whole_number(text.strip())


def _both(one: Any, other: Any) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the type that the texts of both columns can be read as."""
    library = arrow()
    types = library.types
    if one.equals(other) or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    pair = {str(one), str(other)}
    if pair == {"int64", "double"}:
        return library.float64()
    times = {"date32[day]": 0, "timestamp[s]": 1, "timestamp[ns]": 2}
    if pair <= times.keys():
        return one if times[str(one)] > times[str(other)] else other
    if all(types.is_timestamp(kind) and kind.tz for kind in (one, other)):
        return one if one.unit == "ns" else other
    return library.string()


def _check_mark(name: str, mark: object) -> None:
    if not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in "\r\n\0":
        msg = f"{name} must be one ASCII character; came {mark!r}"
        raise SchemaError(msg)


def _texts(name: str, given: object) -> list[str]:
    found: list[object] = list(given) if isinstance(given, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType] - a user gave it
    texts = [text for text in found if isinstance(text, str)]
    if not isinstance(given, list | tuple) or len(texts) != len(found):
        msg = f"{name} must be a list of texts; came {given!r}"
        raise SchemaError(msg)
    return texts
