"""Where the records of CSV end, newlines within quotes left aside; as Arrow's parser sees it."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from streaming_core._virtual._kinds._lines import Ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CsvScanner"]

_NEWLINE: Final = 10
_RETURN: Final = 13


class _State(IntEnum):
    """Where in a field a text stands."""

    START = 0
    """At its first byte: a quote here opens a quoted value."""
    QUOTED = 1
    CLOSED = 2
    """Behind a quote within a quoted value: it ended it, unless one more follows."""
    PLAIN = 3
    """Quotes are bytes like others."""


class CsvScanner:
    r"""Records, which end with `\n`, `\r\n` or `\r` outside quotes; empty lines are no rows.

    Example:
        >>> scanner = CsvScanner(",", '"')
        >>> ends = scanner.feed(np.frombuffer(b'a,"b\n"\n\r\nc"\n', np.uint8))
        >>> ends.at.tolist(), ends.full.tolist(), scanner.problem()
        ([7, 9, 12], [True, False, True], '')
    """

    def __init__(self, delimiter: str, quote: str | None) -> None:
        """Take one ASCII character each; nothing is quoted where `quote` is None."""
        self._quote = -1 if quote is None else ord(quote)
        self._edges = np.zeros(256, np.bool_)
        self._edges[[ord(delimiter), _NEWLINE, _RETURN]] = True
        edge = re.escape(delimiter.encode())
        self._opening = re.compile(b"[" + edge + b"\r\n]" + re.escape((quote or "\0").encode()))
        self._state = _State.START
        self._length = 0
        """Bytes since the last end."""
        self._return = False
        """Whether the last byte is a carriage return that may be half of an end."""

    @property
    def begun(self) -> bool:
        """Whether what came since the last end is a row."""
        return self._length > self._return

    def problem(self) -> str:
        """Return that a quote is open, if one is."""
        if self._state is not _State.QUOTED:
            return ""
        return "the file ends within quotes that were opened here or later; see whether it is whole"

    def feed(self, data: NDArray[np.uint8], /) -> Ends:
        """Take the next bytes."""
        state = self._state
        toggles = self._toggles(data)
        newlines = _outside(np.flatnonzero(data == _NEWLINE), toggles, state)
        alone = self._returns(data, toggles, state)
        follows = newlines > 0
        after_return = np.zeros(len(newlines), np.bool_)
        after_return[follows] = data[newlines[follows] - 1] == _RETURN
        if len(newlines) and newlines[0] == 0:
            after_return[0] = self._return
        at, marks = newlines + 1, np.where(after_return, 2, 1)
        if len(alone):
            at, marks = np.concatenate((at, alone)), np.concatenate((marks, np.ones_like(alone)))
            order = np.argsort(at, kind="stable")
            at, marks = at[order], marks[order]
        lengths = np.diff(at, prepend=0)
        if len(at):
            lengths[0] += self._length
        self._length = len(data) - int(at[-1]) if len(at) else self._length + len(data)
        quoted = self._state is _State.QUOTED
        self._return = not quoted and data[-1] == _RETURN
        return Ends(at, lengths > marks)

    def _returns(
        self, data: NDArray[np.uint8], toggles: NDArray[np.int64], state: _State
    ) -> NDArray[np.int64]:
        """Return the bytes behind carriage returns that end a record by themselves."""
        returns: NDArray[np.int64] = np.flatnonzero(data == _RETURN)
        if len(returns):
            returns = _outside(returns, toggles, state)
            returns = returns[returns < len(data) - 1]
            returns = returns[data[returns + 1] != _NEWLINE] + 1
        if self._return and data[0] != _NEWLINE:
            returns = np.concatenate(([0], returns))
        return returns

    def _toggles(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the quotes that open or close, a doubled one as two that close and open."""
        quotes = np.flatnonzero(data == self._quote) if self._quote >= 0 else np.empty(0, np.int64)
        if not len(quotes):
            if self._state is not _State.QUOTED:
                self._state = self._outer(data)
            return quotes
        # Nearly all files quote whole fields, so that quotes open and close by turns. Where one
        # would open within a field, each field is looked at.
        was_in = self._state is _State.QUOTED
        opening = quotes[int(was_in) :: 2]
        if len(opening) and opening[0] == 0:
            regular = self._state in {_State.START, _State.CLOSED}
            opening = opening[1:]
        else:
            regular = True
        before = data[opening - 1]
        if not regular or not (self._edges[before] | (before == self._quote)).all():
            return self._walk(data.tobytes())
        if len(quotes) + was_in & 1:
            self._state = _State.QUOTED
        else:
            self._state = _State.CLOSED if data[-1] == self._quote else self._outer(data)
        return quotes

    def _outer(self, data: NDArray[np.uint8]) -> _State:
        return _State.START if self._edges[data[-1]] else _State.PLAIN

    def _walk(self, text: bytes) -> NDArray[np.int64]:
        """Return the same, one quoted value after the other."""
        toggles: list[int] = []
        at, state = 0, self._state
        while at < len(text):
            if state is _State.QUOTED:
                close = text.find(self._quote, at)
                if close < 0:
                    break
                toggles.append(close)
                at, state = close + 1, _State.CLOSED
            elif state is not _State.PLAIN and text[at] == self._quote:
                toggles.append(at)
                at, state = at + 1, _State.QUOTED
            elif (found := self._opening.search(text, at)) is not None:
                toggles.append(found.end() - 1)
                at, state = found.end(), _State.QUOTED
            else:
                at, state = len(text), _State.START if self._edges[text[-1]] else _State.PLAIN
        self._state = state
        return np.array(toggles, np.int64)


def _outside(
    places: NDArray[np.int64], toggles: NDArray[np.int64], state: _State
) -> NDArray[np.int64]:
    """Return the places that are not within quotes."""
    if not len(toggles):
        return places[:0] if state is _State.QUOTED else places
    quoted = np.searchsorted(toggles, places) + (state is _State.QUOTED)
    outside: NDArray[np.int64] = places[quoted & 1 == 0]
    return outside
