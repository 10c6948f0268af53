"""JSON files: one array of objects, an object on each line, or objects on several lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_core._virtual._kinds._inflate import named
from streaming_core._virtual._kinds._json_rows import JsonRows
from streaming_core._virtual._kinds._jsonl import JsonLines
from streaming_core._virtual._kinds._lines import INK, Ends, Scanner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streaming_core._virtual._kinds._lines import Text
    from streaming_core._virtual._kinds._records import Form

__all__ = ["ElementScanner", "Json"]

_FIRST_BYTES: Final = 64 << 10
_UNOPENED: Final = "a brace is closed that was not opened"
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_COMMA: Final = ord(",")
_STEPS: Final = np.zeros(256, np.int64)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
_CASE: Final = 0x20
"""What brackets and braces differ by."""


class Json(JsonLines):
    """JSON files: an array of objects, which are the rows, or JSON lines, as they begin.

    Where the first line has only a part of an object, each object is a row, on as many lines as it
    takes; often there is only one.
    """

    name = "json"
    suffixes = named(".json")

    def form(self, text: Text) -> Form:
        """Return the form by the first byte that is not blank, and the rest of its line."""
        if text.first_ink() == b"[":
            text.skip(1)
            return _Elements(self._schema, self._as_text)
        if _goes_on(_first_line(text, self._limits.max_record_bytes)):
            return _Objects(self._schema, self._as_text)
        return JsonRows(self._schema, self._as_text)

    def form_of(self, code: str, names: list[str]) -> Form:
        """Return the form that was found."""
        if code == _Elements.code:
            return _Elements(self._schema, self._as_text)
        if code == _Objects.code:
            return _Objects(self._schema, self._as_text)
        return super().form_of(code, names)


class _Elements(JsonRows):
    """JSON objects in one array."""

    code = "array"

    def __init__(self, schema: Mapping[str, Any] | None, as_text: Sequence[str]) -> None:
        super().__init__(schema, as_text)

    def scanner(self) -> Scanner:
        return ElementScanner()

    def rows_apart(self, data: bytes, ends: NDArray[np.int64] | None) -> bytes:
        """Return the elements with newlines where the commas between them were."""
        if ends is None or not len(ends):
            return data
        array = np.frombuffer(data, np.uint8).copy()
        last = ends - 1
        array[last[array[last] == _COMMA]] = ord("\n")
        return array.tobytes()


class _Objects(JsonRows):
    """JSON objects one after the other, on several lines each."""

    code = "objects"

    def scanner(self) -> Scanner:
        return ObjectScanner()


def _first_line(text: Text, most: int) -> bytes:
    """Return what is left of a text's line, of a longer one more than `most` bytes."""
    count = _FIRST_BYTES
    while True:
        head = text.peek(count)
        line, newline, _ = head.partition(b"\n")
        if newline or len(head) < count or count > most:
            return line
        count *= 2


def _goes_on(line: bytes) -> bool:
    """Return whether the first object of a line ends on another one."""
    if not line.startswith(b"{"):
        return False
    _, depth = _Nesting().feed(np.frombuffer(line, np.uint8))
    return bool((depth > 0).all())


class _Nesting:
    """How deep brackets and braces are nested in a text, those in strings left out."""

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where brackets, braces, and commas are in the next bytes; and the depth there."""
        quotes = self._quotes(data)
        cased = data | _CASE
        marks = np.flatnonzero((cased == ord("{")) | (cased == ord("}")) | (data == _COMMA))
        inside = np.searchsorted(quotes, marks) + self._in_string
        marks = marks[inside & 1 == 0]
        depth = self.depth + np.cumsum(_STEPS[data[marks]])
        self._in_string = bool(len(quotes) + self._in_string & 1)
        self.depth = int(depth[-1]) if len(depth) else self.depth
        return marks, depth

    def _quotes(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return where strings begin and end."""
        quotes = np.flatnonzero(data == _QUOTE)
        slashes = np.flatnonzero(data == _BACKSLASH)
        if not len(slashes) and not self._escaped:
            return quotes
        escaped = _escaped_by(slashes, self._escaped)
        self._escaped = bool(len(escaped)) and int(escaped[-1]) == len(data)
        if not len(escaped):
            return quotes
        nearest = np.minimum(np.searchsorted(escaped, quotes), len(escaped) - 1)
        real: NDArray[np.int64] = quotes[escaped[nearest] != quotes]
        return real


