"""One conversation with an SFTP server: requests go out, answers come back by their numbers.

SFTP's client in paramiko is not used, only its channel: it has no hard links and no fsync, it reads
ahead without bound, and its files talk to the server when they are collected, also in a forked
child.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from streaming_core._store._sftp._packets import (
    OK,
    Attributes,
    Cursor,
    Kind,
    PacketError,
    Status,
    StatusError,
    packet,
    text,
    times,
    u32,
    u64,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CREATE", "READ", "Session"]

_VERSION: Final = 3
_MOST_PACKET_BYTES: Final = 1 << 24
_RECEIVE_BYTES: Final = 1 << 17
_MAX_MESSAGE_CHARS: Final = 200
READ: Final = 0x01
"""Open a file that is there, to read it."""
CREATE: Final = 0x02 | 0x08 | 0x20
"""Make a file that is not there, to write it."""


class Session:
    """A conversation, for one thread at a time.

    Raises `StatusError` where the server says no, `PacketError` where it breaks the protocol, and
    what `channel` raises.
    """

    __slots__ = ("_asked", "_buffer", "_channel", "_early", "_last", "_unwanted", "extensions")

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - paramiko has no types
        """Begin over a channel on which the server has started SFTP."""
        self._channel = channel
        self._buffer = bytearray()
        self._last = 0
        self._asked: set[int] = set()
        self._early: dict[int, tuple[int, Cursor]] = {}
        self._unwanted: set[int] = set()
        channel.sendall(packet(Kind.INIT, u32(_VERSION)))
        kind, cursor = self._received()
        if kind != Kind.VERSION:
            msg = f"the server began with a packet of kind {kind} instead of its version"
            raise PacketError(msg)
        cursor.u32()
        self.extensions: frozenset[bytes] = frozenset(_names(cursor))
        """What the server can do beyond version 3."""

    @property
    def is_quiet(self) -> bool:
        """Whether every answer has come, but for those nobody wants."""
        return not self._asked and not self._early

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, kind: int, *fields: bytes | memoryview) -> int:
        """Send a request and return its number."""
        self._last = number = (self._last + 1) & 0xFFFFFFFF
        self._asked.add(number)
        self._channel.sendall(packet(kind, u32(number), *fields))
        return number

    def forget(self, number: int) -> None:
        """Do not wait for the answer to a request."""
        self._asked.discard(number)
        self._unwanted.add(number)

    def answer(self, number: int) -> tuple[int, Cursor]:
        """Wait for the answer to a request; return its kind and what it says."""
        while number not in self._early:
            kind, cursor = self._received()
            which = cursor.u32()
            if which in self._unwanted:
                self._unwanted.discard(which)
            elif which in self._asked:
                self._early[which] = kind, cursor
            else:
                msg = f"the server answered the request {which}, which was not made"
                raise PacketError(msg)
        self._asked.discard(number)
        return self._early.pop(number)

    def done(self, number: int) -> None:
        """Wait until something is done that has no other answer."""
        self._expect(number, None)

    def data(self, number: int) -> bytes:
        """Return the bytes that were to be read; none at the end of the file."""
        try:
            return self._expect(number, Kind.DATA).text()
        except StatusError as error:
            if error.code == Status.END:
                return b""
            raise

    def attributes(self, number: int) -> Attributes:
        """Return the attributes that were asked for."""
        return self._expect(number, Kind.ATTRS).attributes()

    def _expect(self, number: int, wanted: int | None) -> Cursor:
        kind, cursor = self.answer(number)
        if kind == Kind.STATUS:
            code = cursor.u32()
            if code != OK:
                message = cursor.text() if cursor.more else b""
                raise StatusError(code, _shown(message))
            if wanted is None:
                return cursor
        if kind != wanted:
            msg = f"the server sent a packet of kind {kind} where {wanted or 'a status'} was due"
            raise PacketError(msg)
        return cursor

    # --- what is asked ----------------------------------------------------------------------------

    def open(self, path: bytes, flags: int) -> bytes:
        """Return a handle on a file; `flags` are `READ` or `CREATE`."""
        return self._handle(self.ask(Kind.OPEN, text(path), u32(flags), u32(0)))

    def close(self, handle: bytes) -> None:
        """Let a handle go, without waiting; it went already if the connection did."""
        with suppress(OSError, EOFError):
            self.forget(self.ask(Kind.CLOSE, text(handle)))

    def stat(self, path: bytes) -> Attributes | None:
        """Return what lies there, links followed; None if nothing does."""
        return self.found(self.ask(Kind.STAT, text(path)))

    def found(self, number: int) -> Attributes | None:
        """Return the attributes that were asked for; None if there is no such file."""
        try:
            return self.attributes(number)
        except StatusError as error:
            if error.code == Status.MISSING:
                return None
            raise

    def ask_read(self, handle: bytes, at: int, count: int) -> int:
        """Ask for bytes of a file; the server may send fewer."""
        return self.ask(Kind.READ, text(handle), u64(at), u32(count))

    def ask_write(self, handle: bytes, at: int, view: memoryview) -> int:
        """Send bytes for a file."""
        return self.ask(Kind.WRITE, text(handle), u64(at), u32(len(view)), view)

    def ask_fstat(self, handle: bytes) -> int:
        """Ask for the attributes of an open file."""
        return self.ask(Kind.FSTAT, text(handle))

    def set_modified(self, handle: bytes, seconds: int) -> None:
        """Say when an open file was written last."""
        self.done(self.ask(Kind.FSETSTAT, text(handle), times(seconds)))

    def make_folder(self, path: bytes) -> None:
        """Make a folder."""
        self.done(self.ask(Kind.MKDIR, text(path), u32(0)))

    def remove(self, path: bytes) -> None:
        """Remove a file."""
        self.done(self.ask(Kind.REMOVE, text(path)))

    def rename(self, old: bytes, new: bytes) -> None:
        """Rename a file to a name that, by the standard, must not be taken."""
        self.done(self.ask(Kind.RENAME, text(old), text(new)))

    def extended(self, name: bytes, *fields: bytes) -> None:
        """Do something beyond version 3."""
        self.done(self.ask(Kind.EXTENDED, text(name), *map(text, fields)))

    def entries(self, path: bytes) -> Iterator[tuple[bytes, Attributes]]:
        """Yield the names in a folder, with what lies there, links not followed."""
        handle = self._handle(self.ask(Kind.OPENDIR, text(path)))
        try:
            while True:
                try:
                    cursor = self._expect(self.ask(Kind.READDIR, text(handle)), Kind.NAME)
                except StatusError as error:
                    if error.code == Status.END:
                        return
                    raise
                for _ in range(cursor.u32()):
                    name = cursor.text()
                    cursor.text()  # the line that `ls -l` would print
                    attributes = cursor.attributes()
                    if name not in {b".", b".."}:
                        yield name, attributes
        finally:
            self.close(handle)

    def _handle(self, number: int) -> bytes:
        return self._expect(number, Kind.HANDLE).text()

    # --- receiving --------------------------------------------------------------------------------

    def _received(self) -> tuple[int, Cursor]:
        length = int.from_bytes(self._take(4), "big")
        if not 1 <= length <= _MOST_PACKET_BYTES:
            msg = f"the server sent {length} as the length of a packet: this is no SFTP"
            raise PacketError(msg)
        body = self._take(length)
        return body[0], Cursor(body, 1)

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            piece = self._channel.recv(_RECEIVE_BYTES)
            if not piece:
                msg = "the server closed the connection"
                raise ConnectionResetError(msg)
            self._buffer += piece
        found = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return found


def _names(cursor: Cursor) -> Iterator[bytes]:
    while cursor.more:
        yield cursor.text()
        cursor.text()


def _shown(message: bytes) -> str:
    words = message.decode(errors="replace")[:_MAX_MESSAGE_CHARS]
    return "".join(char if char.isprintable() else " " for char in words).strip()
