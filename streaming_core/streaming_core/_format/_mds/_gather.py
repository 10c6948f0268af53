"""Many samples of MDS shards at once, by column, without a step for each sample where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._columns import Column, Columns, Fixed
from streaming_core._format._mds._places import Places, empty_column, read_column
from streaming_core._format._mds._spots import ends, memory_of, run_of, starts_of_size, taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._format._mds._record import MDSColumns
    from streaming_core._format._mds._shard import MDSShard
    from streaming_core._format._parts import Parts

__all__ = ["gather_mds", "no_mds"]

_NARROW: Final = 1024
"""Records up to this size are copied whole, and then cut into columns."""
_SHARE: Final = 4
"""Records are not copied whole for less than this part of them."""
_LARGE: Final = 1 << 16
"""Up to this size NumPy copies records quickest; a type of more bytes it may refuse."""


def gather_mds(
    parts: Parts[MDSShard], columns: MDSColumns, wanted: Sequence[int], *, copy: bool = True
) -> Columns:
    """Return the columns at the positions `wanted`, for the samples of `parts`.

    All shards have `columns`. Without `copy`, samples that lie side by side in one shard may come
    as read-only views of it.
    """
    names = [columns.names[i] for i in wanted]
    if columns.record_size is None or any(shard.records is None for shard in parts.shards):
        found = _of_any_size(parts, columns, wanted)
    else:
        found = _of_one_size(parts, columns, wanted, copy=copy)
    return Columns(parts.length, dict(zip(names, found, strict=True)))


def no_mds(columns: MDSColumns) -> Columns:
    """Return the columns of no samples, with their types and shapes where all samples have one."""
    triples = zip(columns.names, columns.encodings, columns.layouts, strict=True)
    return Columns(0, {name: empty_column(encoding, layout) for name, encoding, layout in triples})


# --- records of one size --------------------------------------------------------------------------


def _of_one_size(
    parts: Parts[MDSShard], columns: MDSColumns, wanted: Sequence[int], *, copy: bool
) -> list[Column]:
    layouts = [columns.layouts[i] for i in wanted]
    known = [columns.sizes[i] or 0 for i in wanted if columns.layouts[i] is not None]
    size = columns.fixed_size
    records = None if copy or None in layouts else run_of(parts)
    own = records is None
    if own and (known == [size] or (size <= _NARROW and _SHARE * sum(known) >= size)):
        records = _records(parts, size)
    starts, memory = None, None
    found: list[Column] = []
    for i, layout in zip(wanted, layouts, strict=True):
        if layout is not None and records is not None:
            values = layout.strided(records, columns.begins[i])
            # Even a single value has the records' strides, which torch refuses.
            shared = not own or known == [size]
            found.append(Fixed(values if shared else values.copy("C"), layout.item))
            continue
        if starts is None or memory is None:
            starts, memory = starts_of_size(parts, size), memory_of(parts)
        sizes = np.full(parts.length, columns.sizes[i], np.int64)
        places = Places(parts, memory, starts + columns.begins[i], sizes)
        found.append(read_column(places, columns.names[i], columns.encodings[i], layout))
    return found


def _records(parts: Parts[MDSShard], size: int) -> NDArray[np.void]:
    """Return a copy of all records, in order."""
    records = taken(parts) if size < _LARGE else None
    if records is None:
        picked = memory_of(parts).pick(starts_of_size(parts, size), size)
        records = picked.view(f"V{size}").reshape(-1)
    return records


# --- records of any size --------------------------------------------------------------------------


def _of_any_size(
    parts: Parts[MDSShard], columns: MDSColumns, wanted: Sequence[int]
) -> list[Column]:
    memory = memory_of(parts)
    starts, stops = ends(parts, memory)
    sizes = stops - starts
    head = columns.head_size
    _refuse(parts, sizes < head)
    lengths = memory.pick(starts, head).view("<u4").astype(np.int64)
    _refuse(parts, columns.fixed_size + lengths.sum(axis=1) != sizes)
    at = starts + head
    found: dict[int, Column] = {}
    column = iter(lengths.T)
    for i, (name, encoding) in enumerate(zip(columns.names, columns.encodings, strict=True)):
        fixed = columns.sizes[i]
        size = next(column) if fixed is None else np.full(parts.length, fixed, np.int64)
        if i in wanted:
            places = Places(parts, memory, at, size)
            found[i] = read_column(places, name, encoding, columns.layouts[i])
        at = at + size  # not in place: what was read may still need it
    return [found[i] for i in wanted]


def _refuse(parts: Parts[MDSShard], broken: NDArray[np.bool_]) -> None:
    """Raise what reading the first `broken` sample on its own raises."""
    if broken.any():
        shard, row = parts.find(int(broken.argmax()))
        shard.row(row)
        raise shard.corrupt(row, "the record does not have the size of its columns")
