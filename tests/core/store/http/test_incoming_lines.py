"""Servers that say too much, too little, or something else, on real connections that are kept."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.store.http.asking import OK, read, request
from tests.servers.raw import RawServer, read_request, saying
from tests.servers.tls import make_certificates

from streaming_core._store._http._wire import WireError, exchange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FAKE = OK.replace(b"body", b"fake")


def _talk(said: bytes) -> Callable[[socket.socket, int], None]:
    """Say this at once to each first request of a connection, and `OK` to the others."""

    def talk(connection: socket.socket, _: int) -> None:
        if read_request(connection):
            connection.sendall(said)
        while read_request(connection):
            connection.sendall(OK)

    return talk


@pytest.mark.parametrize(
    ("said", "method", "body"),
    [
        (OK + _FAKE, "GET", b"body"),
        (OK + b"\r\n", "GET", b"body"),
        (OK, "HEAD", b""),
        (b"HTTP/1.1 204 No\r\n\r\n" + _FAKE, "GET", b""),
        (b"HTTP/1.1 304 No\r\nContent-Length: 4\r\n\r\nbody", "GET", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _FAKE, "GET", b""),
    ],
)
def test_what_follows_an_answer_is_no_answer(said: bytes, method: str, body: bytes) -> None:
    """Another whole answer, a line, a body where none can be: the next request has its own."""
    with RawServer(_talk(said)) as server:
        for number in range(1, 4):
            assert read(server.url, method)[1] == body
            assert server.num_connections == number


def test_what_was_deciphered_already_is_no_answer_either(tmp_path: Path) -> None:
    """Over TLS bytes may wait where the system does not know of them."""
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    head, _, rest = OK.partition(b"\r\n\r\n")

    def talk(connection: socket.socket, _: int) -> None:
        with context.wrap_socket(connection.dup(), server_side=True) as wrapped:
            if read_request(wrapped):
                wrapped.sendall(head + b"\r\n\r\n")
                wrapped.sendall(rest + _FAKE)  # one record
            while read_request(wrapped):
                wrapped.sendall(OK)

    options: dict[str, Any] = {"ca_file": str(certificates.ca_file)}
    with RawServer(talk) as server:
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        assert [read(url, **options) for _ in range(3)] == [(200, b"body")] * 3
        assert server.num_connections == 3


def test_what_is_left_on_a_kept_connection_is_noticed_when_it_is_no_answer() -> None:
    """It came after the look before the request: another connection is asked."""
    sent = threading.Event()

    def talk(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(OK)
        if not number and read_request(connection):
            connection.sendall(b"body of somebody else\r\n\r\n")
            sent.set()
        while read_request(connection):
            connection.sendall(OK)

    with RawServer(talk) as server:
        assert [read(server.url) for _ in range(3)] == [(200, b"body")] * 3
        assert sent.wait(60)
        assert server.num_connections == 2


def test_a_body_that_was_not_read_is_no_answer() -> None:
    """Who closes an answer in the middle leaves nothing to the next request."""
    with RawServer(_talk(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + _FAKE)) as server:
        for number in range(1, 4):
            with exchange(request(server.url)) as answer:
                assert answer.read(4) == b"HTTP"
            assert server.num_connections == number


def test_answers_in_crumbs_follow_each_other_on_one_connection() -> None:
    """Heads, chunks and what is said after them, a byte at a time."""
    said = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n"
    said += b"2;a=b\r\nbo\r\n2\r\ndy\r\n0\r\nX-After: 1\r\n\r\n"

    def talk(connection: socket.socket, _: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while read_request(connection):
            for byte in said:
                connection.sendall(bytes([byte]))

    with RawServer(talk) as server:
        assert [read(server.url) for _ in range(20)] == [(200, b"body")] * 20
        assert server.num_connections == 1


@pytest.mark.parametrize(
    ("lead", "piece"),
    [
        (b"", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: b\r\n", b" b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n"),
    ],
)
def test_a_server_that_never_stops_talking_is_an_error_soon(lead: bytes, piece: bytes) -> None:
    """Something comes all the time, so no stall ends it; its size does."""
    stop = threading.Event()

    def talk(connection: socket.socket, _: int) -> None:
        read_request(connection)
        connection.sendall(lead)
        while not stop.is_set():
            try:
                connection.sendall(piece * 500)
            except OSError:
                return

    with RawServer(talk) as server:
        began = time.monotonic()
        try:
            with pytest.raises(WireError):
                read(server.url)
        finally:
            stop.set()
        assert time.monotonic() - began < 60


def test_headers_replace_what_is_said_of_itself_however_they_are_written() -> None:
    """No request names two hosts, or two forms in which it wants the answer."""
    heard: list[bytes] = []

    def talk(connection: socket.socket, _: int) -> None:
        heard.append(read_request(connection))
        connection.sendall(OK)

    with RawServer(talk) as server:
        read(server.url, headers={"host": "other.example", "ACCEPT-ENCODING": "x"})
        read(server.url)
    names = [[line.partition(b":")[0].lower() for line in one.splitlines()] for one in heard]
    assert [(one.count(b"host"), one.count(b"accept-encoding")) for one in names] == [(1, 1)] * 2
    assert b"host: other.example\r\n" in heard[0]


def test_an_answer_of_old_times_ends_with_its_connection() -> None:
    """Unless it says that the connection stays, and how long it is."""
    for lines, connections in ((b"", 3), (b"Connection: keep-alive\r\n", 1)):
        said = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n" + lines + b"\r\nbody"

        def talk(connection: socket.socket, _: int, said: bytes = said) -> None:
            while read_request(connection):
                connection.sendall(said)

        with RawServer(talk) as server:
            assert [read(server.url) for _ in range(3)] == [(200, b"body")] * 3
            assert server.num_connections == connections


def test_a_refused_form_is_named() -> None:
    """The error says what the body came as."""
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    with RawServer(saying(said)) as server, pytest.raises(WireError, match="'gzip, chunked'"):
        read(server.url)
