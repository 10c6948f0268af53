"""Whether a chunk's statistics in a Parquet footer are such as can be looked at. Pure: from bytes.

Arrow's library ends the process where a bound has fewer bytes than its type takes, or another type
than the schema says. Parsing all of a footer to see that would take longer than all else; so the
places are found by the numbers that stand before statistics, which no two chunks share.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["are_sound"]

_NUMBER: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_CHUNKS: Final = re.compile(
    rb"\x16" + _NUMBER + rb"\x16" + _NUMBER + rb"\x16" + _NUMBER + rb"\x26" + _NUMBER
)
"""Fields 5 to 7 and 9 of a chunk: values, bytes, compressed bytes, and where its data begin."""
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_OFFSET: Final = 9
_STATISTICS: Final = 12
_BOUNDS: Final = (1, 2, 5, 6)
_LAST: Final = 8
"""Numbers of fields: the data's offset, statistics, the bounds in these, and the last in them."""
_FLAGS: Final = (1, 2)
_WHOLE: Final = (4, 5, 6)
_BYTES: Final = 8
_STRUCT: Final = 12
_MOST_SHIFT: Final = 63


def are_sound(footer: bytes, chunk: Any, column: Any) -> bool:  # noqa: ANN401 - of an optional dependency
    """Tell whether the statistics of a `ColumnChunkMetaData` may be looked at, if it has any.

    `column` is the `ColumnSchema` of its leaf. False where that is not known.
    """
    if chunk.physical_type != column.physical_type:
        return False
    told = (
        chunk.num_values,
        chunk.total_uncompressed_size,
        chunk.total_compressed_size,
        chunk.data_page_offset,
    )
    key = b"".join(b"\x16" + _packed(number) for number in told[:3]) + b"\x26" + _packed(told[3])
    at = _places(footer).get(key, -1)
    if at < 0:
        return False
    width = _WIDTHS.get(column.physical_type, 0)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = column.length
    try:
        return _has_room(footer, at, width)
    except IndexError:
        return False


@lru_cache(maxsize=8)
def _places(footer: bytes) -> Mapping[bytes, int]:
    """Return where those numbers of each chunk end; -1 where that is not one place."""
    found: dict[bytes, int] = {}
    for match in _CHUNKS.finditer(footer):
        key = match.group()
        found[key] = -1 if key in found else match.end()
    return found


def _has_room(footer: bytes, at: int, width: int) -> bool:
    """Tell whether all bounds that come next have `width` bytes, or more."""
    number = _OFFSET
    while (head := footer[at]) and head & 15 in _WHOLE:
        if not head >> 4:
            return False
        number += head >> 4
        _, at = _read(footer, at + 1)
    if not head or number + (head >> 4) > _STATISTICS:
        return True  # there are none
    if head >> 4 == 0 or number + (head >> 4) != _STATISTICS or head & 15 != _STRUCT:
        return False
    at, number = at + 1, 0
    while head := footer[at]:
        number += head >> 4
        kind, at = head & 15, at + 1
        if not head >> 4 or number > _LAST:
            return False
        if kind == _BYTES:
            length, at = _read(footer, at)
            at += length
            if number not in _BOUNDS or length < width:
                return False
        elif kind in _WHOLE:
            _, at = _read(footer, at)
        elif kind not in _FLAGS:
            return False
    return True


def _packed(number: int) -> bytes:
    """Return a number as Thrift writes it."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - what fits into seven bits
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read(data: bytes, at: int) -> tuple[int, int]:
    """Return a number as it is written, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more follows
            return value, at
        shift += 7
        if shift > _MOST_SHIFT:
            raise IndexError(at)  # more than any number takes
