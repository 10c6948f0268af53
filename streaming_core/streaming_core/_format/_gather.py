"""Rows of several shards at once, by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core._columns import Columns, keep_freed_memory
from streaming_core._format._arrow import ArrowShard, gather_arrow, no_arrow
from streaming_core._format._mds import MDSShard, columns_of, gather_mds, no_mds
from streaming_core._format._merge import merged
from streaming_core._format._parts import Parts
from streaming_core._format._text import TextShard, gather_text, no_text, text_columns
from streaming_core.errors import MissingColumnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._format._shard import Shard
    from streaming_core._index import ShardSchema

__all__ = ["gather", "gather_none"]


def gather(
    shards: Sequence[Shard],
    which: NDArray[np.int64],
    rows: NDArray[np.int64],
    names: Sequence[str] | None = None,
    *,
    copy: bool = True,
) -> Columns:
    r"""Return samples by column: for each i row `rows[i]` of `shards[which[i]]`, as `row` gives it.

    `names` are the columns wanted, all by default; only these are decoded. Columns are the caller's
    own, except that large bytes stay where they are until they are asked for, and that without
    `copy` samples that lie side by side in one shard may come as read-only views of it.

    Raises:
        ShardCorruptError: A record or value is broken; names shard, byte and sample.
        IndexError: A shard has no such row.
        MissingColumnError: A shard has no such column.
        SchemaError: The shards have different columns.
        ValueError: There are not as many `rows` as `which`.

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
        >>> gather([shard], np.array([0, 0, 0]), np.array([1, 0, 1])).rows()
        [{'a': 2}, {'a': 1}, {'a': 2}]
    """
    keep_freed_memory()
    mds = [shard for shard in shards if isinstance(shard, MDSShard)]
    if mds and len(mds) == len(shards):
        columns = mds[0].columns
        if all(shard.columns is columns for shard in mds):
            return gather_mds(Parts(mds, which, rows), columns, columns.positions(names), copy=copy)
    text = [shard for shard in shards if isinstance(shard, TextShard)]
    if text and len(text) == len(shards):
        encodings = text[0].encodings
        known = names is None or encodings.keys() >= set(names)
        if known and all(shard.encodings == encodings for shard in text):
            chosen = list(encodings) if names is None else names
            return gather_text(Parts(text, which, rows), encodings, chosen)
    made = [shard for shard in shards if isinstance(shard, ArrowShard)]
    if made and len(made) == len(shards) and len(set(map(_kind, made))) == 1:
        return gather_arrow(Parts(made, which, rows), names, copy=copy)
    return _by_kind(shards, which, rows, names) or _by_row(Parts(shards, which, rows), names)


def _kind(shard: Shard) -> object:
    """Return what the shards have in common that can be gathered together."""
    return shard.kind if isinstance(shard, ArrowShard) else type(shard)


def gather_none(schema: ShardSchema) -> Columns:
    r"""Return the columns that no samples of `schema` have, typed as those of some are.

    Example:
        >>> from streaming_core._index import ShardSchema
        >>> columns = gather_none(ShardSchema("json", ("a",), ("int",), newline="\n"))
        >>> columns["a"].values
        array([], dtype=int64)
    """
    if schema.is_made:
        return no_arrow(schema)
    if schema.format == "mds":
        return no_mds(columns_of(schema))
    return no_text(text_columns(schema).columns)


def _by_kind(
    shards: Sequence[Shard],
    which: NDArray[np.int64],
    rows: NDArray[np.int64],
    names: Sequence[str] | None,
) -> Columns | None:
    """Gather shards of each kind by themselves; None if there is but one, or names differ."""
    kinds = list(map(_kind, shards))
    if len(set(kinds)) == 1 or not len(which):
        return None
    shares: list[tuple[NDArray[np.int64], Columns]] = []
    for kind in dict.fromkeys(kinds):
        mine = [at for at, other in enumerate(kinds) if other == kind]
        number = np.full(len(shards), -1)
        number[mine] = np.arange(len(mine))
        own = number.take(which)
        places = np.flatnonzero(own >= 0)
        some = [shards[at] for at in mine]
        shares.append((places, gather(some, own[places], rows[places], names)))
    return merged(shares, len(which))


def _by_row(parts: Parts[Shard], names: Sequence[str] | None) -> Columns:
    """Gather sample by sample, from shards of any kind."""
    samples = parts.samples()
    if names is None:
        return Columns.of_rows(samples)
    chosen: list[dict[str, Any]] = []
    for sample in samples:
        for name in names:
            if name not in sample:
                msg = f"no column {name!r}; the shards have {', '.join(map(repr, sample))}"
                raise MissingColumnError(msg)
        chosen.append({name: sample[name] for name in names})
    return Columns.of_rows(chosen)
