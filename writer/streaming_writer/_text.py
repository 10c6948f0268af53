"""The writers of JSON lines and separated values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from streaming_core._arguments import checked, suggests
from streaming_core._format._mds import came
from streaming_core._format._text import JSONColumns, XSVColumns, XSVFormat, shard_meta
from streaming_core.errors import SampleError, SchemaError
from streaming_writer._arrow import is_arrow, python_columns
from streaming_writer._blocks import PartsBlock
from streaming_writer._kind import ShardFile
from streaming_writer._mds_batch import select_columns
from streaming_writer._options import Options, WriterOptions
from streaming_writer._writer import Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_writer._assembly import Body
    from streaming_writer._blocks import Block
    from streaming_writer._mds_rows import Rows, Sample
    from streaming_writer._output import Target

__all__ = ["CSVWriter", "JSONWriter", "TSVWriter", "XSVWriter"]

_INFERRED = {"int": "int", "str_int": "int", "float64": "float", "float32": "float", "str": "str"}


class _TextRows:
    """Samples into lines."""

    def __init__(self, columns: JSONColumns | XSVColumns, first: int, block_bytes: int) -> None:
        self._columns = columns
        self._block_bytes = block_bytes
        self._lines: list[bytes] = []
        self._bytes = 0
        self.first = first

    def add(self, sample: Any) -> bool:  # noqa: ANN401 - checked here
        number = self.first + len(self._lines)
        if not isinstance(sample, Mapping):
            msg = f"sample {number}: wanted a mapping of columns to values, came {came(sample)}"
            raise SampleError(msg)
        try:
            line = self._columns.encode(cast("Sample", sample))
        except SampleError as error:
            msg = f"sample {number}: {error}"
            raise type(error)(msg) from error
        self._lines.append(line)
        self._bytes += len(line)
        return self._bytes >= self._block_bytes

    def take(self) -> Block | None:
        lines, self._lines, self._bytes = self._lines, [], 0
        self.first += len(lines)
        if not lines:
            return None
        return PartsBlock(lines, 1, np.fromiter(map(len, lines), np.int64, len(lines)))


class _TextKind:
    """Shards of lines, with a meta file each."""

    base_bytes = 0
    record_bytes = 0
    roles = ("data", "meta")

    def __init__(self, columns: JSONColumns | XSVColumns, options: Options) -> None:
        self._columns = columns
        self._block_bytes = options.block_bytes()
        self.name = columns.format
        self.header_bytes = len(columns.header())
        self.config = columns.config(
            compression=options.compression,
            hashes=options.hash_names(),
            size_limit=options.limit(),
        )

    def rows(self, first: int) -> Rows:
        return _TextRows(self._columns, first, self._block_bytes)

    def batch(self, columns: Any, first: int) -> Block | None:  # noqa: ANN401 - a mapping or Arrow table
        names = list(self._columns.columns)
        given = python_columns(columns) if is_arrow(columns) else columns
        values = [_plain(column) for column in select_columns(names, given).values()]
        rows = _TextRows(self._columns, first, self._block_bytes)
        for row in zip(*values, strict=True):
            rows.add(dict(zip(names, row, strict=True)))
        return rows.take()

    def record(self, sample: Sample) -> bytes:
        return self._columns.encode(sample)

    def files(self, body: Body) -> list[ShardFile]:
        header = self._columns.header()
        meta = shard_meta(body.lengths, start=len(header), config=self.config)
        suffix = f".{self.name}"
        return [
            ShardFile("data", suffix, body.headed(header)),
            ShardFile("meta", f"{suffix}.meta", [meta]),
        ]


def _plain(values: Any) -> list[Any]:  # noqa: ANN401 - an array or a list
    """Return the values as Python objects."""
    if isinstance(values, np.ndarray):
        array = cast("NDArray[Any]", values)
        return array.tolist() if array.dtype.kind not in "mM" else list(array)
    return list(values)


def _supported(columns: Mapping[str, str]) -> dict[str, str]:
    """Return inferred or given columns with the encodings that text has: str, int, float."""
    return {name: _INFERRED.get(text, text) for name, text in columns.items()}


class JSONWriter(Writer):
    """Writes samples as JSON lines, an offsets file per shard, and an index.

    `columns` maps names to `str`, `int` or `float`; the other arguments are those of `MDSWriter`.

    Example:
        >>> import tempfile
        >>> from streaming_core import JSONWriter, load_index
        >>> folder = tempfile.mkdtemp()
        >>> with JSONWriter(out=folder + "/data", columns={"text": "str"}) as out:
        ...     out.write({"text": "a"})
        >>> load_index(folder + "/data").num_samples
        1
    """

    @suggests(*WriterOptions.__annotations__)
    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        out: Target,
        newline: str = "\n",
        **options: Unpack[WriterOptions],
    ) -> None:
        """Lock the output and get ready; raises what the settings or the output do not allow."""
        given = checked({"newline": newline})

        def kind(columns: Mapping[str, str], options: Options) -> _TextKind:
            return _TextKind(JSONColumns(_supported(columns), **given), options)

        super().__init__(kind, columns, out, Options(**options))


class XSVWriter(Writer):
    """Writes samples as lines of values parted by `separator`, without quoting.

    `columns` maps names to `str`, `int` or `float`; the other arguments are those of `MDSWriter`.

    Example:
        >>> import tempfile
        >>> from streaming_core import XSVWriter, load_index
        >>> folder = tempfile.mkdtemp()
        >>> with XSVWriter(out=folder + "/data", columns={"a": "int"}, separator="|") as out:
        ...     out.write({"a": 1})
        >>> load_index(folder + "/data").num_samples
        1
    """

    _format: XSVFormat = "xsv"

    @suggests(*WriterOptions.__annotations__)
    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        separator: str | None = None,
        newline: str = "\n",
        out: Target,
        **options: Unpack[WriterOptions],
    ) -> None:
        """Lock the output and get ready; raises what the settings or the output do not allow."""
        given = checked({"separator": separator, "newline": newline})
        if self._format == "xsv" and not separator:
            msg = "XSVWriter needs a separator, as in separator='|'"
            raise SchemaError(msg)

        def kind(columns: Mapping[str, str], options: Options) -> _TextKind:
            text = XSVColumns(_supported(columns), format=self._format, **given)
            return _TextKind(text, options)

        super().__init__(kind, columns, out, Options(**options))


class CSVWriter(XSVWriter):
    """Writes samples as lines of values parted by commas, without quoting.

    Example:
        >>> import tempfile
        >>> from streaming_core import CSVWriter, load_index
        >>> folder = tempfile.mkdtemp()
        >>> with CSVWriter(out=folder + "/data", columns={"a": "int", "b": "str"}) as out:
        ...     out.write({"a": 1, "b": "x"})
        >>> load_index(folder + "/data").num_samples
        1
    """

    _format: XSVFormat = "csv"


class TSVWriter(XSVWriter):
    r"""Writes samples as lines of values parted by tabs, without quoting.

    Example:
        >>> import tempfile
        >>> from streaming_core import TSVWriter, load_index
        >>> folder = tempfile.mkdtemp()
        >>> with TSVWriter(out=folder + "/data", columns={"a": "int", "b": "str"}) as out:
        ...     out.write({"a": 1, "b": "x"})
        >>> load_index(folder + "/data").num_samples
        1
    """

    _format: XSVFormat = "tsv"
