"""Decompressed files of shards, judged by their first bytes before the others are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._format._text import text_columns
from streaming_core.errors import ShardCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming_core._index import FileInfo, ShardInfo
    from streaming_core._store import Buffer

__all__ = ["with_checked_start"]

_WORD: Final = 4


def with_checked_start(info: ShardInfo, role: str, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield the pieces of a decompressed file of a shard; headers are checked as they come.

    A small compressed file can expand to gigabytes, none of which are worth storing if the file is
    of another shard, or of none.

    Raises:
        ShardCorruptError: The file does not begin as the index says, or no such file does.
    """
    start: _Header | _Text
    if role == "raw_meta":
        start = _Header(info.raw_meta or info.raw, info.samples, 0, info.raw.bytes)
    elif info.raw_meta is None:
        header = _WORD * (info.samples + 2)
        start = _Header(info.raw, info.samples, header, info.raw.bytes)
    else:
        start = _Text(info)
    for piece in pieces:
        start.check(memoryview(piece).cast("B"))
        yield piece


class _Header:
    """The number of samples, and the offsets at which they begin and the last one ends."""

    def __init__(self, file: FileInfo, samples: int, lowest: int, end: int) -> None:
        """Judge offsets from `lowest` on of records that fill a file up to `end`."""
        self._file = file
        self._samples = samples
        self._lowest = self._last = lowest
        self._end = end
        self._words = 0
        """How many were judged."""
        self._rest = b""

    def check(self, piece: memoryview) -> None:
        """Judge what comes next; raises `ShardCorruptError`."""
        left = _WORD * (self._samples + 2 - self._words) - len(self._rest)
        if left <= 0:
            return
        data = self._rest + bytes(piece[:left])
        words = np.frombuffer(data, "<u4", len(data) // _WORD)
        self._rest = data[_WORD * len(words) :]
        if not len(words):
            return
        if not self._words:
            if words[0] != self._samples:
                what = f"it begins with {data[:_WORD].hex()}, expected "
                wanted = (self._samples & 0xFFFFFFFF).to_bytes(_WORD, "little").hex()
                raise self._fault(0, f"{what}{wanted} for {self._samples} samples")
            words = words[1:]
            self._words = 1
        before = np.concatenate([np.array([self._last], "<u4"), words[:-1]])
        wrong = np.flatnonzero((words < before) | (words > self._end))
        if len(wrong):
            row, found = int(wrong[0]), int(words[wrong[0]])
            least = int(before[row])
            raise self._fault(
                _WORD * (self._words + row),
                f"a sample begins or ends at byte {found}, expected {least} to {self._end}",
            )
        self._words += len(words)
        self._last = int(words[-1]) if len(words) else self._last
        if self._words == self._samples + 2 and self._last != self._end:
            what = f"the last sample ends at byte {self._last}, expected {self._end}"
            raise self._fault(_WORD * (self._words - 1), what)

    def _fault(self, byte: int, what: str) -> ShardCorruptError:
        return _fault(self._file, byte, what)


class _Text:
    """The line of names before separated values, or the brace before the first JSON object."""

    def __init__(self, info: ShardInfo) -> None:
        self._file = info.raw
        header = text_columns(info.schema).header()
        self._blanks = b"" if header else b" \t\r\n"
        self._wanted = header or (b"{" if info.samples else b"")
        self._came = b""

    def check(self, piece: memoryview) -> None:
        """Judge what comes next; raises `ShardCorruptError`."""
        left = len(self._wanted) - len(self._came)
        if not left:
            return
        came = piece[:left] if self._came else bytes(piece).lstrip(self._blanks)[:left]
        self._came += came
        if not self._wanted.startswith(self._came):
            what = f"it begins with {self._came!r:.200}, expected {self._wanted!r:.200}"
            raise _fault(self._file, 0, what)


def _fault(file: FileInfo, byte: int, what: str) -> ShardCorruptError:
    return ShardCorruptError(
        f"{file.basename}, byte {byte}: {what}; it is damaged, or belongs to another version of "
        "the data set. Fetch or write it again"
    )
