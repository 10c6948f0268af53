"""What comes over one connection: heads, and bodies in either of HTTP's two forms.

Written out because the standard library's own takes a message apart as if it were e-mail, which
costs more than all else that a small range takes.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_core._store._progress import MinimumRate, too_slow

if TYPE_CHECKING:
    import socket

__all__ = ["Chunks", "Head", "Incoming", "NoAnswerError", "WireError"]

_ROOM_BYTES: Final = 64 << 10
_MOST_HEAD_BYTES: Final = 128 << 10
_MOST_LINE_BYTES: Final = 8 << 10
_MOST_AFTER_BYTES: Final = 64 << 10
_MOST_INTERIM: Final = 100
"""How many answers may precede one."""
_LEAST_SECONDS: Final = 0.001
"""With 0 a socket would not wait at all, and say so by another error."""
_FINAL_STATUS: Final = 200
_SWITCHED: Final = 101
_SPACE: Final = " \t\r"
_BLANK: Final = re.compile(rb"\n\r?\n")
_FOLD: Final = re.compile(r"\r?\n[ \t]+")
_STATUS: Final = re.compile(r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: .*)?", re.ASCII)
_SIZE: Final = re.compile(rb"[ \t]*0*([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_JOINED: Final = frozenset({"connection", "transfer-encoding"})
"""Headers of which each counts that comes."""


class WireError(OSError):
    """The other side said one thing and did another, or cannot be spoken to as things are set."""


class NoAnswerError(WireError):
    """What came is the end of the connection, or no HTTP, where an answer had to begin."""


class Head(NamedTuple):
    """The part of an answer that precedes its body."""

    status: int
    headers: dict[str, str]
    """By name in small letters; of several with one name the last, or all where all count."""
    lengths: frozenset[str]
    """All that is said of the body's length."""
    stays: bool
    """Whether the connection can be used again, as far as the server says."""


class Incoming:
    """Reads from a socket; nothing of what comes is taken twice, or before its turn."""

    __slots__ = ("_at", "_rate", "_room", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._rate: MinimumRate | None = None
        self._room = b""
        """What came and was not taken yet, from `_at` on."""
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Whether all that came was taken."""
        return self._at == len(self._room)

    def expect(self, timeout: float | None) -> None:
        """Require a minimum rate of what comes from now on, over spans of `timeout` seconds.

        How long the first byte of a head may take is for the socket's own timeout. None: no rate.
        """
        self._rate = None if timeout is None else MinimumRate(timeout)

    def head(self) -> Head:
        """Return the next head.

        Raises:
            NoAnswerError: None begins.
            WireError: It is cut short or too slow, or no HTTP, or only such come as precede
                answers.
        """
        began = time.monotonic()
        found = _parsed(self._until_blank())
        if found.status >= _FINAL_STATUS:
            return found
        timeout = self._socket.gettimeout()
        try:
            for _ in range(_MOST_INTERIM):
                if found.status == _SWITCHED:
                    msg = "the server goes on in another protocol, which nobody asked for"
                    raise WireError(msg)
                if timeout is not None:  # what precedes an answer gives it no more time
                    left = began + timeout - time.monotonic()
                    self._socket.settimeout(max(left, _LEAST_SECONDS))
                found = _parsed(self._until_blank())
                if found.status >= _FINAL_STATUS:
                    return found
        finally:
            self._socket.settimeout(timeout)
        msg = f"after {_MOST_INTERIM} answers that precede one there was none"
        raise WireError(msg)

    def readinto(self, view: memoryview) -> int:
        """Fill the beginning of `view` with what is there, at least one byte; 0 at the end."""
        if self._at == len(self._room):
            began = time.monotonic()
            count = self._socket.recv_into(view)
            self._judge(count, began)
            return count
        piece = self.ready(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def ready(self, most: int) -> bytes:
        """Take what came already, at most so many bytes."""
        piece = self._room[self._at : self._at + most]
        self._at += len(piece)
        return piece

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

    def take(self, wanted: bytes) -> bool:
        """Take these bytes, and no others, if they come next; tell whether they do."""
        while len(self._room) - self._at < len(wanted):
            if not self._more():
                return False
        if not self._room.startswith(wanted, self._at):
            return False
        self._at += len(wanted)
        return True

    def _until_blank(self) -> bytes:
        seen = 0
        if self.is_empty:
            self._room, self._at = self._socket.recv(_ROOM_BYTES), 0
            if self._rate is not None:
                self._rate.reset()
            if not self._room:
                msg = "the connection ended where an answer had to begin"
                raise NoAnswerError(msg)
        while True:
            match = _BLANK.search(self._room, self._at + max(0, seen - 2))
            if match is not None:
                found = self._room[self._at : match.start()]
                self._at = match.end()
                return found
            seen = len(self._room) - self._at
            if seen > _MOST_HEAD_BYTES:
                msg = f"the head of the answer has more than {_MOST_HEAD_BYTES} bytes"
                raise WireError(msg)
            if not self._more():
                msg = "the connection ended within the head of the answer"
                raise WireError(msg)

    def _more(self) -> bool:
        began = time.monotonic()
        piece = self._socket.recv(_ROOM_BYTES)
        self._judge(len(piece), began)
        self._room = self._room[self._at :] + piece
        self._at = 0
        return bool(piece)

    def _judge(self, count: int, began: float) -> None:
        rate = self._rate
        if rate is not None and count and not rate.is_enough(count, time.monotonic() - began):
            raise WireError(too_slow(rate.timeout))


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
        if not self._left and not self._incoming.take(b"\r\n"):
            msg = "a chunk of the body does not end where it says"
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
            self._end()
        return not self.is_over

    def _end(self) -> None:
        """Pass over what is said after the body."""
        num_bytes = 0
        while line := self._incoming.line():
            num_bytes += len(line) + 1
            if num_bytes > _MOST_AFTER_BYTES:
                msg = f"more than {_MOST_AFTER_BYTES} bytes are said after the body"
                raise WireError(msg)
        self.is_over = True


def _parsed(text: bytes) -> Head:
    said = text.decode("latin-1")
    if "\n " in said or "\n\t" in said:
        said = _FOLD.sub(" ", said)
    first, *lines = said.split("\n")
    status = _STATUS.fullmatch(first.rstrip(_SPACE))
    if status is None:
        msg = f"what came is no HTTP: it begins with {first[:40]!r}"
        raise NoAnswerError(msg)
    headers: dict[str, str] = {}
    lengths: set[str] = set()
    for line in lines:
        before, colon, value = line.partition(":")
        if not colon:
            msg = f"the head of the answer has a line that is no header: {line.strip()[:40]!r}"
            raise WireError(msg)
        name, value = before.strip(_SPACE).lower(), value.strip(_SPACE)
        if name == "content-length":
            named = [length.strip(_SPACE) for length in value.split(",")]
            for length in named:
                if not _DIGITS.fullmatch(length):
                    msg = f"the answer has the Content-Length {value[:40]!r}, which is no number"
                    raise WireError(msg)
            lengths.update(named)
            value = named[-1]
        elif name in _JOINED and name in headers:
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return Head(int(status[2]), headers, frozenset(lengths), _stays(status[1], headers))


def _stays(minor: str, headers: dict[str, str]) -> bool:
    """Tell whether the connection can be used again; it cannot where its use is in doubt."""
    said = headers.get("connection", "").lower()
    if "close" in said or (minor == "0" and "keep-alive" not in said):
        return False
    # Two that see the end of such a body in different places are all it takes to mix up answers.
    return "transfer-encoding" not in headers or (minor != "0" and "content-length" not in headers)
