"""Servers that never end, or send a byte now and then: bounded bytes, a minimum rate."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from tests.core.store.http.asking import STALL, read
from tests.servers.raw import RawServer, read_request, saying
from tests.servers.web import Said, WebServer

from streaming_core import load_index, open_store
from streaming_core._store import with_timeout
from streaming_core.errors import ObjectTooLargeError, StoreError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from streaming_core._store import Store

_STALL = STALL.stall
_OK = b"HTTP/1.1 200 OK\r\n"
_LENGTHS = ["9" * 5000, "-5", "+5", "1_000", "5 5", "5;", "0x10", "5.0", "\u0665", "", "5,", "5, 6"]
_READS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a"),
    "head": lambda store: store.head("a"),
    "stream": lambda store: list(store.stream("a")),
    "ranges": lambda store: store.get_ranges("a", [(0, 100_000)]),
    "footer": lambda store: store.get_ranges("a", [(-100, None)]),
}


@pytest.mark.parametrize("length", _LENGTHS)
@pytest.mark.parametrize("name", ["get", "head", "stream"])
def test_a_length_that_is_not_digits_is_a_typed_error(name: str, length: str) -> None:
    """The body is not read until the connection ends, as if nothing had been said of it."""
    said = _OK + f"Content-Length: {length}\r\n\r\nshort".encode()
    with RawServer(saying(said)) as server, pytest.raises(StoreError, match="Content-Length"):
        _READS[name](open_store(server.url))


def _trickling(before: bytes, drop: bytes) -> RawServer:
    """Return a server that goes on with a drop now and then, without end."""

    def talk(connection: socket.socket, _: int) -> None:
        read_request(connection)
        connection.sendall(before)
        while True:
            time.sleep(0.05)
            connection.sendall(drop)

    return RawServer(talk)


@pytest.mark.parametrize("name", _READS)
def test_a_head_that_trickles_is_too_slow(name: str) -> None:
    """Each byte comes in time, and the answer never."""
    with _trickling(_OK + b"X-Long: ", b"x") as server:
        store = with_timeout(open_store(server.url), _STALL)
        with pytest.raises(StoreError, match=r"256 bytes a second|timed out"):
            _READS[name](store)


@pytest.mark.parametrize("drop", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 P\r\n\r\n"])
@pytest.mark.parametrize("name", ["get", "head"])
def test_answers_that_precede_one_give_it_no_more_time(name: str, drop: bytes) -> None:
    """A server that says for ever that it is about to answer is as slow as one that is silent."""
    with _trickling(drop, drop) as server:
        store = with_timeout(open_store(server.url), _STALL)
        with pytest.raises(StoreError, match="timed out"):
            _READS[name](store)


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"Content-Length: 100000\r\n\r\n", b"x"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n5;", b"x"),
        (b"\r\n", b"x"),
    ],
    ids=["length", "chunks", "line of a chunk", "no length"],
)
@pytest.mark.parametrize("name", ["get", "stream"])
def test_a_body_that_trickles_is_too_slow(name: str, head: bytes, drop: bytes) -> None:
    """In every form that a body may have."""
    with _trickling(_OK + head, drop) as server:
        store = with_timeout(open_store(server.url), _STALL)
        with pytest.raises(StoreError, match=r"256 bytes a second|timed out"):
            _READS[name](store)


def test_a_range_that_trickles_is_too_slow() -> None:
    """As a footer may."""
    head = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-99999/100000\r\n\r\n"
    with _trickling(head, b"x") as server:
        store = with_timeout(open_store(server.url), _STALL)
        with pytest.raises(StoreError, match=r"256 bytes a second|timed out"):
            _READS["ranges"](store)


def test_blanks_before_the_answer_to_a_change_are_waited_for() -> None:
    """Services send them while they put a large object together."""

    def talk(connection: socket.socket, _: int) -> None:
        read_request(connection)
        connection.sendall(_OK + b"\r\n")
        for _ in range(30):
            time.sleep(0.02)
            connection.sendall(b" ")

    with RawServer(talk) as server:
        assert read(server.url, "POST", timeouts=STALL) == (200, b" " * 30)


def test_an_index_without_end_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or not at all, if it says how large it is."""
    monkeypatch.setattr("streaming_core._index._load.MAX_INDEX_BYTES", 1 << 20)
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in itertools.count():
            sent += 1 << 16
            yield bytes(1 << 16)

    with (
        WebServer(answer=lambda _: Said(200, pieces())) as server,
        pytest.raises(ObjectTooLargeError, match="more than the 1048576"),
    ):
        load_index(server.url)
    assert sent < 64 << 20
    said = _OK + b"Content-Length: 5000000000000\r\n\r\n"
    with RawServer(saying(said)) as raw, pytest.raises(ObjectTooLargeError, match="5000000000000"):
        load_index(raw.url)
