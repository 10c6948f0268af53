"""An MDS shard: its header, and its samples by number."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_core._format._mds._record import DECODE_ERRORS, MDSColumns
from streaming_core._index import ShardInfo
from streaming_core._store import Buffer
from streaming_core.errors import ShardCorruptError, UnsafeEncodingError

__all__ = ["MDSShard", "shard_header"]

_WORD = 4


def shard_header(lengths: NDArray[np.int64], config: bytes) -> bytes:
    """Return what precedes the records: count, offsets of all records, and the settings."""
    start = _WORD * (len(lengths) + 2) + len(config)
    words = np.empty(len(lengths) + 2, "<u4")
    words[0] = len(lengths)
    words[1] = start
    words[2:] = start + np.cumsum(lengths)
    return words.tobytes() + config


class MDSShard(Sequence[dict[str, Any]]):
    """The samples of one shard file that lies in memory or in a mapping.

    The header is checked against the index and the file before anything is allocated or decoded:
    `ShardCorruptError` names the shard, the byte, what was wanted and what came. Threads may share it.
    """

    __slots__ = ("_columns", "_data", "_info", "_offsets")

    def __init__(self, info: ShardInfo, data: Buffer, *, allow_unsafe: bool = False) -> None:
        """Check the header of `data`, the raw bytes of the shard `info`.

        `allow_unsafe` admits columns whose decoding can run code (`pkl`); without it a shard that
        has some raises `UnsafeEncodingError`.
        """
        self._info = info
        self._data = memoryview(data).cast("B")
        schema = info.schema
        self._columns = MDSColumns(
            dict(zip(schema.column_names, schema.column_encodings, strict=True))
        )
        unsafe = self._columns.unsafe()
        if unsafe and not allow_unsafe:
            msg = (
                f"{info.raw.basename}: reading column(s) {', '.join(unsafe)} can run code that the data "
                "chose. If you trust whoever made it, allow unsafe types (allow_unsafe_types=True)"
            )
            raise UnsafeEncodingError(msg)
        if schema.column_sizes != self._columns.sizes:
            msg = f"column sizes {list(schema.column_sizes)}, but the encodings have {list(self._columns.sizes)}"
            raise self._corrupt(0, "the index gives " + msg)
        self._offsets = self._checked_offsets()
        self._check_config()

    def _corrupt(self, byte: int, text: str) -> ShardCorruptError:
        return ShardCorruptError(f"{self._info.raw.basename}, byte {byte}: {text}")

    def _checked_offsets(self) -> NDArray[np.uint32]:
        size, samples = len(self._data), self._info.samples
        if size < 2 * _WORD:
            raise self._corrupt(0, f"a shard has at least 8 bytes, this one has {size}")
        (count,) = struct.unpack_from("<I", self._data)
        if count != samples:
            raise self._corrupt(0, f"the shard counts {count} samples, the index {samples}")
        end = _WORD * (count + 2)
        if end > size:
            raise self._corrupt(0, f"{count} samples need {end} bytes of header, the file has {size}")
        offsets = np.frombuffer(self._data, "<u4", count + 1, _WORD)
        if offsets[0] < end:
            raise self._corrupt(_WORD, f"records start at byte {offsets[0]}, within the header of {end}")
        falls = np.flatnonzero(offsets[1:] < offsets[:-1])
        if falls.size:
            row = int(falls[0])
            text = f"sample {row} ends at byte {offsets[row + 1]}, before its start at {offsets[row]}"
            raise self._corrupt(_WORD * (row + 2), text)
        if offsets[-1] != size:
            text = f"the last sample ends at byte {offsets[-1]}, the file at {size}"
            raise self._corrupt(_WORD * (count + 1), text)
        return offsets

    def _check_config(self) -> None:
        """Refuse another data set's shard under this one's name."""
        start = _WORD * (len(self._offsets) + 1)
        raw = bytes(self._data[start : int(self._offsets[0])])
        try:
            config = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(start, f"the settings in the header are not JSON: {error}") from error
        schema = self._info.schema
        if not isinstance(config, Mapping):
            raise self._corrupt(start, f"the settings in the header are not an object: {config!r:.60}")
        for key, wanted in (
            ("column_names", list(schema.column_names)),
            ("column_encodings", list(schema.column_encodings)),
        ):
            if config.get(key, wanted) != wanted:
                text = f"{key} {config[key]!r} in the header, but {wanted!r} in the index"
                raise self._corrupt(start, text)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._offsets) - 1

    def record(self, row: int) -> bytes:
        """Return the bytes of sample `row`, counted from 0."""
        if not 0 <= row < len(self):
            msg = f"{self._info.raw.basename}: no sample {row}, the shard has {len(self)}"
            raise IndexError(msg)
        return bytes(self._data[int(self._offsets[row]) : int(self._offsets[row + 1])])

    def row(self, row: int) -> dict[str, Any]:
        """Return sample `row`, counted from 0, as a dict by column."""
        try:
            return self._columns.decode(self.record(row))
        except DECODE_ERRORS as error:
            text = f"sample {row}: {error}"
            raise self._corrupt(int(self._offsets[row]), text) from error

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - the sequence protocol's overloads
        """Return one sample, or the list of those in a slice."""
        if isinstance(row, slice):
            return [self.row(i) for i in range(*row.indices(len(self)))]
        return self.row(row + len(self) if row < 0 else row)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the samples in order."""
        return map(self.row, range(len(self)))
