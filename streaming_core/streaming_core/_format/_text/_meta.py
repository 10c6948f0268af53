"""The meta file of a text shard: sample count, offsets into the data file, settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["MetaError", "parse_meta", "shard_meta"]

_WORD: Final = 4
_MOST: Final = (1 << 32) - 1


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
    ends = start + np.cumsum(np.asarray(lengths, np.int64))
    if len(ends) and ends[-1] > _MOST:
        msg = f"a shard of {ends[-1]} bytes; offsets end at {_MOST}. Give a smaller size_limit"
        raise SchemaError(msg)
    words = np.empty(len(ends) + 2, "<u4")
    words[0] = len(ends)
    words[1] = start
    words[2:] = ends
    return words.tobytes() + json.dumps(config, sort_keys=True).encode()


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
    _check_config(bytes(meta[stop:]), stop, config)
    return offsets


def _check_config(raw: bytes, at: int, wanted: Mapping[str, Any]) -> None:
    """Refuse another data set's shard under this one's name."""
    try:
        found = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise MetaError(at, f"the settings are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MetaError(at, f"the settings are no object: {found!r:.60}")
    config = cast("dict[str, Any]", found)
    for key, value in wanted.items():
        if config.get(key, value) != value:
            text = f"{key} {config[key]!r:.200}, but the index gives {value!r:.200}"
            raise MetaError(at, text)
