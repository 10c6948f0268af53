"""From entries to a table: thousands at a time, the doubtful ones through the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np

from streaming_core._index._column import FileColumn
from streaming_core._index._doubles import NameBook
from streaming_core._index._json import count_quotes, decode_value
from streaming_core._index._judge import judge_entry
from streaming_core._index._packed import PackedStrings
from streaming_core._index._problems import shown
from streaming_core._index._rows import Row, SchemaBook, decode_rows, extract, suspects
from streaming_core._index._shard import ROLE_KEYS, ROLES, FileRole
from streaming_core._index._table import ShardTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._index._problems import Problems
    from streaming_core._index._rows import RoleRows
    from streaming_core._index._schema import ShardSchema

__all__ = ["TableBuilder"]

_CHUNK: Final = 4096


@final
class TableBuilder:
    """Checks the entries of one document and gathers them into columns.

    Use it once: `add` everything, look at the problems, then `build`.
    """

    __slots__ = (
        "_chunks",
        "_first",
        "_ids",
        "_names",
        "_problems",
        "_samples",
        "_schemas",
        "_shard_extras",
        "quotes",
    )

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._schemas = SchemaBook()
        self._names = NameBook()
        self._samples: list[NDArray[np.int64]] = []
        self._ids: list[NDArray[np.int32]] = []
        self._chunks: list[dict[FileRole, FileColumn]] = []
        self._shard_extras: dict[int, dict[str, Any]] = {}
        self._first = 0
        self.quotes = 0
        """Quotes in all entries, to tell whether the rest of the document has as it should."""

    def add(self, raws: Sequence[msgspec.Raw], *, fast: bool = True) -> None:
        """Check and gather all entries; without `fast` the judge sees each of them."""
        for start in range(0, len(raws), _CHUNK):
            self._add_chunk(raws[start : start + _CHUNK], fast=fast)

        def name_of(shard: int, role: FileRole) -> str:
            return str(msgspec.json.decode(raws[shard])[ROLE_KEYS[role]]["basename"])

        for place, owner, name in self._names.doubles(name_of):
            text = f"the name {shown(name)} is that of {_path(*owner)} already"
            self._problems.add(f"{_path(*place)}.basename", text, "duplicate")

    def build(self, extras: dict[str, Any]) -> ShardTable:
        """Return the table of what was added; only if there is no problem."""
        lengths = list(map(len, self._samples))
        schemas, ids = _in_order_of_use(
            self._schemas.schemas, np.concatenate([np.zeros(0, np.int32), *self._ids])
        )
        files: dict[FileRole, FileColumn] = {}
        for role in ROLES:
            columns = [chunk.pop(role, None) for chunk in self._chunks]
            if any(column is not None for column in columns):
                files[role] = FileColumn.concatenate(list(zip(columns, lengths, strict=True)))
        return ShardTable(
            samples=np.concatenate([np.zeros(0, np.int64), *self._samples]),
            schemas=schemas,
            schema_ids=ids,
            files=files,
            shard_extras=self._shard_extras,
            extras=extras,
        )

    def _add_chunk(self, raws: Sequence[msgspec.Raw], *, fast: bool) -> None:
        entries = decode_rows(raws) if fast else [None] * len(raws)
        quotes = np.array([count_quotes(bytes(raw)) for raw in raws], np.int64)
        looked_up = [self._schemas.look_up(row) for row in entries]
        ids = np.array([schema_id for schema_id, _ in looked_up], np.int32)
        rows: list[Row | None] = [*entries]
        doubtful = ids < 0
        sure = np.flatnonzero(~doubtful)
        columns = extract([row for row, no in zip(rows, doubtful, strict=True) if row and not no])
        if len(sure):
            spare = quotes - np.array([spent for _, spent in looked_up], np.int64)
            doubtful[sure] = suspects(columns, self._schemas.schemas, ids[sure], spare[sure])
        if doubtful.any():
            for at in np.flatnonzero(doubtful).tolist():
                rows[at], ids[at] = self._judge(raws[at], self._first + at)
            columns = extract([row for row in rows if row is not None])
        shards = self._first + np.flatnonzero(ids >= 0)
        for role, files in columns.files.items():
            self._names.add(files.names, shards, role)
        self._samples.append(columns.samples)
        self._ids.append(ids[ids >= 0])
        self._chunks.append({role: _packed(files) for role, files in columns.files.items()})
        self._first += len(raws)
        self.quotes += int(quotes.sum())

    def _judge(self, raw: msgspec.Raw, shard: int) -> tuple[Row | None, int]:
        """Return the row and schema id of an entry that is good after all, else note why not."""
        path = f"$.shards[{shard}]"
        before = len(self._problems)
        sound, value = decode_value(bytes(raw), path, self._problems)
        entry = self._problems.members(value, path) if sound else None
        if entry is None:
            return None, -1
        verdict = judge_entry(entry, path, self._problems)
        if len(self._problems) == before and verdict.schema is not None:
            if verdict.extras:
                self._shard_extras[shard] = verdict.extras
            return Row.of(verdict), self._schemas.add(verdict.schema)
        for role, info in verdict.files.items():  # its names still count
            self._names.add([info.basename], np.array([shard]), role)
        return None, -1


def _path(shard: int, role: FileRole) -> str:
    return f"$.shards[{shard}].{ROLE_KEYS[role]}"


def _packed(files: RoleRows) -> FileColumn:
    hashes = None
    if files.hashes is not None:
        # Sorted, so that tables of equal documents are equal.
        encode = msgspec.json.Encoder(order="sorted").encode
        hashes = PackedStrings.from_iterable(
            encode(each).decode() if each else "" for each in files.hashes
        )
    return FileColumn(files.sizes, PackedStrings.from_iterable(files.names), hashes)


def _in_order_of_use(
    schemas: tuple[ShardSchema, ...], ids: NDArray[np.int32]
) -> tuple[tuple[ShardSchema, ...], NDArray[np.int32]]:
    """Renumber, so that the way an entry was checked leaves no trace."""
    used, first, ranks = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return tuple(schemas[used[at]] for at in order.tolist()), places[ranks]
