"""A web server in this process: files in memory or a folder, and answers as a test wants them."""

from __future__ import annotations

import http
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from urllib.parse import unquote, urlsplit

from tests.servers.files import FolderFiles, MemoryFiles

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from tests.servers.files import File, Files

__all__ = ["Answering", "Asked", "Logged", "Said", "WebServer", "in_turn"]

_IO_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    number: int
    """From 0, over all requests of the server."""
    method: str
    target: str
    """Path and query, percent-encoded."""
    headers: Mapping[str, str]
    """By name in small letters."""
    body: bytes

    @property
    def path(self) -> str:
        """The path, decoded."""
        return unquote(urlsplit(self.target).path)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; `length` and `hang_up` let it lie."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    """Pieces are sent in chunks, without saying how many bytes there are."""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    """What to give as `Content-Length` instead of the truth."""
    hang_up: bool = False
    """Whether the connection is closed after it, unannounced."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A request that came whole."""

    method: str
    path: str
    """Decoded."""
    range: str
    """The `Range` header; empty if there was none."""
    status: int
    client: int
    """The port it came from: requests of one connection share it."""


Answering: TypeAlias = Callable[[Asked], Said | None]
"""Returns the answer to a request, or None to have the file served."""


def in_turn(*said: Said | None) -> Answering:
    """Return a function that gives these answers, one a request, and files from then on."""
    left = [*said]
    guard = threading.Lock()

    def answer(_: Asked) -> Said | None:
        with guard:
            return left.pop(0) if left else None

    return answer


class WebServer:
    """Serves `GET`, `HEAD`, `PUT` and `DELETE` while the `with` block runs.

    Files lie in `folder`, or else in memory. It knows single ranges, ETags, `If-None-Match: *` on
    `PUT` and kept connections. Set `answer` at any time to give other answers.

    Example:
        >>> from urllib.request import urlopen
        >>> with WebServer() as server:
        ...     etag = server.files.put("a/b", b"body")
        ...     urlopen(server.url + "/a/b").read(), server.log[0].method
        (b'body', 'GET')
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        answer: Answering | None = None,
        ranges: bool = True,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.files: Files = MemoryFiles() if folder is None else FolderFiles(folder)
        self.answer: Answering | None = answer
        self.log: list[Logged] = []
        """All requests so far."""
        self._ranges = ranges
        self._tcp = _Listener(host, self._said, tls)
        self._asked = 0
        self._guard = threading.Lock()
        scheme = "http" if tls is None else "https"
        name = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{name}:{self._tcp.server_address[1]}"
        self._thread = threading.Thread(target=self._tcp.run, name="web-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tcp.end()
        deadline = time.monotonic() + _STOP_SECONDS
        self._thread.join(max(0.0, deadline - time.monotonic()))
        for thread in self._tcp.hang_up():  # no more come now
            thread.join(max(0.0, deadline - time.monotonic()))
        self._tcp.server_close()

    def hang_up(self) -> int:
        """Close all connections, as servers do with idle ones, and return how many there were."""
        return len(self._tcp.hang_up())

    def count(self, method: str | None = None, path: str | None = None) -> int:
        """Return how many requests had this method and path."""
        return sum(
            method in {None, entry.method} and path in {None, entry.path} for entry in [*self.log]
        )

    def _said(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, client: int
    ) -> Said | File:
        with self._guard:
            asked = Asked(self._asked, method, target, headers, body)
            self._asked += 1
        answer = self.answer
        said = None if answer is None else answer(asked)
        found: Said | File = self._served(asked) if said is None else said
        status = found.status
        self.log.append(Logged(method, asked.path, headers.get("range", ""), status, client))
        return found

    def _served(self, asked: Asked) -> Said | File:
        name = asked.path.removeprefix("/")
        if asked.method in {"GET", "HEAD"}:
            found = self.files.open(name)
            if found is None:
                return Said(404, b"no such file\n")
            wanted = asked.headers.get("range", "") if self._ranges else ""
            if not found.narrow(wanted):
                size = found.size
                found.close()
                return Said(416, b"", {"Content-Range": f"bytes */{size}"})
            return found
        if asked.method == "PUT":
            only_new = asked.headers.get("if-none-match") == "*"
            etag = self.files.put(name, asked.body, if_absent=only_new)
            return Said(412) if etag is None else Said(201, b"", {"ETag": etag})
        if asked.method == "DELETE":
            return Said(204 if self.files.remove(name) else 404)
        return Said(405)


# --- connections ----------------------------------------------------------------------------------

_Give: TypeAlias = "Callable[[str, str, Mapping[str, str], bytes, int], Said | File]"


class _Listener(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, host: str, give: _Give, tls: ssl.SSLContext | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.give = give
        self._tls = tls
        self._guard = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._ending = False
        super().__init__((host, 0), _Handler)

    def run(self) -> None:
        while not self._ending:
            self.handle_request()

    def end(self) -> None:
        self._ending = True
        with suppress(OSError):  # a connection that nobody serves wakes the thread that waits
            address = (str(self.server_address[0]), self.server_address[1])
            socket.create_connection(address, timeout=_STOP_SECONDS).close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        del request, client_address
        return not self._ending

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="web-connection",
            daemon=True,
        )
        with self._guard:  # whoever is told of the thread may wait for its end
            self._open[request] = thread
            thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(_IO_SECONDS)
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        plain = socket.fromfd(request.fileno(), request.family, request.type)
        with self._tls.wrap_socket(plain, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of tests leave in the middle."""

    def hang_up(self) -> list[threading.Thread]:
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            return [*self._open.values()]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    server: _Listener

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        client = self.client_address[1]
        said = self.server.give(self.command, self.path, headers, body, client)
        if isinstance(said, Said):
            self._say(said)
            return
        with said:
            self._head(said.status, said.headers, str(said.length))
            if self.command != "HEAD":
                self.wfile.flush()
                said.send(self.connection)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = do_OPTIONS = _serve  # noqa: N815 - names of the base

    def handle_expect_100(self) -> bool:
        """Let the body come at once; the base would leave that in the buffer."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length)
        return body if len(body) == length else None

    def _say(self, said: Said) -> None:
        if isinstance(said.body, bytes):
            length = len(said.body) if said.length is None else said.length
            self._head(said.status, said.headers, str(length))
            if self.command != "HEAD":
                self.wfile.write(said.body)
        else:
            self._head(said.status, said.headers, None)
            for piece in said.body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            if not said.hang_up:
                self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        if said.hang_up:
            self.close_connection = True

    def _head(self, status: int, headers: Mapping[str, str], length: str | None) -> None:
        self.send_response_only(status, _phrase(status))
        names = {name.lower() for name in headers}
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        elif status not in {204, 304} and "content-length" not in names:
            self.send_header("Content-Length", length)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the server keeps its own log."""


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
