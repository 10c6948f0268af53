"""A text shard: its samples by number, found by the offsets in its meta file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_core._format._shard import Shard
from streaming_core._format._text._json import JSONColumns
from streaming_core._format._text._meta import MetaError, parse_meta
from streaming_core._format._text._xsv import XSVColumns
from streaming_core.errors import SchemaError, ShardCorruptError

if TYPE_CHECKING:
    from streaming_core._index import ShardInfo, ShardSchema
    from streaming_core._store import Buffer

__all__ = ["TextShard", "open_text_shard", "text_columns"]


def text_columns(schema: ShardSchema) -> JSONColumns | XSVColumns:
    r"""Return the columns of a text schema; `SchemaError` where it has none of a text format.

    Example:
        >>> from streaming_core._index import ShardSchema
        >>> text_columns(ShardSchema("csv", ("a",), ("int",), newline="\n")).header()
        b'a\n'
    """
    columns = dict(zip(schema.column_names, schema.column_encodings, strict=True))
    newline = "\n" if schema.newline is None else schema.newline
    if schema.format == "json":
        return JSONColumns(columns, newline=newline)
    if schema.format == "mds" or schema.format == "arrow":  # noqa: PLR1714 - types follow this form
        msg = f"format {schema.format!r} is no text format; wanted json, xsv, csv or tsv"
        raise SchemaError(msg)
    return XSVColumns(columns, format=schema.format, separator=schema.separator, newline=newline)


class TextShard(Shard):
    """The samples of one shard whose data and meta file lie in memory or in a mapping.

    Counts and offsets are checked against the index and the data before anything is decoded:
    `ShardCorruptError` names the file, the byte, what was wanted and what came. Threads may share
    it. Keeps `data` and `meta` alive, and copies neither.
    """

    __slots__ = ("_columns", "encodings")

    def __init__(self, info: ShardInfo, data: Buffer, meta: Buffer) -> None:
        """Check `meta` and the header line of `data`, the raw files of the shard `info`."""
        view = _flat(data)
        self._columns = text_columns(info.schema)
        self.encodings = self._columns.columns
        """The type of each column by its name, in the order of a sample's keys."""
        header = self._columns.header()
        came = bytes(view[: len(header)])
        if came != header:
            where = f"{info.raw.basename}, byte 0"
            msg = f"{where}: the header line is {came!r:.200}, not {header!r:.200}"
            raise ShardCorruptError(msg)
        settings = info.schema.document()
        names = ("columns", "column_names", "column_encodings", "newline", "separator")
        try:
            offsets = parse_meta(
                _flat(meta),
                samples=info.samples,
                start=len(header),
                end=len(view),
                config={name: settings[name] for name in names if name in settings},
            )
        except MetaError as error:
            name = f"{info.raw.basename}.meta" if info.raw_meta is None else info.raw_meta.basename
            msg = f"{name}, byte {error.byte}: {error.text}"
            raise ShardCorruptError(msg) from error
        super().__init__(info.raw.basename, view, offsets)

    def _decode(self, row: int) -> dict[str, Any]:
        return {**self._columns.decode(bytes(self._view(row)))}


def open_text_shard(info: ShardInfo, data: Buffer, meta: Buffer) -> TextShard:
    r"""Return the samples in `data` and `meta`, the raw files of the json, xsv, csv or tsv shard.

    Example:
        >>> from streaming_core._index import FileInfo, ShardInfo, ShardSchema
        >>> from streaming_core._format._text import shard_meta
        >>> columns = JSONColumns({"a": "int"})
        >>> lines = [columns.encode({"a": value}) for value in (1, 2)]
        >>> config = columns.config(compression=None, hashes=(), size_limit=None)
        >>> meta = shard_meta([len(line) for line in lines], start=0, config=config)
        >>> schema = ShardSchema("json", ("a",), ("int",), newline="\n")
        >>> info = ShardInfo(0, 2, schema, FileInfo("shard.00000.json", 18, {}))
        >>> list(open_text_shard(info, b"".join(lines), meta))
        [{'a': 1}, {'a': 2}]
    """
    return TextShard(info, data, meta)


def _flat(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")
