"""How files are cut into units, and what of that makes training slow. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._units import format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._virtual import VirtualIndex

__all__ = ["Spread", "layout_advice", "spread_of"]

_HUGE_BYTES: Final = 256 << 20
"""Decoded, a part of more is long in coming, and takes as much memory meanwhile."""
_SMALL_BYTES: Final = 1 << 20
"""A request costs more than so many bytes."""
_MANY_FILES: Final = 100
_FEW_UNITS: Final = 16
_MUCH_BYTES: Final = 64 << 20
_IDEAL: Final = "16 to 128 MiB"
_WHOLE: Final = (".gz", ".bz2", ".xz", ".zst", ".br", ".lz4")


@dataclass(frozen=True, slots=True)
class Spread:
    """The least, the middle and the most of some numbers; all 0 of none."""

    min: int
    median: int
    max: int


def spread_of(numbers: NDArray[np.int64]) -> Spread:
    """Return it.

    Example:
        >>> spread_of(np.array([5, 1, 9]))
        Spread(min=1, median=5, max=9)
    """
    if not len(numbers):
        return Spread(0, 0, 0)
    return Spread(int(numbers.min()), int(np.median(numbers)), int(numbers.max()))


def layout_advice(index: VirtualIndex) -> list[str]:
    """Return what would better be written otherwise, worst first; nothing of what is well.

    Sizes are those of decoded units, which the index knows about.
    """
    parts = _parts(index)
    found = [_on_whole(index), _on_huge(parts), _on_small(index), _on_few(index)]
    return [text for text in found if text]


def _parts(index: VirtualIndex) -> NDArray[np.int64]:
    """Return the bytes of each part that is decoded as one: units of one number are cut from it."""
    if not len(index.files):
        return np.zeros(0, np.int64)
    begins = np.ones(len(index.files), bool)
    begins[1:] = (np.diff(index.files) != 0) | (np.diff(index.numbers) != 0)
    return np.add.reduceat(index.nbytes, np.nonzero(begins)[0])


def _on_whole(index: VirtualIndex) -> str:
    names = [index.keys[at].lower() for at in np.nonzero(_file_bytes(index) > _HUGE_BYTES)[0]]
    count = sum(name.endswith(_WHOLE) for name in names)
    if not count:
        return ""
    return (
        f"{count:,} file(s) that are compressed as a whole have more than "
        f"{format_bytes(_HUGE_BYTES)} decoded: nothing can be read of them but from the beginning. "
        f"Write several files of {_IDEAL}, or a format that compresses in parts, such as Parquet."
    )


def _file_bytes(index: VirtualIndex) -> NDArray[np.int64]:
    found = np.zeros(index.num_files, np.int64)
    np.add.at(found, index.files, index.nbytes)
    return found


def _on_huge(parts: NDArray[np.int64]) -> str:
    huge = parts[parts > _HUGE_BYTES]
    if not len(huge):
        return ""
    return (
        f"{len(huge):,} of {len(parts):,} parts (row groups, stripes, batches) have more than "
        f"{format_bytes(_HUGE_BYTES)} decoded, the largest {format_bytes(int(huge.max()))}: the "
        f"first sample of each waits for all of it. Write parts of {_IDEAL} (Parquet: fewer rows "
        "in a row group)."
    )


def _on_small(index: VirtualIndex) -> str:
    if index.num_files < _MANY_FILES or np.median(index.sizes) >= _SMALL_BYTES:
        return ""
    return (
        f"half of {index.num_files:,} files have less than {format_bytes(_SMALL_BYTES)}: each "
        f"costs a request that takes longer than its bytes. Join them to files of {_IDEAL} or more."
    )


def _on_few(index: VirtualIndex) -> str:
    total = int(index.nbytes.sum())
    if len(index.files) >= _FEW_UNITS or total < _MUCH_BYTES * max(1, len(index.files)):
        return ""
    return (
        f"all of {format_bytes(total)} is in {len(index.files):,} unit(s): workers wait for the "
        f"same ones, and nothing is mixed before they are there. Write parts of {_IDEAL}."
    )
