"""Plain text: a row is a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._virtual._kinds._inflate import named
from streaming_core._virtual._kinds._lines import LineScanner
from streaming_core._virtual._kinds._records import LIMITS, Form, Limits, Records, arrow
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streaming_core._virtual._kinds._lines import Scanner, Text

__all__ = ["PlainText"]

_COLUMN: Final = "text"
_OFFSET_BYTES: Final = 8


class PlainText(Records):
    r"""Text files, of which each line is a row of the one column `text`, without its `\n`, `\r\n`.

    Lines of nothing but blanks count for nothing, unless `blank_lines` is true.
    """

    name = "text"
    suffixes = named(".txt")
    options = ("blank_lines", *LIMITS)

    def __init__(self, *, blank_lines: bool = False, **limits: int) -> None:
        super().__init__(Limits(**limits))
        if blank_lines not in {True, False}:
            msg = f"blank_lines must be true or false; came {blank_lines!r}"
            raise SchemaError(msg)
        self._blank_lines = blank_lines

    def form(self, text: Text) -> Form:
        """Return that of lines."""
        del text
        return _Lines(blank=self._blank_lines)

    def form_of(self, code: str, names: list[str]) -> Form:
        """Return that of lines."""
        del code, names
        return _Lines(blank=self._blank_lines)


class _Lines(Form):
    """Lines as they are."""

    def __init__(self, *, blank: bool) -> None:
        self._blank = blank

    def scanner(self) -> Scanner:
        return LineScanner(keep_blank=self._blank)

    def learn(self, data: bytes, ends: NDArray[np.int64]) -> int:
        return len(data) + _OFFSET_BYTES * len(ends)

    def schema(self) -> Any:  # noqa: ANN401 - of an optional dependency
        library = arrow()
        return library.schema([(_COLUMN, library.large_string())])

    def table(self, data: bytes, schema: Any, columns: Sequence[str] | None) -> Any:  # noqa: ANN401 - see above
        del columns
        library = arrow()
        offsets, values = split_lines(data, blank=self._blank)
        texts = library.LargeStringArray.from_buffers(
            len(offsets) - 1, library.py_buffer(offsets), library.py_buffer(values)
        )
        return library.Table.from_arrays([texts], schema=schema)


def split_lines(data: bytes, *, blank: bool = False) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    r"""Return where each line begins, and where the last ends, in the bytes of all without ends.

    Example:
        >>> offsets, values = split_lines(b"ab\r\n \nc")
        >>> offsets.tolist(), values.tobytes()
        ([0, 2, 3], b'abc')
    """
    array = np.frombuffer(data, np.uint8)
    if not len(array):
        return np.zeros(1, np.int64), array
    scanner = LineScanner(keep_blank=blank)
    ends, full = scanner.feed(array)
    newline = np.ones(len(ends), np.int64)
    if ends.size == 0 or ends[-1] < len(data):
        ends = np.append(ends, len(data))
        full = np.append(full, scanner.begun)
        newline = np.append(newline, 0)
    lengths = np.diff(ends, prepend=0)
    # A carriage return is part of the end only where a newline follows it in the same line.
    before = np.maximum(ends - 2, 0)
    returns = (newline == 1) & (lengths > 1) & (array[before] == ord("\r"))
    keep = np.ones(len(array), np.bool_) if full.all() else np.repeat(full, lengths)
    keep[ends[newline == 1] - 1] = False
    keep[before[returns]] = False
    sizes = (lengths - newline - returns)[full]
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets, array[keep]
