"""What a table is at one version: its files, what of them is deleted, and its columns."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np
import xxhash

from streaming_core._extras import require
from streaming_core._names import name_problem
from streaming_core._virtual._model import SourceFile
from streaming_core._virtual._tables._layout import Layout
from streaming_core.errors import IndexInvalidError, Problem, SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = [
    "PlannedFile",
    "TablePlan",
    "checked_positions",
    "dump",
    "keep_bits",
    "no_files",
    "parse",
]

_VERSION: Final = 1
_UNKNOWN: Final = -1


@final
@dataclass(frozen=True, slots=True, eq=False)
class PlannedFile:
    """One data file of a table, as the table's own metadata describe it. Pickles."""

    key: str
    """Its name below the plan's root."""
    kind: str
    """Its format, as `open_kind` takes it."""
    size: int
    """Bytes."""
    rows: int
    """Rows in the file, deleted ones included; -1 if the table does not say."""
    constants: tuple[tuple[str, str | None], ...]
    """Values, as text, of columns of the table that the file may lack."""
    deleted: NDArray[np.int64]
    """Rows of the file that are no longer of the table: ascending, each once, from 0."""

    def source(self) -> SourceFile:
        """Return the file as what is scanned and read; tables do not know versions of files."""
        return SourceFile(self.key, self.size, "", self.constants)


@final
@dataclass(frozen=True, slots=True, eq=False)
class TablePlan:
    """A table pinned to one version: whatever is written to it later does not change this.

    Immutable, pickles, holds no secrets. Made once, saved with the index, used by all processes.
    """

    root: str
    """Folder that all files lie below, as `open_store` takes it."""
    snapshot: str
    """The version: the id of a snapshot, or a number."""
    schema: Any
    """The `pyarrow.Schema` of the table; what finds columns in files is in its fields' metadata."""
    files: tuple[PlannedFile, ...]
    """In order of their keys, whatever order the table's metadata have; each once."""
    names: str = ""
    """Names that columns have in files without field ids: a JSON list as Iceberg has it."""

    def __getstate__(self) -> bytes:
        return dump(self)

    def __setstate__(self, state: bytes) -> None:
        plan = parse(state, "a pickled plan")
        for name in ("root", "snapshot", "schema", "files", "names"):
            object.__setattr__(self, name, getattr(plan, name))

    def url(self, at: int) -> str:
        """Return where one file lies."""
        return f"{self.root.rstrip('/')}/{self.files[at].key}"

    def layout(self, at: int, schema: Any) -> Layout:  # noqa: ANN401 - of an optional dependency
        """Return how the table's columns are found in one file, whose own schema is `schema`.

        Pure; reads nothing. That schema is `Scan.schema`, with its fields' metadata.

        Raises:
            SchemaError: The file cannot be of this table: says which column, and why.
        """
        file = self.files[at]
        return Layout.of(self.schema, schema, self.names, file.constants, self.url(at))

    def check_rows(self, at: int, rows: int) -> None:
        """Raise `SourceFormatError` unless a scan counted as many rows as the table says."""
        file = self.files[at]
        if file.rows not in {rows, _UNKNOWN}:
            msg = (
                f"{self.url(at)} has {rows} rows, but the table says {file.rows} (version "
                f"{self.snapshot}); something else than the table wrote to the file"
            )
            raise SourceFormatError(msg)
        if len(file.deleted) and int(file.deleted[-1]) >= rows:
            msg = (
                f"{self.url(at)}: row {int(file.deleted[-1])} is deleted, but there are {rows} "
                f"(version {self.snapshot} of the table)"
            )
            raise SourceFormatError(msg)

    def fingerprint(self) -> str:
        """Return what tells this version of this table from others."""
        return xxhash.xxh3_128_hexdigest(dump(self))


def keep_bits(deleted: NDArray[np.int64], first_row: int, rows: int) -> bytes | None:
    r"""Return which of `rows` rows from `first_row` on are kept, as `np.packbits` packs them.

    None if all are. `deleted` has positions in the whole file, ascending.

    Example:
        >>> keep_bits(np.array([3, 9]), 2, 4), keep_bits(np.array([3, 9]), 4, 5)
        (b'\xb0', None)
    """
    first, last = np.searchsorted(deleted, (first_row, first_row + rows)).tolist()
    if first == last:
        return None
    keep = np.ones(rows, np.bool_)
    keep[deleted[first:last] - first_row] = False
    return np.packbits(keep).tobytes()


