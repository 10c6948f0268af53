"""What a data set sees of an index: which columns, in which form, and each unit as a shard."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final, overload

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
from streaming_core._virtual._model import SourceReader, Unit
from streaming_core._virtual._normal import Nulls, normal_schema, normal_table
from streaming_core._virtual._types import unified
from streaming_core._virtual._whole import aligned
from streaming_core.errors import MissingColumnError, SchemaError, SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from streaming_core._store import Store
    from streaming_core._virtual._index import VirtualIndex
    from streaming_core._virtual._model import Ask, Kind, Piece, SourceFile

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
        told = repr((2, self.columns, nulls, extra))
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
            SchemaError: The files' columns do not fit each other, or the rule for nulls not them.
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
        return normal_schema(self._wanted, self._view.nulls, self._place)

    @cached_property
    def _kind(self) -> Kind:
        return open_kind(self._index.kind, self._index.options)

    def _chosen_schema(self) -> Any:  # noqa: ANN401 - see above
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        index = self._index
        first: list[int] = np.unique(index.schema_ids, return_index=True)[1].tolist()
        if not first:
            return arrow.schema([])
        columns = self._view.columns
        schemas = [index.schema(at) for at in first]
        wheres = [f"{self._store.url}/{index.keys[at]}" for at in first]
        joined = unified(aligned(schemas, wheres, columns), wheres, columns)
        places = _constant_types(index)
        for name, kind in places.items():
            if joined.get_field_index(name) < 0 and (columns is None or name in columns):
                joined = joined.append(arrow.field(name, kind))
        if columns is None:
            if not joined.names and len(index.files):
                msg = f"{self._place}: the rows have no columns; there is nothing to read"
                raise SchemaError(msg)
            return joined
        for name in columns:
            if name not in joined.names:
                every = dict.fromkeys([*(n for schema in schemas for n in schema.names), *places])
                known = ", ".join(map(repr, every))
                msg = f"no column {name!r} in {self._place}; there are {known}"
                raise MissingColumnError(msg)
        return arrow.schema([joined.field(name) for name in columns])

    @property
    def _place(self) -> str:
        """All that is read, for messages."""
        return f"{self._store.url.rstrip('/')}/{self._index.pattern}"

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
        found: list[str] = []
        for unit in units:
            stem = stems[files[unit] * width : (files[unit] + 1) * width]
            found.append(self._name(stem, ordinals[unit], unit))
        return found

    def _name(self, stem: str, ordinal: int, unit: int) -> str:
        kept: Mapping[int, bytes] = {} if self._keep is None else self._keep
        rows = f"-{xxhash.xxh3_64_hexdigest(kept[unit])}" if unit in kept else ""
        return f"{stem}.{ordinal:0{_ORDINAL_DIGITS}d}{rows}.arrow"

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

    def kin(self, basename: str) -> list[str]:
        """Return the names of the units that are made of the same bytes as one, and its own."""
        found = self.family(self._unit_of(basename))
        if len(found) == 1:
            return [basename]
        stem, _, _ = basename.partition(".")
        ordinals = self._index.ordinals
        return [
            self._name(stem, int(ordinals[unit]), unit) for unit in found if self._has_rows(unit)
        ]

    def made(self, basename: str, came: Any) -> memoryview:  # noqa: ANN401 - a function of the count of bytes
        """Return the bytes of the Arrow file of one unit; `came` is told how many were fetched.

        Raises:
            SourceChangedError: The file is another than when it was indexed.
            SourceFormatError: It is broken.
            StoreError: The store failed; may be tried again.
        """

        def ask(request: Callable[[], list[Piece]]) -> list[Piece]:
            pieces = request()
            if came is not None:
                came(sum(len(piece.data) for piece in pieces))
            return pieces

        ((_, data),) = self.made_together([basename], ask)
        return data

    def made_together(
        self, basenames: Sequence[str], ask: Ask | None = None
    ) -> Iterator[tuple[str, memoryview]]:
        """Yield the name and the bytes of the Arrow files of some units, which are kin, in order.

        What they are made of is fetched once; `ask` makes the requests. Raises as `made`.
        """
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        names = {self._unit_of(basename): basename for basename in basenames}
        units = sorted(names)
        for unit, batch in zip(units, self.batches(units, ask), strict=True):
            sink = arrow.BufferOutputStream()
            with arrow.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            del batch
            yield names[unit], memoryview(sink.getvalue())

    def family(self, at: int) -> range:
        """Return the units that are best made in one go, `at` among them, kept or not."""
        index = self._index
        file = int(index.files[at])
        units = _Units(index, index.units_of(file))
        first = units.numbers.start
        found = self._kind.kin(index.file(file), lambda: index.meta(file), units, at - first)
        return range(first + found.start, first + found.stop)

    def batch(self, at: int) -> Any:  # noqa: ANN401 - of an optional dependency
        """Return the rows of one unit that are kept, as a `pyarrow.RecordBatch`."""
        (found,) = self.batches([at])
        return found

    def batches(self, units: Sequence[int], ask: Ask | None = None) -> Iterator[Any]:
        """Yield the rows of each of some units, which are kin, that are kept; see `batch`."""
        index = self._index
        at = int(index.files[units[0]])
        file, meta = index.file(at), index.meta(at)
        reader = SourceReader(self._store, file, ask=ask, is_of_table=self._kind.is_of_table)
        names = None if self._view.columns is None else list(self._wanted.names)
        wanted = [index.unit(unit) for unit in units]
        tables = self._kind.tables(reader, meta, wanted, names)
        for unit, table in zip(units, tables, strict=True):
            yield self._batch(file, unit, table, reader.where)

    def _batch(self, file: SourceFile, at: int, table: Any, where: str) -> Any:  # noqa: ANN401 - of an optional dependency
        """Return what is kept of the rows of a unit, in the form of all."""
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        samples = int(self._index.samples[at])
        if table.num_rows != samples:
            msg = (
                f"{where}: {table.num_rows} rows where {samples} were counted when it was "
                "indexed; index it again"
            )
            raise SourceFormatError(msg)
        bits = None if self._keep is None else self._keep.get(at)
        if bits is not None:
            mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=samples).astype(bool)
            table = table.filter(arrow.array(mask))
        return normal_table(table, self.schema, self._view.nulls, dict(file.constants), where)

    def _has_rows(self, unit: int) -> bool:
        bits = None if self._keep is None else self._keep.get(unit)
        return bits is None or any(bits)


class _Units(Sequence[Unit]):
    """The units of one file, looked up when they are asked for."""

    def __init__(self, index: VirtualIndex, numbers: range) -> None:
        self._index = index
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Unit: ...

    @overload
    def __getitem__(self, at: slice) -> list[Unit]: ...

    def __getitem__(self, at: int | slice) -> Unit | list[Unit]:
        if isinstance(at, slice):
            return [self._index.unit(number) for number in self.numbers[at]]
        return self._index.unit(self.numbers[at])


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
