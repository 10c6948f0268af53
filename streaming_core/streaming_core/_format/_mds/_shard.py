"""An MDS shard: its header, and its samples by number."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from streaming_core._format._mds._record import MDSColumns
from streaming_core.errors import SchemaError, ShardCorruptError, UnsafeEncodingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streaming_core._index import ShardInfo
    from streaming_core._store import Buffer

__all__ = ["MDSShard", "shard_header"]

_WORD: Final = 4
_MOST: Final = (1 << 32) - 1
_MOST_ESCAPED: Final = 12
"""Bytes of a character in JSON, at most: two escapes of six."""
_SPARE_CONFIG: Final = 1 << 16
"""Bytes of the settings beside the columns, at most; a few hundred are usual."""


def shard_header(lengths: NDArray[np.int64], config: bytes) -> bytes:
    """Return what precedes the records: count, offsets of all records, and the settings.

    Example:
        >>> shard_header(np.array([2, 3]), b"{}").hex(" ", -4)
        '02000000 12000000 14000000 17000000 7b7d'
    """
    start = _WORD * (len(lengths) + 2) + len(config)
    size = start + int(lengths.sum())
    # Larger offsets would be cut to 32 bits without a word.
    if size > _MOST:
        msg = f"a shard of {size} bytes; offsets end at {_MOST}. Give a smaller size_limit"
        raise SchemaError(msg)
    words = np.empty(len(lengths) + 2, "<u4")
    words[0] = len(lengths)
    words[1] = start
    np.cumsum(lengths.astype("<u4"), dtype="<u4", out=words[2:])
    words[2:] += np.uint32(start)
    return words.tobytes() + config


class MDSShard(Sequence[dict[str, Any]]):
    """The samples of one shard file that lies in memory or in a mapping.

    The header is checked against the index and the file before anything is allocated or decoded:
    `ShardCorruptError` names the shard, the byte, what was wanted and what came. Threads may share
    it. It keeps `data` alive and copies no more of it than the columns of one sample.
    """

    __slots__ = ("_columns", "_data", "_info", "_offsets")

    def __init__(self, info: ShardInfo, data: Buffer, *, allow_unsafe: bool = False) -> None:
        """Check the header of `data`, the raw bytes of the shard `info`.

        `allow_unsafe` admits columns whose decoding can run code (`pkl`); without it a shard that
        has some raises `UnsafeEncodingError`.
        """
        self._info = info
        view = memoryview(data)
        self._data = view.cast("B") if view.nbytes else memoryview(b"")
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
            raise self._corrupt(0, text)
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
            text = f"{count} samples need {end} bytes of header, the file has {size}"
            raise self._corrupt(0, text)
        offsets = np.frombuffer(self._data, "<u4", count + 1, _WORD)
        if offsets[0] < end:
            text = f"records start at byte {offsets[0]}, within the header of {end}"
            raise self._corrupt(_WORD, text)
        falls = np.flatnonzero(offsets[1:] < offsets[:-1])
        if falls.size:
            row = int(falls[0])
            start, stop = offsets[row : row + 2]
            text = f"sample {row} ends at byte {stop}, before its start at {start}"
            raise self._corrupt(_WORD * (row + 2), text)
        if offsets[-1] != size:
            text = f"the last sample ends at byte {offsets[-1]}, the file at {size}"
            raise self._corrupt(_WORD * (count + 1), text)
        return offsets

    def _check_config(self) -> None:
        """Refuse another data set's shard under this one's name."""
        start, stop = _WORD * (len(self._offsets) + 1), int(self._offsets[0])
        schema = self._info.schema
        texts = [*schema.column_names, *schema.column_encodings]
        most = _SPARE_CONFIG + _MOST_ESCAPED * sum(map(len, texts))
        if stop - start > most:  # parsed, it would take many times its size in memory
            text = (
                f"{stop - start} bytes of settings in the header, these columns need at most {most}"
            )
            raise self._corrupt(start, text)
        try:
            found = json.loads(bytes(self._data[start:stop]).decode())
        except (ValueError, RecursionError) as error:
            text = f"the settings in the header are not JSON: {error!s:.200}"
            raise self._corrupt(start, text) from error
        if not isinstance(found, dict):
            text = f"the settings in the header are no object: {found!r:.60}"
            raise self._corrupt(start, text)
        config = cast("dict[str, Any]", found)
        for key, wanted in (
            ("column_names", list(schema.column_names)),
            ("column_encodings", list(schema.column_encodings)),
        ):
            if config.get(key, wanted) != wanted:
                text = f"{key} {config[key]!r:.200} in the header, but {wanted!r:.200} in the index"
                raise self._corrupt(start, text)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._offsets) - 1

    def record(self, row: int) -> bytes:
        """Return the bytes of sample `row`, counted from 0."""
        return bytes(self._view(row))

    def _view(self, row: int) -> memoryview:
        if not 0 <= row < len(self):
            msg = f"{self._info.raw.basename}: no sample {row}, the shard has {len(self)}"
            raise IndexError(msg)
        return self._data[int(self._offsets[row]) : int(self._offsets[row + 1])]

    def row(self, row: int) -> dict[str, Any]:
        """Return sample `row`, counted from 0, as a dict by column."""
        record = self._view(row)
        try:
            return self._columns.decode(record)
        except ValueError as error:
            text = f"sample {row}: {error}"
            raise self._corrupt(int(self._offsets[row]), text) from error

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - the sequence protocol's overloads
        """Return one sample, or the list of those in a slice."""
        if isinstance(row, slice):
            return [self.row(i) for i in range(*row.indices(len(self)))]
        return self.row(row + len(self) if -len(self) <= row < 0 else row)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the samples in order."""
        return map(self.row, range(len(self)))
