"""A server that says exactly what a test has it say, byte for byte."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RawServer", "read_request", "reset", "saying"]

_SECONDS: Final = 60.0


class RawServer:
    r"""Calls `talk` with each connection and its number, in a thread; closes it afterwards.

    Example:
        >>> with RawServer(saying(b"HTTP/1.1 204 Fine\r\n\r\n")) as server:
        ...     with socket.create_connection(("127.0.0.1", server.port)) as connection:
        ...         connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        ...         connection.recv(12)
        b'HTTP/1.1 204'
    """

    def __init__(self, talk: Callable[[socket.socket, int], None], host: str = "127.0.0.1") -> None:
        self._talk = talk
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=64)
        self.port: int = self._listener.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.port}"
        self.num_connections = 0
        """How many were made so far."""
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="raw-server", daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(connection)
            thread = threading.Thread(
                target=self._serve, args=(connection, self.num_connections), daemon=True
            )
            self.num_connections += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(OSError):
            self._talk(connection, number)


def saying(*answers: bytes) -> Callable[[socket.socket, int], None]:
    """Return a talk that gives these answers to the requests of a connection, then closes it."""

    def talk(connection: socket.socket, _: int) -> None:
        for answer in answers:
            if not read_request(connection):
                return
            connection.sendall(answer)

    return talk


def read_request(connection: socket.socket) -> bytes:
    """Return a request, head and body; empty if the client has closed the connection."""
    said = b""
    while b"\r\n\r\n" not in said:
        piece = connection.recv(1 << 16)
        if not piece:
            return b""
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        piece = connection.recv(1 << 16)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body


def reset(connection: socket.socket) -> None:
    """End a connection by a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
