"""HTTP/1.1 as it goes by: heads that may be changed, bodies piece by piece."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

__all__ = ["Head", "body_pieces", "chunked", "read_head"]

_PIECE_BYTES: Final = 1 << 16
_BODYLESS: Final = frozenset({204, 304})
_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(.*)", re.ASCII)


class Head:
    """The first line and the headers of a request or an answer."""

    def __init__(self, line: str, headers: list[tuple[str, str]]) -> None:
        self.line = line
        self._headers = headers

    @property
    def words(self) -> list[str]:
        """The first line's: method, target and version, or version, status and phrase."""
        return self.line.split(" ", 2)

    @property
    def status(self) -> int:
        """Of an answer; 0 for a request."""
        return int(self.words[1]) if self.line.startswith("HTTP/") else 0

    def get(self, name: str) -> str:
        """Return a header, empty if there is none."""
        return next((value for key, value in self._headers if key.lower() == name.lower()), "")

    def drop(self, name: str) -> None:
        """Take a header away."""
        self._headers = [pair for pair in self._headers if pair[0].lower() != name.lower()]

    def set(self, name: str, value: str) -> None:
        """Give a header another value."""
        self.drop(name)
        self._headers.append((name, value))

    def shift_range(self, count: int) -> None:
        """Let `Content-Range` name bytes so many further on."""
        match = _RANGE.fullmatch(self.get("content-range"))
        if match is not None:
            first, last = int(match[1]) + count, int(match[2]) + count
            self.set("Content-Range", f"bytes {first}-{last}/{match[3]}")

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.get("transfer-encoding").lower()

    @property
    def length(self) -> int | None:
        """How long the body is, if the head says so."""
        text = self.get("content-length")
        return int(text) if text and not self.is_chunked else None

    @property
    def stays_open(self) -> bool:
        """Whether another answer may follow this one."""
        ends_itself = self.is_chunked or self.length is not None or self.status in _BODYLESS
        closing = "close" in self.get("connection").lower() or self.line.startswith("HTTP/1.0")
        return ends_itself and not closing

    def encoded(self) -> bytes:
        """Return the bytes that are sent."""
        lines = [self.line, *(f"{name}: {value}" for name, value in self._headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Return the next head, None if the other side has closed the connection before it."""
    line = (await reader.readline()).decode("latin-1").rstrip("\r\n")
    if not line:
        return None
    headers = []
    while text := (await reader.readline()).decode("latin-1").rstrip("\r\n"):
        name, _, value = text.partition(":")
        headers.append((name.strip(), value.strip()))
    return Head(line, headers)


async def body_pieces(
    reader: asyncio.StreamReader, head: Head, *, bodyless: bool = False
) -> AsyncIterator[bytes]:
    """Yield a body as it comes, without the marks of chunks; `EOFError` if it is cut short."""
    if bodyless or head.status in _BODYLESS:
        return
    if head.is_chunked:
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield await reader.readexactly(size)
            await reader.readline()
        while (await reader.readline()).strip():
            pass  # trailers
        return
    left = head.length
    if left is None and not head.status:
        return  # a request that says nothing of a body has none
    while left is None or left:
        piece = await reader.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
        if not piece:
            if left:
                raise EOFError
            return
        left = None if left is None else left - len(piece)
        yield piece


def chunked(piece: bytes) -> bytes:
    """Return a piece as one chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