class ObjectScanner:
    r"""Objects, on any number of lines; the braces that close them end them.

    Knows strings and nesting, and nothing else of JSON: what an object is, its parser checks.

    Example:
        >>> scanner = ObjectScanner()
        >>> scanner.feed(np.frombuffer(b'{"a":\n "}"}\n{} ', np.uint8)).at.tolist()
        [11, 14]
    """

    def __init__(self) -> None:
        self.begun = False
        self._nesting = _Nesting()

    def feed(self, data: NDArray[np.uint8], /) -> Ends:
        """Take the next bytes."""
        marks, depth = self._nesting.feed(data)
        if (depth < 0).any():
            raise ValueError(_UNOPENED)
        ends = marks[(depth == 0) & (data[marks] == ord("}"))] + 1
        rest = int(ends[-1]) if len(ends) else 0
        self.begun = (self.begun and not len(ends)) or bool(INK[data[rest:]].any())
        return Ends(ends, np.ones(len(ends), np.bool_))

    def problem(self) -> str:
        """Return that the last object has no end, if it has none."""
        return "the file ends within an object" if self._nesting.depth > 0 else ""


class ElementScanner:
    """Elements of an array, of which the opening bracket was passed over; commas end them.

    Knows strings and nesting, and nothing else of JSON: what an element is, its parser checks.

    Example:
        >>> scanner = ElementScanner()
        >>> ends = scanner.feed(np.frombuffer(b'{"a": "],"}, {} ]', np.uint8))
        >>> ends.at.tolist(), scanner.begun, scanner.problem()
        ([12, 16], False, '')
    """

    def __init__(self) -> None:
        self.begun = False
        self._nesting = _Nesting()
        self._commas = False
        self._closed = False

    def feed(self, data: NDArray[np.uint8], /) -> Ends:
        """Take the next bytes; the bracket that ends the array ends its last element."""
        if self._closed:
            _check_nothing(data)
            return Ends(np.empty(0, np.int64), np.empty(0, np.bool_))
        marks, depth = self._nesting.feed(data)
        under = np.flatnonzero(depth < 0)
        stop = len(data)
        if len(under):
            stop = int(marks[under[0]])
            if data[stop] != ord("]"):
                raise ValueError(_UNOPENED)
            _check_nothing(data[stop + 1 :])
            marks, depth = marks[: under[0]], depth[: under[0]]
            self._closed = True
        commas = marks[(depth == 0) & (data[marks] == _COMMA)]
        return self._ends(data, commas + 1, stop)

    def _ends(self, data: NDArray[np.uint8], ends: NDArray[np.int64], stop: int) -> Ends:
        if len(ends):
            self._commas, self.begun = True, False
        rest = int(ends[-1]) if len(ends) else 0
        self.begun = self.begun or bool(INK[data[rest:stop]].any())
        if self._closed:
            if self.begun:
                ends = np.append(ends, stop)
            elif self._commas:
                msg = "the array ends with a comma"
                raise ValueError(msg)
            self.begun = False
        return Ends(ends, np.ones(len(ends), np.bool_))

    def problem(self) -> str:
        """Return that the array has no end, if it has none."""
        return "" if self._closed else "the file ends within the array that it is"


def _escaped_by(slashes: NDArray[np.int64], first: bool) -> NDArray[np.int64]:  # noqa: FBT001 - of one caller
    """Return the bytes behind runs of an odd number of backslashes; `first` if byte 0 is one."""
    if first and len(slashes) and slashes[0] == 0:
        slashes, first = slashes[1:], False
    breaks = np.flatnonzero(np.diff(slashes) != 1) + 1
    begins = np.concatenate(([0], breaks)) if len(slashes) else breaks
    lengths = np.diff(begins, append=len(slashes))
    behind = slashes[begins] + lengths
    behind = behind[lengths & 1 == 1]
    return np.concatenate(([0], behind)) if first else behind


def _check_nothing(data: NDArray[np.uint8]) -> None:
    if INK[data].any():
        msg = "text follows the end of the array"
        raise ValueError(msg)
