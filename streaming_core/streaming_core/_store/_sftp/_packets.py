"""What SFTP's packets look like, version 3: pure functions between bytes and values."""

from __future__ import annotations

import stat
import struct
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "OK",
    "Attributes",
    "Cursor",
    "Kind",
    "PacketError",
    "Status",
    "StatusError",
    "packet",
    "text",
    "times",
    "u32",
    "u64",
]

_SIZE: Final = 1
_OWNER: Final = 2
_MODE: Final = 4
_TIMES: Final = 8
_EXTENDED: Final = 0x80000000
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


class Kind(IntEnum):
    """Kinds of packets."""

    INIT = 1
    VERSION = 2
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    FSTAT = 8
    FSETSTAT = 10
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    STAT = 17
    RENAME = 18
    STATUS = 101
    HANDLE = 102
    DATA = 103
    NAME = 104
    ATTRS = 105
    EXTENDED = 200


class Status(IntEnum):
    """What a server answers if it has nothing else to say."""

    OK = 0
    END = 1
    MISSING = 2
    DENIED = 3
    FAILURE = 4
    BAD_MESSAGE = 5
    NO_CONNECTION = 6
    CONNECTION_LOST = 7
    UNSUPPORTED = 8


OK: Final = Status.OK


class PacketError(OSError):
    """The server sent what is no packet of the protocol, or none that was asked for."""


class StatusError(Exception):
    """The server answered that it did not do what was asked."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        try:
            name = Status(self.code).name.lower().replace("_", " ")
        except ValueError:
            name = f"status {self.code}"
        return f"{name} ({self.message})" if self.message else name


class Attributes(NamedTuple):
    """What a server says of a file; None where it says nothing."""

    size: int | None = None
    mode: int | None = None
    modified: int | None = None
    """Seconds since 1970; the protocol has nothing finer."""

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, as far as the server says."""
        return self.mode is None or not stat.S_IFMT(self.mode) or stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.mode is not None and stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.mode is not None and stat.S_ISLNK(self.mode)

    @property
    def etag(self) -> str:
        """A text for this version; empty if the server does not say enough."""
        if self.modified is None or self.size is None:
            return ""
        return f"{self.modified:x}-{self.size:x}"


def u32(number: int) -> bytes:
    """Return a number of four bytes."""
    return _U32.pack(number)


def u64(number: int) -> bytes:
    """Return a number of eight bytes."""
    return _U64.pack(number)


def text(data: bytes) -> bytes:
    """Return a text with its length before it.

    Example:
        >>> text(b"ab").hex()
        '000000026162'
    """
    return _U32.pack(len(data)) + data


def times(modified: int) -> bytes:
    """Return the attributes that set when a file was read and written last."""
    return u32(_TIMES) + u32(modified) + u32(modified)


def packet(kind: int, *fields: bytes | memoryview) -> bytes:
    """Return a packet, its length before it.

    Example:
        >>> packet(Kind.INIT, u32(3)).hex()
        '000000050100000003'
    """
    return b"".join((_U32.pack(1 + sum(map(len, fields))), bytes((kind,)), *fields))


class Cursor:
    """A packet that is read from its beginning on; raises `PacketError` past its end.

    Example:
        >>> cursor = Cursor(u32(7) + text(b"ab"))
        >>> cursor.u32(), cursor.text(), cursor.more
        (7, b'ab', False)
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def more(self) -> bool:
        """Whether anything is left."""
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self._at + count
        if end > len(self._data):
            msg = f"a packet of {len(self._data)} bytes ended where {end} were needed"
            raise PacketError(msg)
        found = self._data[self._at : end]
        self._at = end
        return found

    def u8(self) -> int:
        """Return the next byte."""
        return self.take(1)[0]

    def u32(self) -> int:
        """Return the next four bytes as a number."""
        number: int = _U32.unpack(self.take(4))[0]
        return number

    def u64(self) -> int:
        """Return the next eight bytes as a number."""
        number: int = _U64.unpack(self.take(8))[0]
        return number

    def text(self) -> bytes:
        """Return the next text."""
        return self.take(self.u32())

    def attributes(self) -> Attributes:
        """Return the attributes that come next."""
        flags = self.u32()
        size = self.u64() if flags & _SIZE else None
        if flags & _OWNER:
            self.take(8)
        mode = self.u32() if flags & _MODE else None
        modified = None
        if flags & _TIMES:
            self.take(4)
            modified = self.u32()
        if flags & _EXTENDED:
            for _ in range(self.u32()):
                self.text()
                self.text()
        return Attributes(size, mode, modified)
