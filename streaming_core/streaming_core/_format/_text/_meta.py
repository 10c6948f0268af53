"""The meta file of a text shard: sample count, offsets into the data file, settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._format._shard import offset_table, settings_fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["MetaError", "parse_meta", "shard_meta"]

_WORD: Final = 4


class MetaError(ValueError):
    """A meta file that does not describe its data file; knows the byte, not the file's name."""

    def __init__(self, byte: int, text: str) -> None:
        """Keep where the meta file is wrong, and how."""
        super().__init__(byte, text)
        self.byte = byte
        self.text = text


def shard_meta(
    lengths: Sequence[int] | NDArray[np.int64], *, start: int, config: Mapping[str, Any]
) -> bytes:
    r"""Return the meta file of records with `lengths` that begin at byte `start` of the data file.

    Example:
        >>> shard_meta([2, 3], start=4, config={})[4:]
        b'\x04\x00\x00\x00\x06\x00\x00\x00\t\x00\x00\x00{}'
    """
    return offset_table(lengths, start, json.dumps(config, sort_keys=True).encode())


def parse_meta(
    meta: memoryview, *, samples: int, start: int, end: int, config: Mapping[str, Any]
) -> NDArray[np.uint32]:
    """Return the offsets, a view into `meta`; `MetaError` where they cannot be right.

    `samples`, and the keys of `config`, are what the index says; records fill the data file from
    `start` to `end`, which is its size. Nothing is allocated by what `meta` claims.
    """
    size = len(meta)
    if size < 2 * _WORD:
        raise MetaError(0, f"a meta file has at least 8 bytes, this one has {size}")
    count = int.from_bytes(meta[:_WORD], "little")
    if count != samples:
        raise MetaError(0, f"it counts {count} samples, the index {samples}")
    stop = _WORD * (count + 2)
    if stop > size:
        raise MetaError(0, f"{count} samples need {stop} bytes of offsets, the file has {size}")
    offsets = np.frombuffer(meta, "<u4", count + 1, _WORD)
    if offsets[0] != start:
        raise MetaError(_WORD, f"records start at byte {offsets[0]} of the data, not at {start}")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        row = int(falls[0])
        text = f"sample {row} ends at byte {offsets[row + 1]}, before its start at {offsets[row]}"
        raise MetaError(_WORD * (row + 2), text)
    if offsets[-1] != end:
        text = f"the last sample ends at byte {offsets[-1]} of the data, which end at {end}"
        raise MetaError(_WORD * (count + 1), text)
    fault = settings_fault(meta[stop:], config)
    if fault is not None:
        raise MetaError(stop, fault)
    return offsets
