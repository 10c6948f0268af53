"""Which rows of which units are kept: one bit a row, and nothing for units that are kept whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np

from streaming_core._virtual._filed import uncut
from streaming_core.errors import IndexInvalidError, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._virtual._filed import Filed

__all__ = ["Keep", "count_bits", "dump_keep", "filed_keep", "parse_keep"]

_VERSION: Final = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Keep(Mapping[int, bytes]):
    r"""The bits of units of which rows are left out, as `numpy.packbits` makes them. Pickles.

    No bits at all are there for units of which nothing is kept.

    Example:
        >>> keep = Keep.of({3: np.packbits([True, False, True]).tobytes(), 5: b""})
        >>> keep[3].hex(), keep.samples.tolist(), 4 in keep
        ('a0', [2, 0], False)
    """

    units: NDArray[np.int64]
    """Which units those are, in order."""
    samples: NDArray[np.int64]
    """How many rows of each are kept."""
    offsets: NDArray[np.int64]
    """Where the bits of each begin, and where the last one's end."""
    bits: bytes | memoryview
    filed: Filed | None = None
    """The file of this machine that holds them too, if there is one."""

    @classmethod
    def of(cls, bits: Mapping[int, bytes]) -> Keep:
        """Return the bits of some units."""
        if isinstance(bits, Keep):
            return bits
        units = sorted(bits)
        offsets = np.zeros(len(units) + 1, np.int64)
        np.cumsum([len(bits[unit]) for unit in units], out=offsets[1:])
        return cls(
            np.array(units, np.int64),
            np.array([count_bits(bits[unit]) for unit in units], np.int64),
            offsets,
            b"".join(bits[unit] for unit in units),
        )

    def __getitem__(self, unit: int) -> bytes:
        """Return the bits of a unit; `KeyError` if all its rows are kept."""
        at = int(np.searchsorted(self.units, unit))
        if at == len(self.units) or int(self.units[at]) != unit:
            raise KeyError(unit)
        start, stop = self.offsets[at : at + 2].tolist()
        return bytes(uncut(self.bits, self.filed)[start:stop])

    def __iter__(self) -> Iterator[int]:
        """Yield the units that are not kept whole."""
        return iter(self.units.tolist())

    def __len__(self) -> int:
        """Return how many those are."""
        return len(self.units)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a starting worker as the name of a file, where there is one."""
        if self.filed is not None and self.filed.is_to_be_named():
            return self.filed.load, (self.filed,)
        bits = bytes(uncut(self.bits, self.filed))
        return Keep, (self.units, self.samples, self.offsets, bits, self.filed)


def count_bits(bits: bytes) -> int:
    """Return how many bits are set."""
    return int(np.bitwise_count(np.frombuffer(bits, np.uint8)).sum(dtype=np.int64))


class _Document(msgspec.Struct, frozen=True):
    version: int
    units: memoryview
    samples: memoryview
    offsets: memoryview
    bits: memoryview


_DOCUMENT: Final = msgspec.msgpack.Decoder(_Document)


def dump_keep(keep: Keep) -> bytes:
    """Return it as bytes; equal ones give equal bytes."""
    units, samples, offsets = (
        memoryview(array.astype("<i8").tobytes())
        for array in (keep.units, keep.samples, keep.offsets)
    )
    document = _Document(_VERSION, units, samples, offsets, memoryview(keep.bits))
    return msgspec.msgpack.encode(document)


def parse_keep(data: bytes | memoryview, where: str, filed: Filed | None = None) -> Keep:
    """Return what is in `data`, from `where`; `IndexInvalidError` if it cannot be trusted.

    It holds on to `data`.
    """
    try:
        document = _DOCUMENT.decode(data)
        units, samples, offsets = (
            np.frombuffer(array, "<i8").astype(np.int64)
            for array in (document.units, document.samples, document.offsets)
        )
        is_sound = (
            document.version == _VERSION
            and len(units) == len(samples) == len(offsets) - 1
            and bool((np.diff(units) > 0).all())
            and bool((np.diff(offsets) >= 0).all())
            and int(offsets[0]) == 0
            and int(offsets[-1]) == len(document.bits)
            and bool((samples >= 0).all())
            and bool((samples <= 8 * np.diff(offsets)).all())
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise _invalid(where, str(error)) from error
    if not is_sound:
        raise _invalid(where, "its parts do not fit each other")
    return Keep(units, samples, offsets, document.bits, filed)


def filed_keep(filed: Filed) -> Keep:
    """Return what a file holds; `IndexInvalidError` if it cannot be trusted."""
    return parse_keep(filed.mapped(), filed.path, filed)


def _invalid(where: str, how: str) -> IndexInvalidError:
    problem = Problem("$", f"does not say which rows are kept: {how:.300}", "value")
    return IndexInvalidError(where, (problem,))
