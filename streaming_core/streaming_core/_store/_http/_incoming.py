"""What comes over one connection: heads, and bodies in either of HTTP's two forms.

Written out because the standard library's own takes a message apart as if it were e-mail, which
costs more than all else that a small range takes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import socket

__all__ = ["Chunks", "Head", "Incoming", "NoAnswerError", "WireError"]

_ROOM_BYTES: Final = 16 << 10
_MOST_HEAD_BYTES: Final = 128 << 10
_MOST_LINE_BYTES: Final = 8 << 10
_BLANK: Final = re.compile(rb"\n\r?\n")
_STATUS: Final = re.compile(r"HTTP/1\.([0-9]) ([1-5][0-9]{2})(?: .*)?", re.ASCII)
_SIZE: Final = re.compile(rb"\s*([0-9a-fA-F]{1,15})\s*(?:;.*)?", re.DOTALL)


class WireError(OSError):
    """The other side said one thing and did another, or cannot be spoken to as things are set."""


class NoAnswerError(WireError):
    """What came is the end of the connection, or no HTTP, where an answer had to begin."""


class Head(NamedTuple):
    """The part of an answer that precedes its body."""

    status: int
    headers: dict[str, str]
    """By name in small letters; of several with one name the last."""
    lengths: frozenset[str]
    """All that is said of the body's length."""
    stays: bool
    """Whether the connection can be used again, as far as the server says."""


class Incoming:
    """Reads from a socket; nothing of what comes is taken twice, or before its turn."""

    __slots__ = ("_at", "_room", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._room = b""
        """What came and was not taken yet, from `_at` on."""
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Whether all that came was taken."""
        return self._at == len(self._room)

    def head(self) -> Head:
        """Return the next head.

        Raises:
            NoAnswerError: None begins.
            WireError: It is cut short, or no HTTP.
        """
        while True:
            found = _parsed(self._until_blank())
            if found.status >= 200 or found.status == 101:  # noqa: PLR2004 - others precede answers
                return found

    def readinto(self, view: memoryview) -> int:
        """Fill the beginning of `view` with what is there, at least one byte; 0 at the end."""
        if self._at == len(self._room):
            return self._socket.recv_into(view)
        piece = self._room[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def line(self) -> bytes:
        """Return the next line without its end; raises `WireError` if there is none."""
        while True:
            end = self._room.find(b"\n", self._at)
            if end >= 0:
                found = self._room[self._at : end]
                self._at = end + 1
                return found.removesuffix(b"\r")
            if len(self._room) - self._at > _MOST_LINE_BYTES:
                msg = "the body is to come in chunks, and has a line that is too long for that"
                raise WireError(msg)
            if not self._more():
                msg = "the body ended between two chunks"
                raise WireError(msg)

    def _until_blank(self) -> bytes:
        while True:
            match = _BLANK.search(self._room, self._at)
            if match is not None:
                found = self._room[self._at : match.start()]
                self._at = match.end()
                return found
            if len(self._room) - self._at > _MOST_HEAD_BYTES:
                msg = f"the head of the answer has more than {_MOST_HEAD_BYTES} bytes"
                raise WireError(msg)
            if self._more():
                continue
            if self.is_empty:
                msg = "the connection ended where an answer had to begin"
                raise NoAnswerError(msg)
            msg = "the connection ended within the head of the answer"
            raise WireError(msg)

    def _more(self) -> bool:
        piece = self._socket.recv(_ROOM_BYTES)
        self._room = self._room[self._at :] + piece
        self._at = 0
        return bool(piece)


class Chunks:
    """A body whose length nobody knew when it began."""

    __slots__ = ("_incoming", "_left", "is_over")

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._left = 0
        """Bytes of this chunk that are to come."""
        self.is_over = False
        """Whether all of it was read."""

    def readinto(self, view: memoryview) -> int:
        """Fill the beginning of `view`; 0 at the end. Raises `WireError` if it is cut short."""
        if self.is_over or not len(view):
            return 0
        if not self._left and not self._begin_chunk():
            return 0
        count = self._incoming.readinto(view[: self._left])
        if not count:
            msg = f"the body ended {self._left} bytes before the end of a chunk"
            raise WireError(msg)
        self._left -= count
        if not self._left and self._incoming.line():
            msg = "a chunk of the body is longer than it says"
            raise WireError(msg)
        return count

    def _begin_chunk(self) -> bool:
        """Read how long the next chunk is; tell whether there is one."""
        line = self._incoming.line()
        match = _SIZE.fullmatch(line)
        if match is None:
            msg = f"the body is to come in chunks, and one begins with {line[:40]!r}"
            raise WireError(msg)
        self._left = int(match[1], 16)
        if not self._left:
            while self._incoming.line():
                pass  # what is said after the body
            self.is_over = True
        return not self.is_over


def _parsed(text: bytes) -> Head:
    first, *lines = text.decode("latin-1").split("\n")
    status = _STATUS.fullmatch(first.rstrip())
    if status is None:
        msg = f"what came is no HTTP: it begins with {first[:40]!r}"
        raise NoAnswerError(msg)
    headers: dict[str, str] = {}
    lengths: set[str] = set()
    name = ""
    for line in lines:
        if line[:1] in {" ", "\t"} and name:  # goes on with the one before
            headers[name] = f"{headers[name]} {line.strip()}"
            continue
        before, colon, value = line.partition(":")
        if not colon:
            msg = f"the head of the answer has a line that is no header: {line[:40]!r}"
            raise WireError(msg)
        name = before.strip().lower()
        headers[name] = value.strip()
        if name == "content-length":
            lengths.add(headers[name])
    said = headers.get("connection", "").lower()
    stays = "close" not in said if status[1] != "0" else "keep-alive" in said
    return Head(int(status[2]), headers, frozenset(lengths), stays)
