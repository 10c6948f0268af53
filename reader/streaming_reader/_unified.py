"""One form for the samples of streams that have the same columns, but not quite the same types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streaming_core._columns import Columns, Fixed
from streaming_core._format import common_dtype, gather_none

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from streaming_core._columns import Column
    from streaming_core._index import ShardSchema

__all__ = ["Unified", "unified"]


@dataclass(frozen=True, slots=True)
class Unified:
    """What batches of several streams have in common, whichever streams a batch has samples of."""

    names: tuple[str, ...]
    """The columns, in the order of the first stream."""
    numbers: Mapping[str, np.dtype[Any]]
    """The type that holds all numbers, for columns whose numbers are of several types."""
    typed: frozenset[str]
    """Columns that have the same Arrow type everywhere."""

    def form(self, columns: Columns) -> Columns:
        """Return the samples so that all batches are alike."""
        found = {name: self._column(name, columns[name]) for name in self.names}
        types = {n: kind for n, kind in (columns.types or {}).items() if n in self.typed}
        return Columns(columns.length, found, types)

    def _column(self, name: str, column: Column) -> Column:
        dtype = self.numbers.get(name)
        if dtype is None or not isinstance(column, Fixed):
            return column
        item = column.item if column.item == "array" else "scalar"
        return Fixed(column.values.astype(dtype, copy=False), item)


def unified(schemas: Sequence[ShardSchema]) -> Unified | None:
    """Return what samples of these schemas have in common.

    None if there is but one, which needs no care, or if they have different columns.

    Example:
        >>> from streaming_core._index import ShardSchema
        >>> one = ShardSchema("mds", ("a", "b"), ("int32", "str"), (4, None))
        >>> two = ShardSchema("mds", ("a", "b"), ("int64", "str"), (8, None))
        >>> found = unified([one, two])
        >>> found.names, found.numbers
        (('a', 'b'), {'a': dtype('int64')})
    """
    distinct = {(str(schema.identity()), schema.column_names): schema for schema in schemas}
    several = list(distinct.values())
    if not several:
        return None
    names = several[0].column_names
    if len(several) == 1 or any(set(s.column_names) != set(names) for s in several):
        return None
    encodings = [dict(zip(s.column_names, s.column_encodings, strict=True)) for s in several]
    made = all(schema.is_made for schema in several)
    typed = (name for name in names if made and len({e[name] for e in encodings}) == 1)
    empty = [gather_none(schema) for schema in several]
    numbers: dict[str, np.dtype[Any]] = {}
    for name in names:
        columns = [one[name] for one in empty]
        dtypes = {column.values.dtype for column in columns if isinstance(column, Fixed)}
        common = common_dtype(dtypes) if dtypes else None
        if len(dtypes) > 1 and common is not None and all(isinstance(c, Fixed) for c in columns):
            numbers[name] = common
    return Unified(names, numbers, frozenset(typed))
