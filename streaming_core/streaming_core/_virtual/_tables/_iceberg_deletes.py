"""Which rows of Iceberg's data files are deleted: position deletes and deletion vectors, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from streaming_core._extras import require
from streaming_core._store import open_store
from streaming_core._virtual._kinds import kind_names, open_kind
from streaming_core._virtual._model import SourceFile, SourceReader
from streaming_core._virtual._tables._places import rooted
from streaming_core._virtual._tables._plan import checked_positions
from streaming_core._virtual._tables._puffin import deletion_vectors
from streaming_core.errors import SchemaError, SourceChangedError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streaming_core._store import Caller, RequestPolicy, StorageOptions

__all__ = ["Deletes", "DeletesOf", "deleted_rows"]

_PUFFIN: Final = "puffin"
_PATH: Final = "file_path"
_POSITION: Final = "pos"


class Deletes(NamedTuple):
    """A file that says which rows of other files are deleted."""

    location: str
    kind: str
    """Its format."""
    size: int


class DeletesOf(NamedTuple):
    """A data file and the files that may say something of it."""

    location: str
    """As those files name it, letter by letter."""
    rows: int
    deletes: frozenset[Deletes]


def deleted_rows(
    files: Sequence[DeletesOf], table: str, options: StorageOptions | None, policy: RequestPolicy
) -> list[NDArray[np.int64]]:
    """Return the deleted positions of each data file: ascending, each once, from 0.

    Reads every file of deletes once, several at a time, through a store below or beside `table`.

    Raises:
        SourceChangedError: One is gone: the snapshot expired.
        SourceFormatError: One is broken, or deletes rows that there are not.
        SchemaError: One has a format that cannot be read.
        StoreError: The store failed, after all tries.
    """
    wanted: dict[Deletes, dict[str, int]] = {}
    for file in files:
        for one in file.deletes:
            wanted.setdefault(one, {})[file.location] = file.rows
    if not wanted:
        return [np.empty(0, np.int64) for _ in files]
    ordered = sorted(wanted)
    place = rooted([one.location for one in ordered], table)
    store = open_store(place.root, options)
    readers = [
        SourceReader(store, SourceFile(key, one.size, ""), is_of_table=True)
        for one, key in zip(ordered, place.keys, strict=True)
    ]

    def read(at: int, call: Caller) -> Mapping[str, NDArray[np.int64]]:
        one = ordered[at]
        return call(lambda: _read(readers[at], one.kind, wanted[one]))

    found = dict(zip(ordered, policy.in_order(read, range(len(ordered))), strict=True))
    nothing = np.empty(0, np.int64)
    return [
        checked_positions(
            (found[one].get(file.location, nothing) for one in file.deletes),
            file.rows,
            file.location,
        )
        for file in files
    ]


def _read(reader: SourceReader, kind: str, rows: Mapping[str, int]) -> dict[str, Any]:
    try:
        if kind == _PUFFIN:
            return deletion_vectors(reader, rows)
        return _position_deletes(reader, kind, rows)
    except SourceChangedError as error:
        msg = (
            f"{reader.where}: the file that says which rows are deleted is gone or another; the "
            "snapshot expired, or the table was rewritten and cleaned. Plan again from a snapshot "
            "that the table still has"
        )
        raise SourceChangedError(msg) from error


def _position_deletes(
    reader: SourceReader, kind_name: str, rows: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Return the positions in one file for each data file in `rows`, in any order."""
    if kind_name not in kind_names():
        msg = (
            f"{reader.where}: deletes in the format {kind_name!r}, which is not read; compact the "
            "table (rewrite_data_files), so that none are left"
        )
        raise SchemaError(msg)
    kind = open_kind(kind_name)
    scan = kind.scan(reader)
    names = [_PATH, _POSITION]
    if not set(names) <= set(scan.schema.names):
        msg = f"{reader.where}: no position deletes: its columns are {scan.schema.names}"
        raise SourceFormatError(msg)
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for unit in scan.units:
        pieces = reader.ranges(kind.ranges(reader.file, scan.meta, unit, names))
        table = kind.decode(reader.file, scan.meta, unit, pieces, names)
        for path, found in _by_path(table, sorted(rows), reader.where).items():
            parts.setdefault(path, []).append(found)
    return {path: np.concatenate(found) for path, found in parts.items()}


def _by_path(table: Any, wanted: list[str], where: str) -> dict[str, NDArray[np.int64]]:  # noqa: ANN401 - of an optional dependency
    arrow = require("pyarrow", extra="parquet", purpose="reading a table")
    compute = require("pyarrow.compute", extra="parquet", purpose="reading a table")
    try:
        paths = table.column(_PATH).cast(arrow.large_string())
        positions = table.column(_POSITION).cast(arrow.int64())
    except arrow.ArrowException as error:
        msg = f"{where}: no position deletes: {error!s:.200}"
        raise SourceFormatError(msg) from error
    if paths.null_count or positions.null_count:
        msg = f"{where}: deletes without a file or a position"
        raise SourceFormatError(msg)
    which = compute.index_in(paths, value_set=arrow.array(wanted, arrow.large_string()))
    numbers = which.fill_null(-1).to_numpy()
    order = np.argsort(numbers, kind="stable")
    sorted_numbers, values = numbers[order], positions.to_numpy()[order]
    present = np.unique(sorted_numbers)
    present = present[present >= 0]
    starts = np.searchsorted(sorted_numbers, present)
    stops = np.searchsorted(sorted_numbers, present, side="right")
    return {
        wanted[number]: values[start:stop]
        for number, start, stop in zip(
            present.tolist(), starts.tolist(), stops.tolist(), strict=True
        )
    }