def checked_positions(
    found: Iterable[NDArray[np.int64]], rows: int, where: str
) -> NDArray[np.int64]:
    """Return positions from several places as one array: ascending, each once.

    Raises `SourceFormatError` if one lies outside a file of `rows` rows (negative: unknown).
    """
    parts = [part for part in found if len(part)]
    if not parts:
        return np.empty(0, np.int64)
    joined = np.unique(np.concatenate(parts).astype(np.int64, copy=False))
    if joined[0] < 0 or (rows >= 0 and joined[-1] >= rows):
        wrong = int(joined[0] if joined[0] < 0 else joined[-1])
        msg = f"{where}: row {wrong} is deleted, but the file has {rows} rows; the table is broken"
        raise SourceFormatError(msg)
    return joined


def no_files(where: str, file_filter: object) -> SchemaError:
    """Return the error for a filter that leaves out all files of a table that has some."""
    return SchemaError(
        f"{where}: file_filter={str(file_filter)!r:.300} leaves no file: no row of the table can "
        "match it. It says which files are looked at; which rows are read is said with filters="
    )


class _File(msgspec.Struct, frozen=True, array_like=True):
    key: str
    kind: str
    size: int
    rows: int
    constants: tuple[tuple[str, str | None], ...]
    deleted: bytes


class _Document(msgspec.Struct, frozen=True):
    version: int
    root: str
    snapshot: str
    schema: bytes
    names: str
    files: tuple[_File, ...]


_DOCUMENT: Final = msgspec.msgpack.Decoder(_Document)


def dump(plan: TablePlan) -> bytes:
    """Return a plan as bytes; equal plans give equal ones."""
    files = tuple(
        _File(
            file.key,
            file.kind,
            file.size,
            file.rows,
            file.constants,
            file.deleted.astype("<i8", copy=False).tobytes(),
        )
        for file in plan.files
    )
    schema = plan.schema.serialize().to_pybytes()
    return msgspec.msgpack.encode(
        _Document(_VERSION, plan.root, plan.snapshot, schema, plan.names, files)
    )


def parse(data: bytes, where: str) -> TablePlan:
    """Return the plan in `data`, from `where`; `IndexInvalidError` if it cannot be trusted."""
    arrow = require("pyarrow", extra="parquet", purpose="reading a table")
    try:
        document = _DOCUMENT.decode(data)
        _check(document)
        return TablePlan(
            root=document.root,
            snapshot=document.snapshot,
            schema=arrow.ipc.read_schema(arrow.py_buffer(document.schema)),
            files=tuple(map(_planned, document.files)),
            names=document.names,
        )
    except (msgspec.DecodeError, arrow.ArrowException, ValueError, TypeError, OSError) as error:
        problem = Problem("$", f"not a plan of a table: {error!s:.300}", "value")
        raise IndexInvalidError(where, (problem,)) from error


def _planned(file: _File) -> PlannedFile:
    deleted = np.frombuffer(file.deleted, "<i8").astype(np.int64)
    return PlannedFile(file.key, file.kind, file.size, file.rows, file.constants, deleted)


def _check(document: _Document) -> None:
    """Raise `ValueError` if parts of a plan cannot be."""
    if document.version != _VERSION:
        msg = f"version {document.version}, this package reads {_VERSION}"
        raise ValueError(msg)
    for file in document.files:
        problem = name_problem(file.key)
        if problem is not None:
            msg = f"the name {file.key!r}: {problem}"
            raise ValueError(msg)
        deleted = np.frombuffer(file.deleted, "<i8")
        most = file.rows if file.rows >= 0 else np.iinfo(np.int64).max
        if file.size < 0 or file.rows < _UNKNOWN or (np.diff(deleted) <= 0).any():
            msg = f"what it says of {file.key!r} cannot be"
            raise ValueError(msg)
        if len(deleted) and not 0 <= deleted[0] <= deleted[-1] < most:
            msg = f"deleted rows outside of {file.key!r}"
            raise ValueError(msg)
    keys = [file.key for file in document.files]
    if any(a >= b for a, b in itertools.pairwise(keys)):
        msg = "files out of order, or twice"
        raise ValueError(msg)
