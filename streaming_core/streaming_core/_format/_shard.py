"""What the shards of all kinds share: samples found by offset, settings that must fit the index."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from streaming_core.errors import SchemaError, ShardCorruptError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Shard", "offset_table", "settings_fault"]

_WORD: Final = 4
_MOST: Final = (1 << 32) - 1
_MOST_ESCAPED: Final = 12
"""Bytes of a character in JSON, at most: two escapes of six."""
_SPARE_SETTINGS: Final = 1 << 16
"""Bytes of the settings beside the columns, at most; a few hundred are usual."""


class Shard(Sequence[dict[str, Any]]):
    """The samples of one shard whose raw bytes lie in memory or in a mapping.

    Threads may share it. It keeps the bytes alive and copies no more of them than the columns of
    one sample. Samples are decoded when they are asked for, and are the caller's own;
    `ShardCorruptError` names the shard, the byte and what is wrong there.
    """

    __slots__ = ("_count", "_data", "_name", "_offsets")

    def __init__(self, name: str, data: memoryview, offsets: NDArray[np.uint32]) -> None:
        """Take checked `offsets` into `data`: the start of each record, and the end of the last."""
        self._name = name
        self._data = data
        self._offsets = offsets
        self._count = len(offsets) - 1

    @abstractmethod
    def _decode(self, row: int) -> dict[str, Any]:
        """Return sample `row`, which there is; `ValueError` where its record is none."""

    @property
    def data(self) -> memoryview:
        """The bytes of the data file."""
        return self._data

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._count

    def record(self, row: int) -> bytes:
        """Return the bytes of sample `row`, counted from 0."""
        return bytes(self._view(row))

    def row(self, row: int) -> dict[str, Any]:
        """Return sample `row`, counted from 0, as a dict by column."""
        if not 0 <= row < self._count:
            raise self.no_row(row)
        try:
            return self._decode(row)
        except (ValueError, RecursionError) as error:
            raise self.corrupt(row, error) from error

    def corrupt(self, row: int, error: object) -> ShardCorruptError:
        """Return the error that says where sample `row` lies, and with `error` what is wrong."""
        at = int(self._offsets[row])
        return ShardCorruptError(f"{self._name}, byte {at}: sample {row}: {error}")

    def no_row(self, row: int) -> IndexError:
        """Return the error for a sample that the shard does not have."""
        return IndexError(f"{self._name}: no sample {row}, the shard has {self._count}")

    def _view(self, row: int) -> memoryview:
        if not 0 <= row < self._count:
            raise self.no_row(row)
        return self._data[self._offsets.item(row) : self._offsets.item(row + 1)]

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - the sequence protocol's overloads
        """Return one sample, or the list of those in a slice."""
        if isinstance(row, slice):
            return [self.row(i) for i in range(*row.indices(self._count))]
        return self.row(row + self._count if -self._count <= row < 0 else row)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the samples in order."""
        return map(self.row, range(self._count))


def offset_table(lengths: Sequence[int] | NDArray[np.int64], start: int, tail: bytes) -> bytes:
    """Return count, offsets of records that begin at byte `start`, and `tail`.

    Raises `SchemaError` where an offset needs more than 32 bits.

    Example:
        >>> offset_table([2, 3], 18, b"{}").hex(" ", -4)
        '02000000 12000000 14000000 17000000 7b7d'
    """
    sizes = np.asarray(lengths, np.int64)
    end = start + int(sizes.sum())
    # Larger offsets would be cut to 32 bits without a word.
    if end > _MOST:
        msg = f"a shard of {end} bytes; offsets end at {_MOST}. Give a smaller size_limit"
        raise SchemaError(msg)
    words = np.empty(len(sizes) + 2, "<u4")
    words[0] = len(sizes)
    words[1] = start
    if len(sizes) and sizes.strides == (0,):  # one number seen many times: no need to add up
        np.multiply(np.arange(1, len(sizes) + 1, dtype="<u4"), np.uint32(sizes[0]), out=words[2:])
    else:
        np.cumsum(sizes.astype("<u4"), dtype="<u4", out=words[2:])
    words[2:] += np.uint32(start)
    return words.tobytes() + tail


def settings_fault(raw: memoryview, wanted: Mapping[str, Any]) -> str | None:
    """Return why the settings in a header are not those of the index, or None if they may be.

    `wanted` are the keys that must agree where both have them; their texts bound how long the
    settings can be.
    """
    texts = [text for value in wanted.values() for text in _texts(value)]
    most = _SPARE_SETTINGS + _MOST_ESCAPED * sum(map(len, texts))
    if len(raw) > most:  # parsed, it would take many times its size in memory
        return f"{len(raw)} bytes of settings in the header, these columns need at most {most}"
    try:
        found = json.loads(bytes(raw).decode())
    except (ValueError, RecursionError) as error:
        return f"the settings in the header are not JSON: {error!s:.200}"
    if not isinstance(found, dict):
        return f"the settings in the header are no object: {found!r:.60}"
    settings = cast("dict[str, Any]", found)
    for key, value in wanted.items():
        if settings.get(key, value) != value:
            return f"{key} {settings[key]!r:.200} in the header, but {value!r:.200} in the index"
    return None


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value)
        return [*pairs, *map(str, pairs.values())]
    return [str(value)]
