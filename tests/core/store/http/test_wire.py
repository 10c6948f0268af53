"""Requests on the wire: kept connections, bodies cut short, refusals, proxies, what is left."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.store.http.asking import OK, PATIENT, STALL, read, request
from tests.servers.processes import connections_to
from tests.servers.raw import RawServer, read_request, reset, saying
from tests.servers.web import Asked, Said, WebServer

from streaming_core._store._http._connections import kept
from streaming_core._store._http._wire import (
    FAILURES,
    Origin,
    Request,
    Timeouts,
    WireError,
    exchange,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[WebServer]:
    """Return a server with one file."""
    with WebServer() as running:
        running.files.put("a", b"body" * 1000)
        yield running


_UNHURRIED = Timeouts(connect=60.0, stall=3.0)
"""Far more than a pause of 0.1 s can become, and less than all of them together."""


# --- kept connections -----------------------------------------------------------------------------


def test_requests_follow_each_other_on_one_connection(server: WebServer) -> None:
    """Bodies, no bodies, errors and uploads leave the connection to the next request."""
    with WebServer(answer=_varied) as varied:
        for number, method in enumerate(["GET", "HEAD", "PUT", "GET", "DELETE", "GET", "GET"]):
            assert read(f"{varied.url}/{number}", method, body=[memoryview(b"sent")])[0] >= 200
        assert len({entry.client for entry in varied.log}) == 1
    assert read(f"{server.url}/a")[1] == b"body" * 1000


def _varied(asked: Asked) -> Said | None:
    said = [
        Said(200, b"plain"),
        Said(200, b"not sent"),
        Said(201, b""),
        Said(200, [b"in ", b"chunks"]),
        Said(204),
        Said(404, b"none"),
        Said(304),
    ]
    return said[asked.number]


def test_a_connection_that_the_server_closed_is_replaced(server: WebServer) -> None:
    """Idle connections are closed by servers all the time, which no caller notices."""
    for _ in range(3):
        assert read(f"{server.url}/a")[0] == 200
        server.hang_up()
    assert len({entry.client for entry in server.log}) == 3


def test_a_connection_that_closes_on_the_next_request_is_replaced() -> None:
    """The server may also hang up in the very moment in which it is asked again."""

    def talk(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(OK)
        if read_request(connection):
            reset(connection) if number else connection.close()

    with RawServer(talk) as server:
        assert [read(server.url) for _ in range(3)] == [(200, b"body")] * 3
        assert server.num_connections == 3


def test_a_request_that_must_not_come_twice_has_a_new_connection() -> None:
    """It is neither sent on a kept connection nor again."""

    def talk(connection: socket.socket, number: int) -> None:
        read_request(connection)
        if number:
            reset(connection)
        else:
            connection.sendall(OK)
            read_request(connection)

    with RawServer(talk) as server:
        read(server.url)
        with pytest.raises(ConnectionError):
            read(server.url, "PUT", body=[memoryview(b"x")], once=True)
        assert server.num_connections == 2


def test_a_new_connection_that_fails_is_not_tried_again() -> None:
    """Trying again is for those above."""

    def talk(connection: socket.socket, _: int) -> None:
        read_request(connection)
        reset(connection)

    with RawServer(talk) as server:
        with pytest.raises(FAILURES):
            read(server.url)
        assert server.num_connections == 1


def test_unasked_bytes_spoil_a_connection() -> None:
    """What comes after an answer is no answer to the next request."""
    heard, said = threading.Event(), threading.Event()

    def talk(connection: socket.socket, number: int) -> None:
        read_request(connection)
        connection.sendall(OK)
        if not number:
            heard.wait(60)
            connection.sendall(OK.replace(b"body", b"fake"))
            said.set()
        read_request(connection)

    with RawServer(talk) as server:
        assert read(server.url)[1] == b"body"
        heard.set()
        assert said.wait(60)
        assert read(server.url)[1] == b"body"
        assert server.num_connections == 2


@pytest.mark.process
@pytest.mark.essential
def test_a_forked_child_makes_connections_of_its_own(server: WebServer) -> None:
    """Parent and child never share one; the parent's goes on working."""
    assert read(f"{server.url}/a")[0] == 200
    with exchange(request(f"{server.url}/a")) as answer:
        assert answer.read(4) == b"body"
        pid = os.fork()
        if not pid:
            try:
                os._exit(0 if read(f"{server.url}/a")[0] == 200 else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(answer.read(1 << 20)) == 3996
    read(f"{server.url}/a")
    clients = [entry.client for entry in server.log]
    assert len(set(clients)) == 2
    assert clients[0] == clients[1] == clients[3] != clients[2]


@pytest.mark.process
def test_a_forked_child_holds_none_of_its_parents_connections(server: WebServer) -> None:
    """Neither those in use nor those kept, so that they end when the parent ends them."""
    port = int(server.url.rpartition(":")[2])
    with exchange(request(f"{server.url}/a")) as answer:
        read(f"{server.url}/a")
        assert (connections_to(port), answer.read(4)) == (2, b"body")
        pid = os.fork()
        if not pid:
            try:
                os._exit(connections_to(port))
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(answer.read(1 << 20)) == 3996


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nshort\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_an_answer_cut_short_is_an_error(said: bytes) -> None:
    """With and without chunks, in the head and in the body, an early end is noticed."""
    with RawServer(saying(said)) as server, pytest.raises(FAILURES):
        read(server.url)


def test_a_body_without_an_announced_end_ends_with_the_connection() -> None:
    """HTTP/1.0 servers say so by closing, and nobody can know better."""
    with RawServer(saying(b"HTTP/1.0 200 OK\r\n\r\nall there is")) as server:
        assert read(server.url) == (200, b"all there is")


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8))
def test_chunks_are_joined(chunks: list[bytes]) -> None:
    """A body comes out the same however it was cut."""
    kept.forget()
    with WebServer(answer=lambda _: Said(200, list(chunks))) as server:
        assert read(server.url) == (200, b"".join(chunks))


