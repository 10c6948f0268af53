"""An MDS shard: its header, and its samples by number."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._format._mds._record import MDSColumns
from streaming_core._format._shard import Shard, offset_table, settings_fault
from streaming_core.errors import ShardCorruptError, UnsafeEncodingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streaming_core._index import ShardInfo
    from streaming_core._store import Buffer

__all__ = ["MDSShard", "shard_header"]

_WORD: Final = 4


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
    """

    __slots__ = ("_columns",)

    def __init__(self, info: ShardInfo, data: Buffer, *, allow_unsafe: bool = False) -> None:
        """Check the header of `data`, the raw bytes of the shard `info`.

        `allow_unsafe` admits columns whose decoding can run code (`pkl`); without it a shard that
        has some raises `UnsafeEncodingError`.
        """
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        schema = info.schema
        self._columns = MDSColumns(
            dict(zip(schema.column_names, schema.column_encodings, strict=True))
        )
        unsafe = self._columns.unsafe()
        if unsafe and not allow_unsafe:
            msg = (
                f"{info.raw.basename}: reading column(s) {', '.join(unsafe)} can run code that the "
                "data chose. If you trust whoever made it, allow unsafe types "
                "(allow_unsafe_types=True)"
            )
            raise UnsafeEncodingError(msg)
        if schema.column_sizes != self._columns.sizes:
            text = (
                f"the index gives column sizes {list(schema.column_sizes)!s:.200}, "
                f"but the encodings have {list(self._columns.sizes)!s:.200}"
            )
            raise _corrupt(info, 0, text)
        offsets = _checked_offsets(info, view)
        _check_settings(info, view[_WORD * (len(offsets) + 1) : int(offsets[0])])
        super().__init__(info.raw.basename, view, offsets)

    def _decode(self, record: memoryview) -> dict[str, Any]:
        return self._columns.decode(record)


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
    offsets = np.frombuffer(data, "<u4", count + 1, _WORD)
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
