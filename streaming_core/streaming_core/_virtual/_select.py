"""Looking which rows a filter keeps: once, and only where that is not known from statistics."""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from streaming_core._extras import require
from streaming_core._store import RequestPolicy
from streaming_core._virtual._expression import evaluated
from streaming_core._virtual._keep import Keep
from streaming_core._virtual._kinds import open_kind
from streaming_core._virtual._model import Bounds
from streaming_core._virtual._statistics import TRUE, Facts, are_alike, outcomes
from streaming_core._virtual._view import Decoder, View
from streaming_core.errors import MissingColumnError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from streaming_core._store import Caller, Store
    from streaming_core._virtual._filter import Filter
    from streaming_core._virtual._index import VirtualIndex

__all__ = ["selected_rows"]

_AT_A_TIME: Final = 16
_MISSING: Final = Bounds(None, None, has_null=True, has_value=False)
_UNKNOWN: Final = Bounds()


def selected_rows(
    index: VirtualIndex,
    store: Store,
    wanted: Filter,
    *,
    before: Mapping[int, bytes] | None = None,
    policy: RequestPolicy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Keep:
    """Return which rows of an index a filter keeps, of those that `before` kept.

    Fetches the columns that the filter looks at, of the units that statistics do not decide; asks
    again as `policy` says. `progress` is told how many of how many of these are done.

    Raises:
        MissingColumnError: No file has a column that the filter names; lists those there are.
        SchemaError: The filter does not fit the columns.
        SourceChangedError: A file is another than when it was indexed.
        SourceFormatError: A file is broken.
        StoreError: The store failed, after all tries.
    """
    selection = _Selection(index, store, wanted, policy or RequestPolicy())
    return Keep.of(selection.bits(before or {}, progress))


class _Column(NamedTuple):
    """A column that is looked at."""

    name: str
    kind: Any
    """Its Arrow type, in which rows are looked at."""


class _Selection:
    """One filter on one index."""

    def __init__(
        self, index: VirtualIndex, store: Store, wanted: Filter, policy: RequestPolicy
    ) -> None:
        self._index = index
        self._wanted = wanted
        self._policy = policy
        try:
            self._decoder = Decoder(index, store, View(wanted.columns))
        except MissingColumnError as error:
            msg = f"filters: {error}"
            raise MissingColumnError(msg) from error
        self._columns = [_Column(field.name, field.type) for field in self._decoder.schema]
        self._check()

    def _check(self) -> None:
        """Raise `SchemaError` if the filter is none for these columns."""
        arrow = require("pyarrow", extra="parquet", purpose="filters")
        schema = self._decoder.schema
        if not schema.names:
            schema = arrow.schema([arrow.field("", arrow.int8())])
        try:
            kind = evaluated(self._wanted.expression, schema.empty_table()).type
        except arrow.ArrowException as error:
            known = ", ".join(f"{field.name}: {field.type}" for field in schema)
            msg = (
                f"filters {self._wanted.expression!s:.300} do not fit {known:.1000}: {error!s:.300}"
            )
            raise SchemaError(msg) from error
        if not arrow.types.is_boolean(kind):
            msg = (
                f"filters {self._wanted.expression!s:.300} give {kind} where true or false is "
                "needed; compare it with something"
            )
            raise SchemaError(msg)

    def bits(
        self, before: Mapping[int, bytes], progress: Callable[[int, int], None] | None
    ) -> dict[int, bytes]:
        """Return the bits of the units that are not kept whole."""
        index = self._index
        count = len(index.files)
        flags = outcomes(self._wanted.tree, self._facts(), count)
        found = dict(before)
        found.update(dict.fromkeys(np.flatnonzero((flags & TRUE) == 0).tolist(), b""))
        asked = [
            unit
            for unit in np.flatnonzero((flags & TRUE) & (flags != TRUE)).tolist()
            if found.get(unit) != b""
        ]
        families = self._families(asked)
        groups = self._policy.in_order(self._masks, families, at_a_time=_AT_A_TIME)
        masks = chain.from_iterable(groups)
        for done, (unit, mask) in enumerate(zip(asked, masks, strict=True), 1):
            kept = mask
            if unit in before:
                bits = np.frombuffer(before[unit], np.uint8)
                kept = mask & (np.unpackbits(bits, count=len(mask)) != 0)
            if not kept.all():
                found[unit] = np.packbits(kept).tobytes() if kept.any() else b""
            if progress is not None:
                progress(done, len(asked))
        return found

    def _families(self, units: list[int]) -> Iterator[list[int]]:
        """Yield those of some units that are best read in one go."""
        at = 0
        while at < len(units):
            stop = bisect_left(units, self._decoder.family(units[at]).stop, lo=at + 1)
            yield units[at:stop]
            at = stop

    def _masks(self, units: list[int], call: Caller) -> list[NDArray[np.bool_]]:
        """Return which rows of some units of a file are kept; fetches what that takes."""
        file = int(self._index.files[units[0]])
        has = set(self._index.schema(file).names)
        if any(column.name in has for column in self._columns):
            return [self._mask(file, batch) for batch in self._decoder.batches(units, call)]
        mask = self._mask(file, self._one_row(file))
        return [np.full(int(self._index.samples[unit]), bool(mask[0])) for unit in units]

    def _mask(self, file: int, batch: Any) -> NDArray[np.bool_]:  # noqa: ANN401 - Arrow's
        """Return which rows of a batch are kept."""
        arrow = require("pyarrow", extra="parquet", purpose="filters")
        try:
            found = evaluated(self._wanted.expression, batch)
        except arrow.ArrowException as error:
            where = f"{self._decoder.url}/{self._index.keys[file]}"
            msg = f"{where}: filters cannot be computed: {error!s:.300}"
            raise SchemaError(msg) from error
        mask: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - the value
        return mask.copy()

    def _one_row(self, file: int) -> Any:  # noqa: ANN401 - a table of an optional dependency
        """Return what is the same in all rows of a file: what its place says, nothing else."""
        arrow = require("pyarrow", extra="parquet", purpose="filters")
        arrays: dict[str, Any] = {"": arrow.nulls(1, arrow.int8())}
        for name, kind in self._columns:
            value = self._constant(file, name, kind)
            arrays[name] = arrow.nulls(1, kind) if value is None else arrow.array([value], kind)
        return arrow.table(arrays)

    def _constant(self, file: int, name: str, kind: Any) -> Any:  # noqa: ANN401 - Arrow's
        arrow = require("pyarrow", extra="parquet", purpose="filters")
        value = dict(self._index.file(file).constants).get(name)
        return None if value is None else arrow.scalar(value, arrow.string()).cast(kind)

    # --- what is known beforehand -----------------------------------------------------------------

    def _facts(self) -> dict[str, Facts]:
        """Return what is known of each column in each unit."""
        if self._wanted.tree is None or not len(self._index.files):
            return {}
        index = self._index
        kind = open_kind(index.kind, index.options)
        names = [column.name for column in self._columns]
        known: dict[str, list[Bounds]] = {name: [] for name in names}
        for at in range(index.num_files):
            units = index.units_of(at)
            if not units:
                continue
            has = set(index.schema(at).names)
            inside = [name for name in names if name in has]
            file, meta = index.file(at), index.meta(at) if inside else b""
            given = {
                column.name: self._place_bounds(at, column)
                for column in self._columns
                if column.name not in has
            }
            for unit in units:
                told: Mapping[str, Bounds] = {}
                if inside:
                    told = kind.bounds(file, meta, index.unit(unit), inside)
                for name in names:
                    known[name].append(given.get(name) or told.get(name, _UNKNOWN))
        return {column.name: _facts_of(column.kind, known[column.name]) for column in self._columns}

    def _place_bounds(self, file: int, column: _Column) -> Bounds:
        value = self._constant(file, column.name, column.kind)
        return _MISSING if value is None else Bounds(value, value, has_null=False, has_value=True)


def _facts_of(kind: Any, known: list[Bounds]) -> Facts:  # noqa: ANN401 - an Arrow type
    return Facts(
        least=_array(kind, [bounds.least for bounds in known]),
        most=_array(kind, [bounds.most for bounds in known]),
        has_null=np.array([bounds.has_null for bounds in known], np.bool_),
        has_value=np.array([bounds.has_value for bounds in known], np.bool_),
    )


def _array(kind: Any, scalars: list[Any]) -> Any:  # noqa: ANN401 - Arrow's
    """Return bounds as the type in which rows are looked at; null where one does not fit it."""
    arrow = require("pyarrow", extra="parquet", purpose="filters")

    def fitted(scalar: Any) -> Any:  # noqa: ANN401 - see above
        if scalar is None or scalar.type.equals(kind):
            return scalar
        if not are_alike(scalar.type, kind):
            return None
        try:
            return scalar.cast(kind)
        except arrow.ArrowException:
            return None

    each = [fitted(scalar) for scalar in scalars]
    if all(scalar is None for scalar in each):
        return arrow.nulls(len(each), kind)
    return arrow.array(each, kind)
