"""What a data set sees of an index: which columns, in which form, and each unit as a shard."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np
import xxhash

from streaming_core._extras import require
from streaming_core._index import PackedStrings, ShardSchema, ShardTable
from streaming_core._index._column import FileColumn
from streaming_core._index._schema import MADE_FORMAT
from streaming_core._virtual._index import STEM_BYTES
from streaming_core._virtual._keep import Keep
from streaming_core._virtual._kinds import open_kind
from streaming_core._virtual._model import SourceReader
from streaming_core._virtual._normal import Nulls, normal_schema, normal_table, unified
from streaming_core.errors import MissingColumnError, SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streaming_core._store import Store
    from streaming_core._virtual._index import VirtualIndex
    from streaming_core._virtual._model import Kind, SourceFile, Unit

__all__ = ["Decoder", "View"]

_LEAST_BYTES: Final = 512
_ORDINAL_DIGITS: Final = 7
_DIGITS: Final = 19
"""Whole numbers of fewer fit 64 bits."""


@final
@dataclass(frozen=True, slots=True)
class View:
    """What of the rows is wanted, and in which form."""

    columns: tuple[str, ...] | None = None
    """Names of the columns, None for all."""
    nulls: Nulls = "none"
    """What becomes of missing values."""

    def digest(self, extra: object = None) -> str:
        """Return a short text that differs for views that decode to something else."""
        nulls = sorted(self.nulls.items()) if isinstance(self.nulls, dict) else self.nulls
        told = repr((1, self.columns, nulls, extra))
        return hashlib.blake2s(told.encode(), digest_size=8).hexdigest()


@final
class Decoder:
    """Makes the file of any unit of an index: fetched, decoded, brought into one form.

    Pickles, and survives a fork; threads may share it.
    """

    def __init__(
        self, index: VirtualIndex, store: Store, view: View, keep: Mapping[int, bytes] | None = None
    ) -> None:
        """Read the files of `index` from `store`; `keep` has the bits of units that are filtered.

        Raises:
            MissingColumnError: No file has a column that is wanted; lists those there are.
            SchemaError: The files' columns do not fit each other.
        """
        self._index = index
        self._store = store
        self._view = view
        self._keep = None if keep is None else Keep.of(keep)
        self._wanted = self._chosen_schema()
        _ = self.schema

    def __getstate__(self) -> dict[str, object]:
        state = {**self.__dict__}
        for name in ("schema", "_kind", "_order"):
            state.pop(name, None)
        state["_wanted"] = self._wanted.serialize().to_pybytes()
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        self.__dict__.update(state)
        self._wanted = arrow.ipc.read_schema(arrow.py_buffer(state["_wanted"]))

    @property
    def url(self) -> str:
        """Where the files lie, without secrets."""
        return self._store.url

    @cached_property
    def schema(self) -> Any:  # noqa: ANN401 - of an optional dependency
        """The `pyarrow.Schema` of every decoded unit."""
        return normal_schema(self._wanted, self._view.nulls)

    @cached_property
    def _kind(self) -> Kind:
        return open_kind(self._index.kind, self._index.options)

    def _chosen_schema(self) -> Any:  # noqa: ANN401 - see above
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        index = self._index
        first: list[int] = np.unique(index.schema_ids, return_index=True)[1].tolist()
        if not first:
            return arrow.schema([])
        joined = unified([index.schema(at) for at in first], [index.keys[at] for at in first])
        for name, kind in _constant_types(index).items():
            if joined.get_field_index(name) < 0:
                joined = joined.append(arrow.field(name, kind))
        if len(set(joined.names)) < len(joined.names):
            twice = sorted({name for name in joined.names if joined.names.count(name) > 1})
            msg = f"{self._store.url}: several columns are called {', '.join(map(repr, twice))}"
            raise SchemaError(msg)
        columns = self._view.columns
        if columns is None:
            return joined
        for name in columns:
            if name not in joined.names:
                known = ", ".join(map(repr, joined.names))
                msg = f"no column {name!r} in {self._store.url}; there are {known}"
                raise MissingColumnError(msg)
        return arrow.schema([joined.field(name) for name in columns])

    # --- the table --------------------------------------------------------------------------------

    def table(self) -> ShardTable:
        """Return the units as shards, those of which nothing is kept left out."""
        index = self._index
        samples = self._samples()
        (units,) = np.nonzero(samples)
        schema = ShardSchema(
            MADE_FORMAT,
            tuple(self.schema.names),
            tuple(str(field.type) for field in self.schema),
        )
        names = self._names(units.tolist())
        share = samples[units] / np.maximum(1, index.samples[units])
        sizes = np.maximum(_LEAST_BYTES, (index.nbytes[units] * share).astype(np.int64))
        return ShardTable(
            samples=samples[units],
            schemas=(schema,),
            schema_ids=np.zeros(len(units), np.int32),
            files={"raw": FileColumn(sizes, PackedStrings.from_iterable(names), None)},
            extras={"source": self._store.url},
        )

    def _samples(self) -> NDArray[np.int64]:
        samples = self._index.samples.copy()
        if self._keep is not None:
            samples[self._keep.units] = self._keep.samples
        return samples

    def _names(self, units: Sequence[int]) -> list[str]:
        """Return names that tell a version of a file, a unit of it, and the rows that are kept."""
        index = self._index
        stems = index.stems.tobytes().hex()
        width = 2 * STEM_BYTES
        files, ordinals = index.files.tolist(), index.ordinals.tolist()
        kept: Mapping[int, bytes] = {} if self._keep is None else self._keep
        found: list[str] = []
        for unit in units:
            stem = stems[files[unit] * width : (files[unit] + 1) * width]
            rows = f"-{xxhash.xxh3_64_hexdigest(kept[unit])}" if unit in kept else ""
            found.append(f"{stem}.{ordinals[unit]:0{_ORDINAL_DIGITS}d}{rows}.arrow")
        return found

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """The files in order of their stems."""
        return np.argsort(self._stems, kind="stable")

    @property
    def _stems(self) -> NDArray[np.bytes_]:
        return self._index.stems.view(f"S{STEM_BYTES}")

    def _unit_of(self, basename: str) -> int:
        """Return which unit a name is; `KeyError` if it is none."""
        stem, _, rest = basename.partition(".")
        ordinal = rest[:_ORDINAL_DIGITS]
        if len(stem) != 2 * STEM_BYTES or not ordinal.isdecimal():
            raise KeyError(basename)
        told = np.bytes_(bytes.fromhex(stem).rstrip(b"\0"))  # as NumPy keeps them
        at = int(np.searchsorted(self._stems, told, sorter=self._order))
        if at < len(self._order) and self._stems[self._order[at]] == told:
            units = self._index.units_of(int(self._order[at]))
            if int(ordinal) < len(units):
                return units[int(ordinal)]
        raise KeyError(basename)

    # --- one unit ---------------------------------------------------------------------------------

    def made(self, basename: str, came: Any) -> memoryview:  # noqa: ANN401 - a function of the count of bytes
        """Return the bytes of the Arrow file of one unit; `came` is told how many were fetched.

        Raises:
            SourceChangedError: The file is another than when it was indexed.
            SourceFormatError: It is broken.
            StoreError: The store failed; may be tried again.
        """
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        at = self._unit_of(basename)
        batch = self.batch(at, came)
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return memoryview(sink.getvalue())

    def batch(self, at: int, came: Any = None) -> Any:  # noqa: ANN401 - see above, and of an optional dependency
        """Return the rows of one unit that are kept, as a `pyarrow.RecordBatch`."""
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        index = self._index
        file, meta = index.file(int(index.files[at])), index.meta(int(index.files[at]))
        unit = index.unit(at)
        table = self._table(file, meta, unit, came)
        if table.num_rows != unit.samples:
            msg = (
                f"{self._store.url}/{file.key}: {table.num_rows} rows where {unit.samples} were "
                "counted when it was indexed; index it again"
            )
            raise SourceFormatError(msg)
        bits = None if self._keep is None else self._keep.get(at)
        if bits is not None:
            mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=unit.samples).astype(bool)
            table = table.filter(arrow.array(mask))
        where = f"{self._store.url}/{file.key}"
        constants = dict(file.constants)
        return normal_table(table, self.schema, self._view.nulls, constants, where)

    def _table(self, file: SourceFile, meta: bytes, unit: Unit, came: Any) -> Any:  # noqa: ANN401 - see above
        names = None if self._view.columns is None else list(self._wanted.names)
        wanted = self._kind.ranges(file, meta, unit, names)
        pieces = SourceReader(self._store, file).ranges(wanted)
        if came is not None:
            came(sum(len(piece.data) for piece in pieces))
        return self._kind.decode(file, meta, unit, pieces, names)


def _constant_types(index: VirtualIndex) -> dict[str, Any]:
    """Return the columns that places give, with the narrowest type that takes all their values."""
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    values: dict[str, set[str]] = {}
    for text in set(index.constants):
        for name, value in msgspec.json.decode(text or "[]"):
            values.setdefault(name, set()).update(() if value is None else (value,))
    return {
        name: arrow.int64() if found and all(map(_is_whole, found)) else arrow.string()
        for name, found in values.items()
    }


def _is_whole(text: str) -> bool:
    """Tell whether a text is a whole number that is written as Python would write it."""
    return (
        text.lstrip("-").isdigit()
        and text.isascii()
        and len(text) < _DIGITS
        and str(int(text)) == text
    )
