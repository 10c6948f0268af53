"""Where records end in a text that comes piece by piece, and how it is cut between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from streaming_core.errors import SourceFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from streaming_core._codec import Buffer

__all__ = [
    "INK",
    "Block",
    "Ends",
    "LineScanner",
    "Scanner",
    "Text",
    "cut",
    "ends_in",
    "first_bad",
    "windows",
]

_NEWLINE: Final = 10
_WINDOW_BYTES: Final = 1 << 18
_BLANK: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_OTHER_TEXT: Final = {
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x1f\x8b": "gzip data (name it .gz)",
    b"\x28\xb5\x2f\xfd": "Zstandard data (name it .zst)",
    b"\xfd7zXZ\x00": "xz data (name it .xz)",
    b"\x04\x22\x4d\x18": "LZ4 data",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
}

INK: Final = np.array([byte not in _BLANK for byte in range(256)])
"""Whether a byte is anything but blank, for each of the 256."""


class Ends(NamedTuple):
    """The records that end in a piece."""

    at: NDArray[np.int64]
    """The byte after each, counted from the beginning of the piece; increasing."""
    full: NDArray[np.bool_]
    """Whether each is a row; those that are not are blank lines."""


class Scanner(Protocol):
    """Finds the ends of records; is fed a text in order, cut anywhere."""

    @property
    def begun(self) -> bool:
        """Whether what came since the last end is a row, should the text end here."""
        ...

    def feed(self, data: NDArray[np.uint8], /) -> Ends:
        """Take the next bytes, not none; `ValueError` says what is wrong with them."""
        ...

    def problem(self) -> str:
        """Return what is wrong if the text ends here, empty if nothing is."""
        ...


class LineScanner:
    r"""Lines, which end with `\n` or with the text; blank ones are no rows.

    Example:
        >>> scanner = LineScanner()
        >>> ends = scanner.feed(np.frombuffer(b"a\n \r\n\nb", np.uint8))
        >>> ends.at.tolist(), ends.full.tolist(), scanner.begun
        ([2, 5, 6], [True, False, False], True)
    """

    def __init__(self, *, keep_blank: bool = False) -> None:
        """`keep_blank` makes rows of blank lines too."""
        self._keep_blank = keep_blank
        self.begun = False

    def feed(self, data: NDArray[np.uint8], /) -> Ends:
        """Take the next bytes."""
        marks = np.flatnonzero(data == _NEWLINE)
        starts = np.empty(len(marks) + 1, np.int64)
        starts[0] = 0
        np.add(marks, 1, out=starts[1:])
        if starts[-1] == len(data):
            starts = starts[:-1]
        if self._keep_blank:
            begun = np.ones(len(starts), np.bool_)
        else:
            begun = INK[data[starts]]
            begun[0] |= self.begun
            # Few lines begin with a blank. Only then is every byte looked at.
            if not begun.all():
                begun = np.logical_or.reduceat(INK[data], starts)
        begun[0] |= self.begun
        self.begun = len(starts) > len(marks) and bool(begun[-1])
        return Ends(marks + 1, begun[: len(marks)])

    def problem(self) -> str:
        """Return that nothing is: the last line may lack its end."""
        return ""


class Block(NamedTuple):
    """Whole records that follow each other."""

    start: int
    """Where in the text the first begins."""
    data: bytes
    ends: NDArray[np.int64]
    """The byte after each row, counted from `start`."""
    line: int
    """Number of the line that `start` is in, from 1."""

    def place(self, row: int) -> tuple[int, int]:
        """Return the line and the byte in the text at which a row begins."""
        first = int(self.ends[row - 1]) if row else 0
        while first < len(self.data) and not INK[self.data[first]]:
            first += 1
        return self.line + self.data.count(b"\n", 0, first), self.start + first


class Text:
    """Bytes that come in pieces, of which the first ones can be looked at beforehand.

    A mark of UTF-8 at the beginning is passed over.
    """

    def __init__(self, pieces: Iterable[Buffer], where: str) -> None:
        """Look at the beginning of `pieces`; `SourceFormatError` if it is that of no UTF-8."""
        self._coming = iter(pieces)
        self._head = b""
        self.start = 0
        """Where in the text the next byte is."""
        self.line = 1
        """The line that it is in."""
        for mark, what in _OTHER_TEXT.items():
            if self.peek(len(mark)) == mark:
                msg = f"{where}: this is {what}, where UTF-8 text was expected"
                raise SourceFormatError(msg)
        if self.peek(len(_BOM)) == _BOM:
            self.skip(len(_BOM))

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer at the end; they come again."""
        while len(self._head) < count:
            piece = next(self._coming, None)
            if piece is None:
                break
            self._head += bytes(piece)
        return self._head[:count]

    def skip(self, count: int) -> None:
        """Pass over bytes that were looked at."""
        self.line += self._head.count(b"\n", 0, count)
        self._head = self._head[count:]
        self.start += count

    def first_ink(self) -> bytes:
        """Pass over blanks, and return the byte that follows; empty at the end."""
        while self.peek(1):
            self.skip(len(self._head) - len(self._head.lstrip(_BLANK)))
            if self._head:
                break
        return self._head[:1]

    def __iter__(self) -> Iterator[Buffer]:
        head, self._head = self._head, b""
        if head:
            yield head
        yield from self._coming


