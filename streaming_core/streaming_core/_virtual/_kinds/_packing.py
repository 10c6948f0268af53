"""From parts of a file to units: tiny parts are taken together, huge ones are cut by rows. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._virtual._model import Kind, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streaming_core._virtual._model import SourceFile, SourceReader

__all__ = ["PackedKind", "joined_spans", "packed", "parts_of", "without_columns"]

_MOST_BYTES: Final = 64 << 20
"""Parts of more decoded bytes are cut, so that a shuffle need not hold all of one."""
_FEW_BYTES: Final = 4 << 20
"""Parts of fewer are taken together, so that their number says nothing of the speed."""
_MOST_CUTS: Final = 1 << 12
"""However large a part claims to be."""


def packed(parts: Sequence[tuple[int, int]]) -> list[Unit]:
    """Return the units of parts, each given as its rows and about its decoded bytes, in order.

    A unit's `number` is its first part, its `part` the first row within that one, or how many parts
    it takes together (negative). None is without rows.

    Example:
        >>> packed([(10, 100), (20, 200), (4, 200 << 20)])  # doctest: +NORMALIZE_WHITESPACE
        [Unit(samples=30, nbytes=300, number=0, part=-2),
         Unit(samples=1, nbytes=52428800, number=2, part=0),
         Unit(samples=1, nbytes=52428800, number=2, part=1),
         Unit(samples=1, nbytes=52428800, number=2, part=2),
         Unit(samples=1, nbytes=52428800, number=2, part=3)]
    """
    found: list[Unit] = []
    number = 0
    while number < len(parts):
        rows, size = parts[number]
        if size > _MOST_BYTES and rows > 1:
            cuts = min(rows, -(-size // _MOST_BYTES), _MOST_CUTS)
            bounds = [rows * at // cuts for at in range(cuts + 1)]
            found += [
                Unit(b - a, size * (b - a) // rows, number, a)
                for a, b in itertools.pairwise(bounds)
            ]
            number += 1
            continue
        first = number
        number += 1
        while number < len(parts) and size + parts[number][1] <= _FEW_BYTES:
            rows, size, number = rows + parts[number][0], size + parts[number][1], number + 1
        together = number - first
        found.append(Unit(rows, size, first, -together if together > 1 else 0))
    return [unit for unit in found if unit.samples]


class PackedKind(Kind):
    """A format whose units are those of `packed`."""

    def kin(
        self, file: SourceFile, meta: Callable[[], bytes], units: Sequence[Unit], at: int
    ) -> range:
        """Return the units that are cut from the same part."""
        del file, meta
        number, first, stop = units[at].number, at, at + 1
        while first and units[first - 1].number == number:
            first -= 1
        while stop < len(units) and units[stop].number == number:
            stop += 1
        return range(first, stop)

    def tables(
        self,
        reader: SourceReader,
        meta: bytes,
        units: Sequence[Unit],
        columns: Sequence[str] | None,
    ) -> Iterator[Any]:
        """Decode the rows from the first to the last at once, and cut them."""
        first, last = units[0], units[-1]
        whole = first._replace(samples=last.part + last.samples - first.part)
        pieces = reader.ranges(self.ranges(reader.file, meta, whole, columns))
        table = self.decode(reader.file, meta, whole, pieces, columns)
        del pieces
        for unit in units:
            yield table.slice(unit.part - first.part, unit.samples)


def parts_of(unit: Unit, count: int) -> range:
    """Return which of `count` parts a unit takes; `ValueError` if there are not so many.

    Example:
        >>> parts_of(Unit(30, 300, 4, -2), 6), parts_of(Unit(1, 9, 0, 7), 6)
        (range(4, 6), range(0, 1))
    """
    found = range(unit.number, unit.number + max(1, -unit.part))
    if not 0 <= found.start < found.stop <= count:
        msg = f"parts {found.start} to {found.stop} of {count}"
        raise ValueError(msg)
    return found


def joined_spans(spans: Iterable[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Return ranges of bytes in order, those that touch or lie no further than `gap` apart as one.

    Example:
        >>> joined_spans([(7, 9), (0, 3), (3, 5)]), joined_spans([(7, 9), (0, 5)], gap=2)
        ([(0, 5), (7, 9)], [(0, 9)])
    """
    found: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def without_columns(rows: int) -> Any:  # noqa: ANN401 - a table of an optional dependency
    """Return a `pyarrow.Table` of so many rows without any column."""
    arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
    empty = arrow.StructArray.from_buffers(arrow.struct([]), rows, [None])
    return arrow.Table.from_batches([arrow.RecordBatch.from_struct_array(empty)])
