"""A fault proxy: stands before any HTTP server, and does to its answers what a script says.

With `raw` it stands before any TCP server: a connection then counts as a request whose method is
`TCP`, and what the server sends as the body of its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from tests.servers.damage import (
    Hurt,
    damaged,
    delay,
    everything,
    read_away,
    said_instead,
    withhold,
)
from tests.servers.exchange import Head, body_pieces, chunked, read_head
from tests.servers.faults import Etag, NoRange, Rule, Script, Status, Swallow, WrongRange
from tests.servers.looping import Listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from tests.servers.faults import Fault

__all__ = ["Passed", "Proxy"]

_FINAL_STATUS: Final = 200


@dataclass(slots=True)
class Passed:
    """A request that came to the proxy, and how far its answer got."""

    method: str
    target: str
    range: str
    """The `Range` header as the client sent it; empty if there was none."""
    faults: list[Fault]
    status: int = 0
    """What the client was told; 0 if nothing."""
    num_bytes: int = 0
    """Bytes of the body that were handed to the client's connection."""


class Proxy:
    """Listens while the `with` block runs, and sends what comes to `upstream`.

    Example:
        >>> from urllib.request import urlopen
        >>> from tests.servers.web import WebServer
        >>> with WebServer() as server, Proxy(server.url) as proxy:
        ...     etag = server.files.put("a", b"body")
        ...     rule = proxy.hurt(Status(200, body=b"another"), first=1)
        ...     urlopen(proxy.url + "/a").read(), urlopen(proxy.url + "/a").read(), rule.num_done
        (b'another', b'body', 1)
    """

    def __init__(self, upstream: str, *, raw: bool = False) -> None:
        """Stand before a URL, of which only host and port matter."""
        parts = urlsplit(upstream if "://" in upstream else f"tcp://{upstream}")
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._raw = raw
        self.log: list[Passed] = []
        """All requests so far."""
        self._script = Script()
        self._state: Listening | None = None

    def __enter__(self) -> Self:
        self._state = Listening(self._serve)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.stop()

    @property
    def _running(self) -> Listening:
        if self._state is None:
            msg = "the proxy runs within its `with` block only"
            raise RuntimeError(msg)
        return self._state

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return self._running.port

    @property
    def url(self) -> str:
        """The server's URL, through the proxy."""
        return f"http://127.0.0.1:{self.port}"

    # --- the script -------------------------------------------------------------------------------

    def hurt(self, fault: Fault, **which: Any) -> Rule:
        """Add a fault and return its rule, which counts; `which` is as for `Rule`."""
        if "methods" in which:
            which["methods"] = frozenset(which["methods"])
        rule = Rule(fault, **which)
        self._script.add(rule)
        return rule

    def heal(self) -> None:
        """Let all requests pass from now on; those that stall go on doing so."""
        self._script.set([])

    @contextlib.contextmanager
    def refusing(self) -> Generator[None]:
        """Refuse all connections within the block, and end those that are open."""
        self._running.close()
        try:
            yield
        finally:
            self._running.open()

    # --- counts -----------------------------------------------------------------------------------

    @property
    def num_requests(self) -> int:
        """How many requests came so far."""
        return len(self.log)

    @property
    def num_bytes(self) -> int:
        """How many bytes of bodies went to clients so far."""
        return sum(passed.num_bytes for passed in [*self.log])

    def count(self, method: str | None = None, part: str = "") -> int:
        """Return how many requests had this method and this text in their target."""
        return sum(method in {None, e.method} and part in e.target for e in [*self.log])

    def forget(self) -> None:
        """Begin counting anew."""
        self.log.clear()

    # --- one connection ---------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            if self._raw:
                upstream = await asyncio.open_connection(*self._upstream)
                await self._tunnel(reader, writer, *upstream)
                return
            while (head := await read_head(reader)) is not None:
                if upstream is None:
                    upstream = await asyncio.open_connection(*self._upstream)
                passed = self._entered(head.words[0], head.words[1], head.get("range"))
                if not await _Exchange(passed, reader, writer, *upstream).run(head):
                    break
        except Hurt as hurt:
            if hurt.reset:
                _reset(writer)
        except (OSError, EOFError, ValueError):
            _reset(writer)  # either side broke off: let the other see it
        except asyncio.CancelledError:
            if upstream is not None:
                upstream[1].transport.abort()
            raise
        finally:
            writer.close()
            if upstream is not None:
                upstream[1].close()

    async def _tunnel(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        passed = self._entered("TCP", "/", "")
        await delay(passed.faults)
        await withhold(passed.faults)

        async def rise() -> None:
            async for piece in everything(reader):
                to_server.write(piece)
                await to_server.drain()
            to_server.write_eof()

        rising = asyncio.ensure_future(rise())
        try:
            async for piece in damaged(everything(from_server), passed.faults, None):
                passed.num_bytes += len(piece)
                writer.write(piece)
                await writer.drain()
        finally:
            rising.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await rising

    def _entered(self, method: str, target: str, wanted: str) -> Passed:
        passed = Passed(method, target, wanted, self._script.faults(method, target))
        self.log.append(passed)
        return passed


@dataclass(slots=True)
class _Exchange:
    """One request on its way to the server, and its answer on the way back."""

    passed: Passed
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    from_server: asyncio.StreamReader
    to_server: asyncio.StreamWriter

    async def run(self, head: Head) -> bool:
        """Tell whether the connections are good for another."""
        faults = self.passed.faults
        await delay(faults)
        if any(isinstance(fault, Swallow) for fault in faults):
            await asyncio.Event().wait()
        if any(isinstance(fault, NoRange) for fault in faults):
            head.drop("range")
        instead = said_instead(head, faults)
        if instead is not None and not instead.after_server:
            await read_away(body_pieces(self.reader, head))
            await withhold(faults)
            await self._say(instead)
            return True
        answer = await self._asked(head)
        await withhold(faults)
        if instead is not None:
            await read_away(self._body(answer))
            await self._say(instead)
            return answer.stays_open
        return await self._answered(answer)

    async def _asked(self, head: Head) -> Head:
        """Hand the request on and return the head of its answer."""
        if head.get("expect"):
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head.drop("expect")
        self.to_server.write(head.encoded())
        async for piece in body_pieces(self.reader, head):
            self.to_server.write(chunked(piece) if head.is_chunked else piece)
            await self.to_server.drain()
        if head.is_chunked:
            self.to_server.write(b"0\r\n\r\n")
        await self.to_server.drain()
        while (answer := await read_head(self.from_server)) is not None:
            if answer.status >= _FINAL_STATUS:
                return answer
        raise EOFError

    async def _answered(self, answer: Head) -> bool:
        """Hand an answer on, changed as the faults say."""
        for fault in self.passed.faults:
            if isinstance(fault, Etag):
                answer.set("ETag", fault.value)
            elif isinstance(fault, WrongRange):
                answer.shift_range(fault.shift)
        self.writer.write(answer.encoded())
        self.passed.status = answer.status
        async for piece in damaged(self._body(answer), self.passed.faults, answer.length):
            self.passed.num_bytes += len(piece)
            self.writer.write(chunked(piece) if answer.is_chunked else piece)
            await self.writer.drain()
        if answer.is_chunked and self.passed.method != "HEAD":
            self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        return answer.stays_open

    def _body(self, answer: Head) -> AsyncIterator[bytes]:
        return body_pieces(self.from_server, answer, bodyless=self.passed.method == "HEAD")

    async def _say(self, said: Status) -> None:
        lines = [f"HTTP/1.1 {said.code} Said", f"Content-Length: {len(said.body)}"]
        if said.body.startswith(b"<"):
            lines.append("Content-Type: text/html")
        if said.retry_after:
            lines.append(f"Retry-After: {said.retry_after}")
        body = b"" if self.passed.method == "HEAD" else said.body
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self.passed.status = said.code
        self.passed.num_bytes += len(body)
        await self.writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