def test_an_absurd_length_takes_no_memory() -> None:
    """Room is made for what comes, not for what was announced."""
    said = f"HTTP/1.1 200 OK\r\nContent-Length: {'9' * 17}\r\n\r\nshort".encode()
    with (
        RawServer(saying(said)) as server,
        exchange(request(server.url)) as answer,
        pytest.raises(WireError, match="ended 99999999999999994 bytes before"),
    ):
        answer.read(10**17)


def test_a_stall_ends_with_its_time_wherever_it_happens() -> None:
    """No answer, half a head and half a body all are waited for as long as was said."""
    for said in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"):

        def talk(connection: socket.socket, _: int, said: bytes = said) -> None:
            read_request(connection)
            connection.sendall(said)
            read_request(connection)  # until the client gives up

        began = time.monotonic()
        with RawServer(talk) as server, pytest.raises(TimeoutError):
            read(server.url, timeouts=STALL)
        assert 0.4 < time.monotonic() - began < 60


@pytest.mark.slow
def test_a_slow_body_is_no_stall() -> None:
    """Bytes that keep coming are waited for, though all of them take longer than the limit."""
    body = bytes(range(250)) * 80

    def talk(connection: socket.socket, _: int) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n")
        for at in range(0, len(body), 500):
            threading.Event().wait(0.1)
            connection.sendall(body[at : at + 500])

    with RawServer(talk) as server:
        began = time.monotonic()
        assert read(server.url, timeouts=_UNHURRIED) == (200, body)
        assert time.monotonic() - began > _UNHURRIED.stall


# --- uploads --------------------------------------------------------------------------------------


def test_a_large_upload_that_is_refused_early_shows_the_refusal() -> None:
    """A server that answers and hangs up before it read all has been heard."""

    def talk(connection: socket.socket, _: int) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        connection.shutdown(socket.SHUT_WR)
        reset(connection)

    with RawServer(talk) as server:
        large = memoryview(bytes(32 << 20))
        try:
            status, body = read(server.url, "PUT", body=[large])
        except ConnectionError:
            pytest.skip("the system threw the answer away with the connection")
        assert (status, body) == (403, b"no")


