"""Parquet: a unit is a row group, some small ones together, or a part of a large one."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._virtual._kinds._packing import PackedKind, joined_spans, packed, parts_of
from streaming_core._virtual._kinds._parquet_bounds import group_bounds, plain_leaves
from streaming_core._virtual._kinds._parquet_checks import check_groups, unreadable_leaves
from streaming_core._virtual._kinds._sparse_file import SparseFile
from streaming_core._virtual._model import (
    Bounds,
    Piece,
    Scan,
    SourceFile,
    SourceReader,
    Unit,
)
from streaming_core._virtual._types import plain
from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Parquet"]

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TAIL_BYTES: Final = 64 << 10
_END_BYTES: Final = 8
_OLD_WRITER: Final = re.compile(r"parquet-mr(?! version (1\.(2\.9|[3-9]|[1-9][0-9])|[2-9]))")
_SPARE_BYTES: Final = 100
"""By so much a chunk may be longer than old writers said."""


class Parquet(PackedKind):
    """Parquet files, of which only the wanted columns' bytes are fetched."""

    name = "parquet"
    suffixes = (".parquet", ".parq", ".pq")

    def scan(self, reader: SourceReader) -> Scan:
        """Read the footer."""
        file = reader.file
        tail = reader.tail(_TAIL_BYTES)
        if len(tail.data) < _END_BYTES + len(_MAGIC) or tail.data[-4:] != _MAGIC:
            raise SourceFormatError(_no_parquet(reader.where, tail.data[-4:]))
        (length,) = struct.unpack("<I", tail.data[-8:-4])
        begin = file.size - _END_BYTES - length
        if begin < len(_MAGIC):
            msg = f"{reader.where}: a footer of {length} bytes in a file of {file.size}"
            raise SourceFormatError(msg)
        if begin < tail.start:
            missing = reader.ranges([(begin, tail.start)])[0]
            tail = Piece(begin, missing.data + tail.data)
        footer = tail.data[begin - tail.start :]
        metadata = _parsed(footer, reader.where)  # of many files once: not kept
        schema = metadata.schema.to_arrow_schema()
        return Scan(
            schema.remove_metadata(),
            tuple(packed([_measure(metadata, at) for at in range(metadata.num_row_groups)])),
            footer,
        )

    def ranges(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str] | None
    ) -> list[tuple[int, int]]:
        """Return the column chunks; those side by side as one.

        Raises `SourceFormatError` if one of the columns is encrypted, or broken.
        """
        metadata = _metadata(meta, file.key)
        wanted = None if columns is None else set(columns)
        unreadable = _unreadable(meta, file.key, file.size)
        for at, why in unreadable.items():
            path = _path_of(metadata, at, file.key)
            if wanted is None or _is_of(path, wanted):
                raise SourceFormatError(_no_column(file.key, path, why))
        spans: list[tuple[int, int]] = []
        spare = _SPARE_BYTES if _OLD_WRITER.match(metadata.created_by or "") else 0
        for number in _groups(metadata, unit):
            group = metadata.row_group(number)
            for at in range(group.num_columns):
                if at in unreadable:
                    continue
                chunk = group.column(at)
                if wanted is not None and not _is_of(_path(chunk, file.key), wanted):
                    continue
                first = chunk.data_page_offset
                dictionary = chunk.dictionary_page_offset
                if dictionary:  # missing, or zero, where there is none
                    first = min(first, dictionary)
                stop = first + chunk.total_compressed_size + spare
                spans.append((first, min(stop, file.size)))
        return joined_spans(spans)

    def decode(
        self,
        file: SourceFile,
        meta: bytes,
        unit: Unit,
        pieces: Sequence[Piece],
        columns: Sequence[str] | None,
    ) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Decode the row groups, and cut out the unit's rows."""
        arrow = require("pyarrow", extra="parquet", purpose="Parquet")
        parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet")
        metadata = _metadata(meta, file.key)
        try:
            # Buffering ahead would read what lies between the wanted columns, too.
            opened = parquet.ParquetFile(
                arrow.PythonFile(SparseFile(pieces, file.size), mode="r"),
                metadata=metadata,
                pre_buffer=False,
            )
            names = None
            if columns is not None:
                names = [name for name in opened.schema_arrow.names if name in set(columns)]
            groups = _groups(metadata, unit)
            table = opened.read_row_groups(groups, columns=names, use_threads=False)
        except (arrow.ArrowException, OSError) as error:
            msg = f"{file.key}, row group {unit.number}: {error!s:.300}"
            raise SourceFormatError(msg) from error
        first = max(0, unit.part)
        _check_values(table, f"{file.key}, row group {unit.number}")
        table = _as_scanned(table, _schema(meta, file.key)[0])
        return table.slice(first, unit.samples)

    def bounds(
        self, file: SourceFile, meta: bytes, unit: Unit, columns: Sequence[str]
    ) -> Mapping[str, Bounds]:
        """Return what the footer says; of a part of a group what it says of all of it."""
        metadata = _metadata(meta, file.key)
        schema, leaves = _schema(meta, file.key)
        groups = _groups(metadata, unit)
        unreadable = _unreadable(meta, file.key, file.size)
        found: dict[str, Bounds] = {}
        for name in columns:
            at = schema.get_field_index(name)
            if at < 0:
                continue
            kind = schema.field(at).type
            kind = getattr(kind, "value_type", kind)  # of what is a dictionary only here
            leaf = leaves.get(name)
            if leaf is None or leaf in unreadable:
                found[name] = Bounds()
            else:
                found[name] = group_bounds(meta, metadata, groups, leaf, kind)
        return found


