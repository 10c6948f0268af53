"""Many rows of Arrow shards at once, by column: numbers by address, all else by Arrow's `take`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Column, Columns, Fixed, Ragged
from streaming_core._extras import require
from streaming_core._foreign import Foreign, block_of, block_type
from streaming_core._format._arrow._types import Plain
from streaming_core._format._arrow._varying import Varying, gather_varying, varying_of
from streaming_core._format._memory import Memory
from streaming_core.errors import MissingColumnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._format._arrow._shard import ArrowShard
    from streaming_core._format._parts import Parts
    from streaming_core._index import ShardSchema

__all__ = ["gather_arrow", "no_arrow"]


def gather_arrow(
    parts: Parts[ArrowShard], names: Sequence[str] | None, *, copy: bool = True
) -> Columns:
    """Return the columns `names`, all by default, of the samples of `parts`.

    Without `copy`, rows that lie side by side in one shard may come as read-only views of it.

    All shards have the same columns, of the same types.

    Raises:
        MissingColumnError: A name is none of them.
    """
    first = parts.shards[0]
    for name in names or ():
        if name not in first.names:
            known = ", ".join(map(repr, first.names))
            msg = f"no column {name!r}; the shards have {known}"
            raise MissingColumnError(msg)
    run = _run(parts)
    picked = _Picked(parts)
    found: dict[str, Column] = {}
    for name in names or first.names:
        blocks = [shard.columns[name] for shard in parts.shards]
        plain = [block for block in blocks if isinstance(block, Plain)]
        varying = [block for block in blocks if isinstance(block, Varying)]
        if run is not None:
            found[name] = _of_run(first, name, run, copy=copy)
        elif len(plain) == len(blocks):
            found[name] = plain[0].fixed(_gathered(parts, plain))
        elif len(varying) == len(blocks):
            found[name] = gather_varying(parts, varying)
        else:
            found[name] = picked.column(name)
    schema = first.batch.schema
    return Columns(parts.length, found, {name: schema.field(name).type for name in found})


def no_arrow(schema: ShardSchema) -> Columns:
    """Return the columns of no rows, with their types."""
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    pairs = zip(schema.column_names, schema.column_encodings, strict=True)
    return Columns(0, {n: column_of(arrow.array([], _type_of(arrow, text))) for n, text in pairs})


def _type_of(arrow: Any, text: str) -> Any:  # noqa: ANN401 - of an optional dependency
    """Return the type of that name; those of nested ones say nothing without a value."""
    try:
        return arrow.type_for_alias(text)
    except ValueError:
        return arrow.null()


def column_of(values: Any) -> Column:  # noqa: ANN401 - an Arrow array
    """Return an Arrow array as a column, its memory shared where it can be."""
    kind = values.type
    if values.null_count:
        return Foreign(values)
    block = block_type(kind)
    if block is not None:
        found = block_of(values)
        return Foreign(values) if found is None else Fixed(found, block.item)
    varying = varying_of(values)
    return Foreign(values) if varying is None else varying.part(slice(0, len(values)))


def _gathered(parts: Parts[ArrowShard], blocks: Sequence[Plain]) -> NDArray[Any]:
    """Return the values of all rows, whichever shard each is of."""
    values, width = blocks[0].values, blocks[0].width
    if len(blocks) == 1:
        return values.take(parts.rows, axis=0)
    addresses = [block.address for block in blocks]
    memory = Memory(addresses, [block.values.nbytes for block in blocks])
    if values.ndim == 1 and not any(address % width for address in addresses):
        return memory.elements(parts.which, parts.rows, values.dtype)
    starts = parts.rows * width
    starts += np.array(addresses, np.int64).take(parts.which)
    shape = (parts.length, *values.shape[1:])
    return memory.pick(starts, width).view(values.dtype).reshape(shape)


def _of_run(shard: ArrowShard, name: str, run: slice, *, copy: bool) -> Column:
    """Return rows that lie side by side in one shard."""
    block = shard.columns[name]
    if isinstance(block, Plain):
        values = block.values[run]
        return block.fixed(values.copy() if copy else values)
    if isinstance(block, Varying):
        part = block.part(run)
        if not copy:
            return part
        start, stop = int(part.offsets[0]), int(part.offsets[-1])
        return Ragged(part.data[start:stop].copy(), part.offsets - start, part.kind, part.dtype)
    array = shard.batch.column(name)[run]
    if not copy:
        return column_of(array)
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    return column_of(array.take(arrow.array(np.arange(len(array)))))


def _run(parts: Parts[ArrowShard]) -> slice | None:
    """Return the rows where they lie side by side in one shard, in order."""
    if len(parts.shards) != 1 or not parts.length:
        return None
    first, last = int(parts.rows[0]), int(parts.rows[-1])
    if last - first != parts.length - 1 or (np.diff(parts.rows) != 1).any():
        return None
    return slice(first, last + 1)


class _Picked:
    """Takes rows from several shards; what that needs is worked out once for all columns."""

    __slots__ = ("_back", "_by_shard", "_parts")

    def __init__(self, parts: Parts[ArrowShard]) -> None:
        self._parts = parts
        self._by_shard: list[tuple[ArrowShard, Any]] | None = None
        self._back: Any = None

    def column(self, name: str) -> Column:
        """Return one column, in the order wanted."""
        return column_of(self._taken(name))

    def _taken(self, name: str) -> Any:  # noqa: ANN401 - an Arrow array
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        if self._by_shard is None:
            places: list[NDArray[np.int64]] = []
            self._by_shard = []
            for shard, mine in self._parts.by_shard():
                places.append(mine)
                self._by_shard.append((shard, arrow.array(self._parts.rows[mine])))
            if len(places) > 1:
                back = np.empty(self._parts.length, np.int64)
                back[np.concatenate(places)] = np.arange(self._parts.length)
                self._back = arrow.array(back)
        if not self._by_shard:
            return self._parts.shards[0].batch.column(name).slice(0, 0)
        each = [shard.batch.column(name).take(rows) for shard, rows in self._by_shard]
        if len(each) == 1:
            return each[0]
        return arrow.concat_arrays(each).take(self._back)