def test_an_upload_that_nobody_reads_is_a_stall() -> None:
    """Sending waits no longer for the other side than reading does."""
    given_up = threading.Event()

    def talk(connection: socket.socket, _: int) -> None:
        connection.recv(1000)
        given_up.wait(60)

    with RawServer(talk) as server:
        with pytest.raises(TimeoutError):
            read(server.url, "PUT", body=[memoryview(bytes(64 << 20))], timeouts=STALL)
        given_up.set()


@pytest.mark.slow
def test_a_slow_upload_is_no_stall() -> None:
    """Bytes that keep going are waited for, though all of them take longer than the limit."""

    def talk(connection: socket.socket, _: int) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        got = 0
        while got < 5 << 20:
            got += len(connection.recv(1 << 17))
            threading.Event().wait(0.1)
        connection.sendall(OK)

    with RawServer(talk) as server:
        began = time.monotonic()
        body = [memoryview(bytes(5 << 20))]
        assert read(server.url, "PUT", body=body, timeouts=_UNHURRIED)[0] == 200
        assert time.monotonic() - began > _UNHURRIED.stall


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ({"X-A": "secret\r\nX-Forged: 1"}, "/"),
        ({"X-A": "secret\nX-Forged: 1"}, "/"),
        ({"X-A\r\nX-Forged": "secret"}, "/"),
        ({"X-A": "secret ☃"}, "/"),
        ({"X-B": "ä", "X-A": "secret\0"}, "/"),
        ({"X A": "secret"}, "/"),
        ({}, "/secret HTTP/1.1\r\nX-Forged: 1"),
        ({}, "/secret\x00"),
        ({}, "/secret with space"),
    ],
)
def test_nothing_can_be_smuggled_into_a_request(headers: dict[str, str], target: str) -> None:
    """What would end a line is refused before a byte is sent, and not repeated in the error."""
    with RawServer(saying(OK)) as server:
        origin = Origin.of(server.url)
        with pytest.raises(WireError, match="characters that no request may have") as caught:
            exchange(Request("GET", origin, target, headers, timeouts=PATIENT))
        shown = "".join(map(str, (caught.value, caught.value.__cause__)))
        assert "secret" not in shown
        assert "Forged" not in shown or "X-A\\r\\nX-Forged" in shown


def test_headers_travel_as_they_are() -> None:
    """Letters of Latin-1 too; of what is added, the caller's own comes instead, in any case."""
    heads: list[bytes] = []

    def talk(line: socket.socket, _: int) -> None:
        heads.append(line.recv(1 << 16))
        line.sendall(OK)

    with RawServer(talk) as server:
        headers = {"X-A": "spät", "HOST": "other", "accept-encoding": "gzip"}
        exchange(Request("GET", Origin.of(server.url), "/a?b", headers, timeouts=PATIENT)).close()
    first, *lines = heads[0].decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    assert first == "GET /a?b HTTP/1.1"
    assert sorted(lines) == ["HOST: other", "X-A: spät", "accept-encoding: gzip"]


def test_an_ipv6_host_is_reached_and_named() -> None:
    """An address in brackets is connected to without them and named with them."""
    try:
        server = WebServer(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    seen: list[str] = []
    with server:
        server.answer = lambda asked: seen.append(asked.headers["host"])
        server.files.put("a", b"body")
        assert read(f"{server.url}/a") == (200, b"body")
    assert seen == [server.url.removeprefix("http://")]
    assert Origin.of("https://[2001:db8::1]/x").authority == "[2001:db8::1]"


@pytest.mark.parametrize("url", ["ftp://a/b", "http://", "https:///x", "a/b", "", "http://a:x/"])
def test_what_is_no_web_address_is_refused(url: str) -> None:
    """Only http and https with a host have an origin."""
    with pytest.raises(ValueError, match=r".+"):
        Origin.of(url)