def _path(chunk: Any, where: str) -> str:  # noqa: ANN401 - see above
    try:
        return str(chunk.path_in_schema)
    except UnicodeDecodeError as error:
        msg = f"{where}: the footer is broken: {error!s:.300}"
        raise SourceFormatError(msg) from error


def _is_of(path: str, wanted: set[str]) -> bool:
    """Tell whether a chunk may be of one of some columns, in whose names there may be dots."""
    steps = path.split(".")
    return any(".".join(steps[:count]) in wanted for count in range(1, len(steps) + 1))


def _measure(metadata: Any, number: int) -> tuple[int, int]:  # noqa: ANN401 - see above
    group = metadata.row_group(number)
    return int(group.num_rows), int(group.total_byte_size)


def _groups(metadata: Any, unit: Unit) -> list[int]:  # noqa: ANN401 - see above
    try:
        return list(parts_of(unit, metadata.num_row_groups))
    except ValueError as error:
        msg = f"row groups that the footer does not have: {error}; index the files again"
        raise SourceFormatError(msg) from error


@lru_cache(maxsize=32)
def _metadata(footer: bytes, where: str) -> Any:  # noqa: ANN401 - see above
    """Return what a footer says, kept for the next unit of the file."""
    return _parsed(footer, where)


def _parsed(footer: bytes, where: str) -> Any:  # noqa: ANN401 - see above
    arrow = require("pyarrow", extra="parquet", purpose="Parquet")
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Parquet")
    try:
        found = parquet.read_metadata(arrow.BufferReader(_MAGIC + footer))
        _ = found.created_by  # looked at later, and may be no text
        check_groups(found)
    except (arrow.ArrowException, OSError, ValueError) as error:
        msg = f"{where}: the footer is broken: {error!s:.300}"
        raise SourceFormatError(msg) from error
    return found


@lru_cache(maxsize=32)
def _unreadable(footer: bytes, where: str, size: int) -> Mapping[int, str]:
    """Return the leaves whose chunks must not be looked at, as that ends the process, and why."""
    return unreadable_leaves(_metadata(footer, where), size)


def _path_of(metadata: Any, at: int, where: str) -> str:  # noqa: ANN401 - see above
    """Return the path of a leaf by the schema."""
    try:
        return str(metadata.schema.column(at).path)
    except (IndexError, UnicodeDecodeError) as error:
        msg = f"{where}: the footer is broken: leaf {at}: {error!s:.300}"
        raise SourceFormatError(msg) from error


def _no_column(where: str, path: str, why: str) -> str:
    what = "is encrypted, which" if "decrypt" in why else "is broken, and"
    return (
        f"{where}: column {path!r} {what} cannot be read ({why:.200}); name the columns that are "
        "wanted, without it"
    )


@lru_cache(maxsize=32)
def _schema(footer: bytes, where: str) -> tuple[Any, Mapping[str, int]]:
    """Return a footer's columns, and the chunks of those that are not nested."""
    schema = _metadata(footer, where).schema
    return schema.to_arrow_schema(), plain_leaves(schema)


def _check_values(table: Any, where: str) -> None:  # noqa: ANN401 - see above
    """Raise `SourceFormatError` for values that their type does not have, such as other text."""
    arrow = require("pyarrow", extra="parquet", purpose="Parquet")
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except arrow.ArrowException as error:
            msg = (
                f"{where}: column {name!r} has a value that is not {column.type}: {error!s:.300}; "
                "write the file again, or name the columns that are wanted, without it"
            )
            raise SourceFormatError(msg) from error


def _as_scanned(table: Any, schema: Any) -> Any:  # noqa: ANN401 - see above
    """Return a table with the types that the scan found.

    Arrow reads UUIDs as an extension type, and does not say so of footers without its schema.
    """
    arrow = require("pyarrow", extra="parquet", purpose="Parquet")
    kinds = {field.name: field.type for field in schema}
    for at, field in enumerate(table.schema):
        kind = kinds[field.name]
        if not field.type.equals(kind):
            chunks = [plain(chunk).cast(kind) for chunk in table.column(at).chunks]
            table = table.set_column(at, field.name, arrow.chunked_array(chunks, kind))
    return table


def _no_parquet(where: str, end: bytes) -> str:
    if end == _ENCRYPTED:
        return f"{where}: an encrypted Parquet file, which cannot be read"
    return f"{where}: no Parquet file: it ends with {end!r} where {_MAGIC!r} was expected"
