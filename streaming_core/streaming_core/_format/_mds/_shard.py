"""An MDS shard: its header, and its samples by number."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._format._mds._direct import Getter, record_getters
from streaming_core._format._mds._record import MDSColumns
from streaming_core._format._mds._registry import mds_encodings, refuse_unsafe
from streaming_core._format._shard import Shard, offset_table, settings_fault
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._format._mds._encoding import Encoding
    from streaming_core._index import ShardInfo, ShardSchema
    from streaming_core._store import Buffer

__all__ = ["OFFSETS_AT", "MDSShard", "columns_of", "shard_header"]

_WORD: Final = 4
OFFSETS_AT: Final = _WORD
"""The byte of a shard at which its offsets begin, words of four bytes."""


def shard_header(lengths: NDArray[np.int64], config: bytes) -> bytes:
    """Return what precedes the records: count, offsets of all records, and the settings.

    Example:
        >>> shard_header(np.array([2, 3]), b"{}").hex(" ", -4)
        '02000000 12000000 14000000 17000000 7b7d'
    """
    start = _WORD * (len(lengths) + 2) + len(config)
    return offset_table(lengths, start, config)


class MDSShard(Shard):
    """The samples of one shard file that lies in memory or in a mapping.

    The header is checked against the index and the file before anything is allocated or decoded:
    `ShardCorruptError` names the shard, the byte, what was wanted and what came. Threads may share
    it. It keeps `data` alive and copies no more of it than the columns of one sample.

    `columns` is one object for all shards of a schema, so that it tells whether they can be
    gathered together. Samples lie at `offsets` of `bytes`, which begin at `address`; the first one
    at `first`.
    """

    __slots__ = (
        "_getters",
        "_records",
        "address",
        "bytes",
        "columns",
        "first",
    )

    def __init__(self, info: ShardInfo, data: Buffer, *, allow_unsafe: bool = False) -> None:
        """Check the header of `data`, the raw bytes of the shard `info`.

        `allow_unsafe` admits columns whose decoding can run code (`pkl`); without it a shard that
        has some raises `UnsafeEncodingError`.
        """
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        schema = info.schema
        self.columns = columns_of(schema)
        if not allow_unsafe:
            refuse_unsafe(schema, info.raw.basename)
        if schema.column_sizes != self.columns.sizes:
            text = (
                f"the index gives column sizes {list(schema.column_sizes)!s:.200}, "
                f"but the encodings have {list(self.columns.sizes)!s:.200}"
            )
            raise _corrupt(info, 0, text)
        offsets = _checked_offsets(info, view)
        _check_settings(info, view[_WORD * (len(offsets) + 1) : int(offsets[0])])
        super().__init__(info.raw.basename, view, offsets)
        self.bytes = np.frombuffer(view, np.uint8)
        self.address: int = self.bytes.__array_interface__["data"][0]
        self.first = int(offsets[0])
        self._records: NDArray[np.void] | None = None
        self._getters: list[tuple[str, Getter]] | None = None

    @property
    def offsets(self) -> NDArray[np.uint32]:
        """The place at which each record begins, and the one at which the last ends."""
        return self._offsets

    @property
    def records(self) -> NDArray[np.void] | None:
        """The records as one array of the file's bytes, or None where not all have one size."""
        size = self.columns.record_size
        if self._records is None and size and _all_of_size(self._offsets, size):
            self._records = np.frombuffer(self._data, f"V{size}", self._count, self.first)
        return self._records

    def _decode(self, row: int) -> dict[str, Any]:
        getters = self._getters
        if getters is None:
            records = self.records
            getters = [] if records is None else record_getters(self.columns, records)
            self._getters = getters
        if getters:
            return {name: get(row) for name, get in getters}
        offset = self._offsets.item
        return self.columns.decode_at(self._data, offset(row), offset(row + 1))


def _all_of_size(offsets: NDArray[np.uint32], size: int) -> bool:
    count = len(offsets) - 1
    if not count or int(offsets[-1]) - int(offsets[0]) != count * size:
        return False
    return bool((np.diff(offsets) == size).all())


def columns_of(schema: ShardSchema) -> MDSColumns:
    """Return the columns of `schema`, the same object for equal ones."""
    names, texts = schema.column_names, schema.column_encodings
    # A user may register another class under the same name.
    kinds = tuple(mds_encodings.get(t) or mds_encodings.get(t.partition(":")[0]) for t in texts)
    return _compiled(names, texts, kinds)


@lru_cache(maxsize=256)
def _compiled(
    names: tuple[str, ...],
    texts: tuple[str, ...],
    kinds: tuple[type[Encoding] | None, ...],  # noqa: ARG001 - part of the key
) -> MDSColumns:
    return MDSColumns(dict(zip(names, texts, strict=True)))


def _corrupt(info: ShardInfo, byte: int, text: str) -> ShardCorruptError:
    return ShardCorruptError(f"{info.raw.basename}, byte {byte}: {text}")


def _checked_offsets(info: ShardInfo, data: memoryview) -> NDArray[np.uint32]:
    size, samples = len(data), info.samples
    if size < 2 * _WORD:
        raise _corrupt(info, 0, f"a shard has at least 8 bytes, this one has {size}")
    (count,) = struct.unpack_from("<I", data)
    if count != samples:
        raise _corrupt(info, 0, f"the shard counts {count} samples, the index {samples}")
    end = _WORD * (count + 2)
    if end > size:
        text = f"{count} samples need {end} bytes of header, the file has {size}"
        raise _corrupt(info, 0, text)
    offsets = np.frombuffer(data, "<u4", count + 1, OFFSETS_AT)
    if offsets[0] < end:
        text = f"records start at byte {offsets[0]}, within the header of {end}"
        raise _corrupt(info, _WORD, text)
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        row = int(falls[0])
        start, stop = offsets[row : row + 2]
        text = f"sample {row} ends at byte {stop}, before its start at {start}"
        raise _corrupt(info, _WORD * (row + 2), text)
    if offsets[-1] != size:
        text = f"the last sample ends at byte {offsets[-1]}, the file at {size}"
        raise _corrupt(info, _WORD * (count + 1), text)
    return offsets


def _check_settings(info: ShardInfo, raw: memoryview) -> None:
    """Refuse another data set's shard under this one's name."""
    wanted = {
        "column_names": list(info.schema.column_names),
        "column_encodings": list(info.schema.column_encodings),
    }
    fault = settings_fault(raw, wanted)
    if fault is not None:
        raise _corrupt(info, _WORD * (info.samples + 2), fault)
