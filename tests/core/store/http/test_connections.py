"""Whom requests go through and whom they trust, and that nothing of them is left open."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.core.store.http.asking import OK, read, request
from tests.servers.processes import free_port
from tests.servers.raw import RawServer, read_request, saying
from tests.servers.tls import make_certificates
from tests.servers.web import WebServer

from streaming_core._store import is_final, open_store
from streaming_core._store._http._connections import kept
from streaming_core._store._http._wire import (
    FAILURES,
    WireError,
    exchange,
)
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[WebServer]:
    """Return a server with one file."""
    with WebServer() as running:
        running.files.put("a", b"body" * 1000)
        yield running


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len([*folder.iterdir()]) if folder.exists() else 0


# --- proxies and certificates ---------------------------------------------------------------------


def test_the_environments_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the whole URL, and its own password; `no_proxy` names who is reached without it."""
    heard: list[bytes] = []

    def talk(connection: socket.socket, _: int) -> None:
        heard.append(read_request(connection))
        connection.sendall(OK)

    with RawServer(talk) as proxy, WebServer() as server:
        monkeypatch.setenv("http_proxy", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert read("http://far.example:8080/x?y=1") == (200, b"body")
        assert heard[0].startswith(b"GET http://far.example:8080/x?y=1 HTTP/1.1\r\n")
        assert b"\r\nHost: far.example:8080\r\n" in heard[0]
        assert b"\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n" in heard[0]
        assert read(f"{server.url}/x")[0] == 404
        monkeypatch.delenv("no_proxy")
        assert read(f"{server.url}/x") == (200, b"body")


def test_tls_goes_through_the_proxy_in_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The proxy sees whom to connect to, and nothing of the request."""
    certificates = make_certificates(tmp_path)
    heard: list[bytes] = []
    with WebServer(tls=certificates.server_context()) as server:
        port = int(server.url.rpartition(":")[2])

        def talk(connection: socket.socket, _: int) -> None:
            heard.append(read_request(connection))
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            with socket.create_connection(("127.0.0.1", port)) as onward:
                threading.Thread(target=_copy, args=(onward, connection), daemon=True).start()
                _copy(connection, onward)

        with RawServer(talk) as proxy:
            monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
            server.files.put("secret", b"body")
            url = f"https://localhost:{port}/secret"
            assert read(url, ca_file=str(certificates.ca_file)) == (200, b"body")
            kept.forget()
    assert heard[0].startswith(f"CONNECT localhost:{port} HTTP/1.".encode())
    assert b"secret" not in b"".join(heard)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.mark.parametrize("proxy", ["socks5://user:secret@127.0.0.1:1", "http://:secret@"])
def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """Going around it unasked would be wrong; its password is not shown."""
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(WireError, match="environment names a proxy of the kind") as caught:
        read("http://far.example/")
    assert "secret" not in str(caught.value)


def test_only_trusted_certificates_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server nobody vouches for is refused; an option or the environment may name who does."""
    certificates = make_certificates(tmp_path)
    with WebServer(tls=certificates.server_context()) as server:
        server.files.put("a", b"body")
        url = f"{server.url}/a"
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            read(url)
        assert read(url, ca_file=str(certificates.ca_file)) == (200, b"body")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.ca_file))
        assert read(url) == (200, b"body")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "absent.pem"))
        with pytest.raises(WireError, match=r"absent\.pem"):
            read(url)


def test_who_is_not_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With host and port, which no URL of an object store has, and the proxy, if there is one."""
    port = free_port()
    with pytest.raises(WireError, match=rf"no connection to 127\.0\.0\.1:{port}: ") as caught:
        read(f"http://127.0.0.1:{port}/x")
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    with pytest.raises(WireError, match=r"no connection to no\.such\.invalid:80: .*host's name"):
        read("http://no.such.invalid/x")
    for variable, scheme, there in (
        ("http_proxy", "http", "far.example:80"),
        ("HTTPS_PROXY", "https", "far.example:443"),
    ):
        monkeypatch.setenv(variable, f"http://user:secret@127.0.0.1:{port}")
        said = f"no connection to {there} through the proxy 127.0.0.1:{port}, which {variable} "
        with pytest.raises(WireError, match=said) as caught:
            read(f"{scheme}://far.example/x")
        assert "no_proxy" in str(caught.value)
        assert "secret" not in str(caught.value)


def test_a_port_without_tls_is_said_to_be_none(server: WebServer) -> None:
    """The address is right, the scheme is not."""
    address = server.url.partition("://")[2]
    with pytest.raises(WireError, match=f"no TLS with {address}: .*speaks https"):
        read(f"https://{address}/a")


@pytest.mark.parametrize("ca_file", [None, "absent.pem", "other/ca.pem"])
def test_trust_is_nothing_that_comes_back(tmp_path: Path, ca_file: str | None) -> None:
    """The error says what to name, and no store is asked again for it."""
    certificates = make_certificates(tmp_path)
    (tmp_path / "other").mkdir()
    make_certificates(tmp_path / "other")
    given = {} if ca_file is None else {"ca_file": str(tmp_path / ca_file)}
    with WebServer(tls=certificates.server_context()) as server:
        store = open_store(server.url, given)
        for act in (lambda: store.get("a"), lambda: store.put("a", [b""])):
            with pytest.raises(StoreError, match="ca_file") as caught:
                act()
            assert is_final(caught.value)
            assert store.url in str(caught.value)
    if ca_file != "absent.pem":
        assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)


# --- nothing is left ------------------------------------------------------------------------------


def test_descriptors_and_connections_are_given_back(server: WebServer) -> None:
    """Errors of all kinds, bodies left in the middle and refused connections leave nothing open."""
    closed = f"http://127.0.0.1:{free_port()}/"
    torn = b"HTTP/1.0 200 OK\r\n\r\nhalf"
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nshort"
    twice = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\nshort"
    with (
        RawServer(saying(torn)) as torn_server,
        RawServer(saying(short)) as short_server,
        RawServer(saying(twice)) as twice_server,
    ):

        def trouble() -> None:
            exchange(request(f"{server.url}/a")).close()  # its body is left
            exchange(request(torn_server.url)).close()
            for url in (closed, short_server.url, twice_server.url):
                with pytest.raises(FAILURES):
                    read(url)
            read(f"{server.url}/a")

        trouble()
        _settle(server)
        before = _descriptors()
        for _ in range(10):
            trouble()
        _settle(server)
        assert _descriptors() <= before + 2  # of the servers' threads that are about to end


def _settle(server: WebServer) -> None:
    """Wait until the servers of this process have closed what its client closed."""
    deadline = time.monotonic() + 60
    while server.hang_up() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    kept.forget()


def test_no_more_connections_are_kept_than_make_sense() -> None:
    """Of many that are given back at once, the oldest are closed."""
    with WebServer() as server:
        server.files.put("a", b"body")
        answers = [exchange(request(f"{server.url}/a")) for _ in range(50)]
        for answer in answers:
            answer.read(10)
            answer.close()
        assert sum(len(idle) for idle in kept._idle.values()) == 32
