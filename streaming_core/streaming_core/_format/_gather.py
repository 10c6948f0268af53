"""Rows of several shards at once, by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_core._columns import Columns, keep_freed_memory
from streaming_core._format._mds import MDSShard, gather_mds
from streaming_core._format._parts import Part, Parts
from streaming_core.errors import MissingColumnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._format._shard import Shard

__all__ = ["Part", "gather"]


def gather(
    parts: Sequence[Part], length: int, names: Sequence[str] | None = None, *, copy: bool = True
) -> Columns:
    r"""Return `length` samples by column: each row of each part in its place, as `row` gives it.

    The parts fill every place; `where` may be a slice without a step. `names` are the columns
    wanted, all by default; only these are decoded. Columns are the caller's own, except that large
    bytes stay where they are until they are asked for, and that without `copy` samples that lie
    side by side in one shard may come as read-only views of it.

    Raises:
        ShardCorruptError: A record or value is broken; names shard, byte and sample.
        IndexError: A shard has no such row.
        MissingColumnError: A shard has no such column.
        SchemaError: The shards have different columns.
        ValueError: The parts do not fill the places.

    Example:
        >>> import numpy as np
        >>> from streaming_core._format._text import JSONColumns, open_text_shard, shard_meta
        >>> from streaming_core._index import FileInfo, ShardInfo, ShardSchema
        >>> columns = JSONColumns({"a": "int"})
        >>> lines = [columns.encode({"a": value}) for value in (1, 2)]
        >>> config = columns.config(compression=None, hashes=(), size_limit=None)
        >>> meta = shard_meta([len(line) for line in lines], start=0, config=config)
        >>> schema = ShardSchema("json", ("a",), ("int",), newline="\n")
        >>> info = ShardInfo(0, 2, schema, FileInfo("shard.00000.json", 18, {}))
        >>> shard = open_text_shard(info, b"".join(lines), meta)
        >>> gather([(shard, np.array([1, 0, 1]), slice(0, 3))], 3).rows()
        [{'a': 2}, {'a': 1}, {'a': 2}]
    """
    keep_freed_memory()
    mds = [(shard, rows, where) for shard, rows, where in parts if isinstance(shard, MDSShard)]
    if mds and len(mds) == len(parts):
        columns = mds[0][0].columns
        if all(shard.columns is columns for shard, _, _ in mds):
            return gather_mds(Parts(mds, length), columns, columns.positions(names), copy=copy)
    return _by_row(Parts(parts, length), names)


def _by_row(parts: Parts[Shard], names: Sequence[str] | None) -> Columns:
    """Gather sample by sample, from shards of any kind."""
    samples: list[dict[str, Any]] = []
    for place in range(parts.length):
        shard, row = parts.find(place)
        sample = shard.row(row)
        for name in names or ():
            if name not in sample:
                msg = f"no column {name!r}; the shards have {', '.join(map(repr, sample))}"
                raise MissingColumnError(msg)
        samples.append(sample if names is None else {name: sample[name] for name in names})
    return Columns.of_rows(samples)
