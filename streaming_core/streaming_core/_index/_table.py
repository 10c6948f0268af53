"""The shards of a data set in columns: a hundred thousand of them in some ten megabytes."""

from __future__ import annotations

import json
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import xxhash

from streaming_core._index._column import FileColumn
from streaming_core._index._packed import PackedStrings
from streaming_core._index._shard import ROLE_KEYS, ROLES, FileInfo, FileRole, ShardInfo
from streaming_core._names import MAX_NAME_BYTES, name_problem
from streaming_core._shown import Shown
from streaming_core._units import format_bytes, format_count
from streaming_core.errors import IndexInvalidError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from streaming_core._index._schema import ShardSchema

__all__ = ["ShardTable"]

_NO_EXTRAS: Mapping[Any, Any] = MappingProxyType({})


@final
class ShardTable(Shown):
    """The index of a data set, validated, as read-only numpy columns.

    Immutable, so any number of threads may use it; pickles as its arrays; two tables are equal
    if their documents are. `parse_index` and `load_index` make them.

    Example:
        >>> table = ShardTable.concatenate([])
        >>> table.num_shards, table.num_samples, table
        (0, 0, ShardTable(0 shards, 0 samples, 0 B))
    """

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - equality is by content
    __slots__ = (
        "_files",
        "extras",
        "sample_offsets",
        "samples",
        "schema_ids",
        "schemas",
        "shard_extras",
    )

    def __init__(
        self,
        *,
        samples: NDArray[np.int64],
        schemas: tuple[ShardSchema, ...],
        schema_ids: NDArray[np.int32],
        files: Mapping[FileRole, FileColumn],
        shard_extras: Mapping[int, dict[str, Any]] = _NO_EXTRAS,
        extras: Mapping[str, Any] = _NO_EXTRAS,
    ) -> None:
        """Take over the columns, which must agree; roles without any file are left out."""
        self.samples = samples
        """Samples of each shard."""
        self.sample_offsets: NDArray[np.int64] = np.zeros(len(samples) + 1, np.int64)
        """Id of each shard's first sample, and the number of all samples at the end."""
        self.schemas = schemas
        """The distinct schemas, in order of first use."""
        self.schema_ids = schema_ids
        """Which of `schemas` each shard has."""
        self.shard_extras = dict(shard_extras)
        """Unknown keys of entries, by shard; those of a file under the file's key."""
        self.extras = dict(extras)
        """Unknown keys of the document itself."""
        self._files: dict[FileRole, FileColumn] = {r: files[r] for r in ROLES if r in files}
        np.cumsum(samples, out=self.sample_offsets[1:])
        for flags in (samples.flags, self.sample_offsets.flags, schema_ids.flags):
            flags.writeable = False
        for column in self._files.values():
            column.sizes.flags.writeable = False

    # --- columns ----------------------------------------------------------------------------------

    @property
    def num_shards(self) -> int:
        """Number of shards, empty ones included."""
        return len(self.samples)

    @property
    def num_samples(self) -> int:
        """Number of samples in all shards."""
        return int(self.sample_offsets[-1])

    @property
    def files(self) -> Mapping[FileRole, FileColumn]:
        """The files in columns, by role; a role in which no shard has a file is left out."""
        return MappingProxyType(self._files)

    @property
    def raw_bytes(self) -> NDArray[np.int64]:
        """Size of each data file, decompressed."""
        return self.file_bytes("raw")

    @property
    def zip_bytes(self) -> NDArray[np.int64]:
        """Size of each compressed data file, -1 where there is none."""
        return self.file_bytes("zip")

    @property
    def raw_meta_bytes(self) -> NDArray[np.int64]:
        """Size of each meta file, decompressed; -1 where there is none."""
        return self.file_bytes("raw_meta")

    @property
    def zip_meta_bytes(self) -> NDArray[np.int64]:
        """Size of each compressed meta file, -1 where there is none."""
        return self.file_bytes("zip_meta")

    @property
    def nbytes(self) -> int:
        """Bytes held by the columns; schemas and unknown keys are not counted."""
        arrays = self.samples.nbytes + self.sample_offsets.nbytes + self.schema_ids.nbytes
        return arrays + sum(column.nbytes for column in self._files.values())

    def file_bytes(self, role: FileRole) -> NDArray[np.int64]:
        """Return the size of each shard's file in `role`, -1 where there is none."""
        column = self._files.get(role)
        if column is not None:
            return column.sizes
        return np.broadcast_to(np.int64(-1), self.samples.shape)  # one number, seen n times

    def basenames(self, role: FileRole) -> Sequence[str]:
        """Return the name of each shard's file in `role`, empty where there is none."""
        column = self._files.get(role)
        return [""] * self.num_shards if column is None else column.basenames

    def total_bytes(self, role: FileRole) -> int:
        """Return the bytes of all files in `role`."""
        column = self._files.get(role)
        return 0 if column is None else int(np.maximum(column.sizes, 0).sum())

    # --- single shards ----------------------------------------------------------------------------

    def shard(self, index: int) -> ShardInfo:
        """Return shard `index`, from 0; raises `IndexError` outside of `0 … num_shards - 1`."""
        at = self._checked(index)
        files = {role: column[at] for role, column in self._files.items()}
        return ShardInfo(
            index=at,
            samples=int(self.samples[at]),
            schema=self.schemas[int(self.schema_ids[at])],
            raw=cast("FileInfo", files["raw"]),
            zip=files.get("zip"),
            raw_meta=files.get("raw_meta"),
            zip_meta=files.get("zip_meta"),
        )

    def entry(self, index: int) -> dict[str, Any]:
        """Return shard `index` as an entry of the document: fresh, keys sorted, none lost."""
        shard = self.shard(index)
        entry = shard.schema.document()
        entry["samples"] = shard.samples
        for role in ROLES if shard.schema.has_meta else ROLES[:2]:
            info: FileInfo | None = getattr(shard, role)
            entry[ROLE_KEYS[role]] = info and {
                "basename": info.basename,
                "bytes": info.bytes,
                "hashes": info.hashes,
            }
        for key, value in self.shard_extras.get(shard.index, {}).items():
            copy = json.loads(json.dumps(value))  # the table stays as it is, whatever callers do
            if key in entry:
                entry[key] = dict(sorted({**entry[key], **copy}.items()))
            else:
                entry[key] = copy
        return dict(sorted(entry.items()))

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield every entry in order, as `entry` does."""
        return map(self.entry, range(self.num_shards))

    def locate(self, sample_ids: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard of each sample and its row in there, in the shape of `sample_ids`.

        Raises:
            IndexError: An id is not in `0 … num_samples - 1`; negative ids do not count from
                the end.
            TypeError: The ids are no integers.
        """
        given = np.asarray(sample_ids)
        if given.dtype.kind not in "iu" and given.size:
            msg = f"sample ids must be integers, but these are {given.dtype}"
            raise TypeError(msg)
        bad = (given < 0) | (given >= self.num_samples)
        if bad.any():
            msg = (
                f"sample {given[bad].flat[0]} is out of range: there are {self.num_samples} "
                f"samples, ids run from 0 ({np.count_nonzero(bad)} of {given.size} are outside)"
            )
            raise IndexError(msg)
        ids = given.astype(np.int64, copy=False)
        # side="right" skips empty shards, whose first sample is that of the next shard
        shards = np.searchsorted(self.sample_offsets, ids, side="right") - 1
        return shards, ids - self.sample_offsets[shards]

    # --- whole tables -----------------------------------------------------------------------------

    def with_prefix(self, prefix: str) -> ShardTable:
        """Return the table with every file in the folder `prefix`; an empty one changes nothing.

        Raises:
            IndexInvalidError: The prefix is no safe relative name, or names become too long.
        """
        if not prefix:
            return self
        longest = max((c.basenames.max_text_bytes for c in self._files.values()), default=0)
        problem = name_problem(prefix)
        if problem is None and len(prefix.encode()) + 1 + longest > MAX_NAME_BYTES:
            problem = f"basenames would have more than {MAX_NAME_BYTES} bytes"
        if problem is not None:
            raise IndexInvalidError(repr(prefix), (Problem("$", problem, "name"),))
        lead = f"{prefix}/"
        files: dict[FileRole, FileColumn] = {}
        for role, column in self._files.items():
            names = column.basenames
            if (column.sizes < 0).any():  # a file that is not there keeps its empty name
                names = PackedStrings.from_iterable(lead + name if name else "" for name in names)
            else:
                names = names.with_prefix(lead)
            files[role] = FileColumn(column.sizes, names, column.hashes)
        return self._replace(files)

    @staticmethod
    def concatenate(tables: Sequence[ShardTable]) -> ShardTable:
        """Return the shards of all `tables`, one after the other; names are not compared.

        A top-level unknown key is kept where all tables that have it agree.
        """
        schemas: dict[ShardSchema, int] = {}
        schema_ids = [np.zeros(0, np.int32)]
        shard_extras: dict[int, dict[str, Any]] = {}
        first = 0
        for table in tables:
            ids = [schemas.setdefault(schema, len(schemas)) for schema in table.schemas]
            schema_ids.append(np.array(ids, np.int32)[table.schema_ids])
            shard_extras |= {first + at: extra for at, extra in table.shard_extras.items()}
            first += table.num_shards
        return ShardTable(
            samples=np.concatenate([np.zeros(0, np.int64), *(table.samples for table in tables)]),
            schemas=tuple(schemas),
            schema_ids=np.concatenate(schema_ids),
            files={
                role: FileColumn.concatenate(
                    [(table.files.get(role), table.num_shards) for table in tables]
                )
                for role in ROLES
                if any(role in table.files for table in tables)
            },
            shard_extras=shard_extras,
            extras=_agreed([table.extras for table in tables]),
        )

    def fingerprint(self) -> str:
        """Return 32 hex digits that tell this data from other data, on any machine, for ever.

        They come from the names and sizes of the decompressed files, the samples and the columns.
        Key order, compressed files, hashes, size limit and unknown keys do not matter, because
        what a sample is, and its place in the order, does not depend on them.
        """
        state = xxhash.xxh3_128()
        known: dict[str, int] = {}
        texts = [json.dumps(schema.identity()) for schema in self.schemas]
        ids = np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
        numbers = [self.samples, ids[self.schema_ids]]
        texts_by_id = PackedStrings.from_iterable(known)
        packed = [texts_by_id]
        roles: tuple[FileRole, ...] = ("raw", "raw_meta")
        for role in roles:
            column = self._files.get(role)
            state.update(b"." if column is None else b"+")
            if column is not None:
                numbers.append(column.sizes)
                packed.append(column.basenames)
        for texts_ in packed:
            blob, offsets = texts_.buffers()
            numbers.append(offsets)
            state.update(len(blob).to_bytes(8, "little") + blob)
        for array in numbers:
            state.update(len(array).to_bytes(8, "little") + array.astype("<i8").tobytes())
        return state.hexdigest()

    # --- plumbing ---------------------------------------------------------------------------------

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.num_shards:
            msg = f"shard {index} is out of range: there are {self.num_shards}, counted from 0"
            raise IndexError(msg)
        return int(index)

    def _replace(self, files: Mapping[FileRole, FileColumn]) -> ShardTable:
        return _restore({**self._state(), "files": files})

    def _state(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "schemas": self.schemas,
            "schema_ids": self.schema_ids,
            "files": self._files,
            "shard_extras": self.shard_extras,
            "extras": self.extras,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._state(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShardTable):
            return NotImplemented
        return (
            np.array_equal(self.samples, other.samples)
            and self.schemas == other.schemas
            and np.array_equal(self.schema_ids, other.schema_ids)
            and self._files == other._files
            and self.shard_extras == other.shard_extras
            and self.extras == other.extras
        )

    def __repr__(self) -> str:
        kinds = Counter(schema.format for schema in self.schemas)
        text = f"{self.num_shards} shards, {format_count(self.num_samples)} samples"
        parts = [text, format_bytes(self.total_bytes("raw")), *kinds]
        return f"ShardTable({', '.join(parts)})"

    def _streaming_facts(self) -> dict[str, Any]:
        columns = {
            f"{name}: {text}"
            for schema in self.schemas
            for name, text in zip(schema.column_names, schema.column_encodings, strict=True)
        }
        return {
            "samples": format_count(self.num_samples),
            "shards": format_count(self.num_shards),
            "size": format_bytes(self.total_bytes("raw")),
            "compressed": format_bytes(self.total_bytes("zip")) if "zip" in self._files else None,
            "formats": ", ".join(sorted({schema.format for schema in self.schemas})),
            "columns": ", ".join(sorted(columns)),
        }


def _restore(state: dict[str, Any]) -> ShardTable:
    return ShardTable(**state)


def _agreed(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    clashing: set[str] = set()
    for document in documents:
        for key, value in document.items():
            if merged.setdefault(key, value) != value:
                clashing.add(key)
    return {key: value for key, value in merged.items() if key not in clashing}