def windows(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    """Yield the same bytes in pieces that are small enough for a processor's cache, none empty."""
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _WINDOW_BYTES):
            yield view[at : at + _WINDOW_BYTES]


def cut(
    text: Text,
    scanner: Scanner,
    where: str,
    *,
    unit_bytes: int,
    most_bytes: int,
    header: bool = False,
) -> Iterator[Block]:
    """Yield all of a text in blocks that end at the first record's end after `unit_bytes`.

    So a record is in the block in which its first byte lies, and in no other. With `header` the
    first row is a block of its own. No more is held than a block and a record.

    Raises:
        SourceFormatError: A record has more than `most_bytes`, or the scanner refuses the text.
    """
    start, line = text.start, text.line
    parts: list[bytes] = []
    ends: list[NDArray[np.int64]] = []
    size = last = lines = 0

    def wrong(why: str) -> SourceFormatError:
        at = line + b"".join(parts).count(b"\n", 0, last)
        return SourceFormatError(f"{where}, line {at}, byte {start + last}: {why}")

    def block() -> Block:
        rows = np.concatenate(ends) if ends else np.empty(0, np.int64)
        return Block(start, b"".join(parts), rows, line)

    for window in windows(text):
        data = np.frombuffer(window, np.uint8)
        try:
            found = scanner.feed(data)
        except ValueError as error:
            raise wrong(str(error)) from error
        at = done = 0
        while (nth := _cut_at(found, done, at + unit_bytes - size, header=header)) is not None:
            end = int(found.at[nth])
            parts.append(bytes(window[at:end]))
            ends.append(_rows(found, done, nth + 1) - at + size)
            yield block()
            start += size + end - at
            line += lines + _newlines(data[at:end])
            parts, ends, size, last, lines, header = [], [], 0, 0, 0, False
            at, done = end, nth + 1
        parts.append(bytes(window[at:]))
        ends.append(_rows(found, done, len(found.at)) - at + size)
        if done < len(found.at):
            last = int(found.at[-1]) - at + size
        size += len(window) - at
        lines += _newlines(data[at:])
        if size - last > most_bytes:
            raise wrong(_too_long(most_bytes))
    if why := scanner.problem():
        raise wrong(why)
    if scanner.begun:
        ends.append(np.array([size]))
    if size:
        yield block()


def ends_in(scanner: Scanner, data: bytes) -> NDArray[np.int64]:
    """Return the byte after each row of a block; `ValueError` as the scanner raises it."""
    found: list[NDArray[np.int64]] = []
    at = 0
    for window in windows([data]):
        ends = scanner.feed(np.frombuffer(window, np.uint8))
        found.append(ends.at[ends.full] + at)
        at += len(window)
    if scanner.begun:
        found.append(np.array([len(data)]))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def first_bad(count: int, attempt: Callable[[int], object]) -> tuple[int, str]:
    """Return the first of `count` rows with which `attempt`, told how many, fails; and its error.

    It failed for all, and does for any number from that row on.
    """
    low, high, why = 0, count, ""
    while high - low > 1 or not why:
        middle = (low + high + 1) // 2 if high - low > 1 else high
        try:
            attempt(middle)
        except ValueError as error:
            high, why = middle, str(error)
        else:
            if middle == count:
                break
            low = middle
    return high - 1, why


def _cut_at(found: Ends, done: int, least: int, *, header: bool) -> int | None:
    """Return which end, from `done` on, ends the block: the first that is not before `least`."""
    if header:
        full = np.flatnonzero(found.full[done:])
        return done + int(full[0]) if len(full) else None
    nth = done + int(np.searchsorted(found.at[done:], least))
    return nth if nth < len(found.at) else None


def _newlines(data: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero(data == _NEWLINE))


def _rows(found: Ends, first: int, stop: int) -> NDArray[np.int64]:
    return found.at[first:stop][found.full[first:stop]]


def _too_long(most_bytes: int) -> str:
    return (
        f"a record of more than {most_bytes} bytes begins here; is this a file of the format that "
        "was told? If it is, allow more with the option max_record_bytes"
    )
