"""The servers and faults of tests do what they say: other tests believe them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

import pytest
from tests.servers.faults import Cut, Flip, Latency, Reset, Rule, Script, Stall, Status
from tests.servers.processes import answers, needs, serving
from tests.servers.proxy import Proxy
from tests.servers.raw import RawServer, read_request, saying
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE_SECONDS = 60


def _get(url: str, path: str = "/a", **headers: str) -> tuple[int, bytes]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def _is_done(rule: Rule) -> bool:
    return rule.num_done == 1


# --- the web server -------------------------------------------------------------------------------


def test_a_folder_is_served_and_not_left(tmp_path: Path) -> None:
    """Files are those of the folder, at once, and no name leads out of it."""
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "files"
    folder.mkdir()
    with WebServer(folder) as server:
        (folder / "a").write_bytes(b"0123456789")
        assert _get(server.url) == (200, b"0123456789")
        assert _get(server.url, Range="bytes=-3") == (206, b"789")
        assert _get(server.url, Range="bytes=8-") == (206, b"89")
        assert _get(server.url, Range="bytes=10-")[0] == 416
        for path in ("/../secret", "/%2e%2e/secret", "//../secret", "/"):
            assert _get(server.url, path)[0] == 404
        assert [entry.range for entry in server.log[:3]] == ["", "bytes=-3", "bytes=8-"]


def test_an_upload_may_ask_before_it_sends() -> None:
    """`Expect: 100-continue` is answered at once, directly and through the proxy."""
    with WebServer() as server, Proxy(server.url) as proxy:
        for url in (server.url, proxy.url):
            host, _, port = url.removeprefix("http://").rpartition(":")
            with socket.create_connection(
                (host, int(port)), timeout=DEADLINE_SECONDS
            ) as connection:
                connection.sendall(
                    b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
                )
                assert connection.recv(100).startswith(b"HTTP/1.1 100")
                connection.sendall(b"body")
                assert connection.recv(100).startswith(b"HTTP/1.1 201")
        assert _get(server.url) == (200, b"body")


# --- the proxy ------------------------------------------------------------------------------------


def test_without_faults_all_passes_unchanged_and_is_counted() -> None:
    """Bodies with a length, in chunks and until the end come through, and the proxy counts them."""
    with WebServer() as server, Proxy(server.url) as proxy:
        server.files.put("a", b"x" * 100_000)
        assert _get(proxy.url, Range="bytes=5-9") == (206, b"xxxxx")
        assert _get(proxy.url) == (200, b"x" * 100_000)
        server.answer = lambda _: Said(200, [b"in ", b"chunks"])
        assert _get(proxy.url) == (200, b"in chunks")
        assert (proxy.num_requests, proxy.num_bytes) == (3, 100_014)
        assert (proxy.count("GET", "/a"), proxy.log[0].range) == (3, "bytes=5-9")
    with (
        RawServer(saying(b"HTTP/1.0 200 OK\r\n\r\nto the end")) as old,
        Proxy(old.url) as proxy,
    ):
        assert _get(proxy.url) == (200, b"to the end")


def test_a_cut_is_an_end_and_a_reset_is_none() -> None:
    """The first looks like the other side's last word, the second like its death."""
    with WebServer() as server, Proxy(server.url) as proxy:
        server.files.put("a", b"x" * 1000)
        proxy.hurt(Cut(10), first=1)
        with pytest.raises(HTTPException) as caught:
            _get(proxy.url)
        assert getattr(caught.value, "partial", b"") == b"x" * 10
        proxy.hurt(Reset(), first=1)
        with pytest.raises(ConnectionResetError):
            _get(proxy.url)
        assert _get(proxy.url)[0] == 200


def test_rules_say_to_which_requests_a_fault_happens() -> None:
    """By number, by turn, by method, by path and by chance, the last the same in every run."""

    def hits(rule: Rule, path: str = "/a", method: str = "GET") -> list[int]:
        return [number for number in range(10) if rule.hits(method, path)]

    fault = Status(500)
    assert hits(Rule(fault)) == list(range(10))
    assert hits(Rule(fault, first=2)) == [0, 1]
    assert hits(Rule(fault, first=2, skip=3)) == [3, 4]
    assert hits(Rule(fault, every=4)) == [3, 7]
    assert hits(Rule(fault, methods=frozenset({"PUT"}))) == []
    assert hits(Rule(fault, path="*.mds")) == []
    assert hits(Rule(fault, path="*/ü.mds"), path="/x/%C3%BC.mds?y") == list(range(10))
    by_chance = hits(Rule(fault, chance=0.4, seed=1))
    assert 0 < len(by_chance) < 10
    assert by_chance == hits(Rule(fault, chance=0.4, seed=1))
    script = Script()
    script.add(Rule(fault, first=1))
    script.add(Rule(Latency(1.0)))
    assert [len(script.faults("GET", "/a")) for _ in range(2)] == [2, 1]


def test_the_same_faults_happen_to_any_protocol() -> None:
    """Before a server that does not speak HTTP, what it sends is cut, flipped and held back."""

    def talk(connection: socket.socket, _: int) -> None:
        connection.sendall(b"hello, and ")
        connection.sendall(connection.recv(100))

    def ask(proxy: Proxy, seconds: float = DEADLINE_SECONDS) -> bytes:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=seconds) as connection:
            connection.sendall(b"goodbye")
            got = b""
            while piece := connection.recv(100):
                got += piece
            return got

    with RawServer(talk) as server, Proxy(server.url, raw=True) as proxy:
        assert ask(proxy) == b"hello, and goodbye"
        proxy.hurt(Flip(0), first=1)
        assert ask(proxy) == b"iello, and goodbye"
        proxy.hurt(Cut(5), first=1)
        assert ask(proxy) == b"hello"
        proxy.hurt(Reset(), first=1)
        with pytest.raises(ConnectionResetError):
            ask(proxy)
        for fault in (Stall(), Stall(5)):
            rule = proxy.hurt(fault, first=1)
            with pytest.raises(TimeoutError):
                ask(proxy, 0.5)
            _wait_until(partial(_is_done, rule))
        assert proxy.num_requests == 6


def test_a_proxy_ends_while_requests_hang_in_it() -> None:
    """Leaving the block ends what stalls, on both sides, and soon."""
    asked = threading.Event()

    def talk(connection: socket.socket, _: int) -> None:
        read_request(connection)
        asked.set()
        read_request(connection)  # until the proxy lets go

    with RawServer(talk) as server:
        with Proxy(server.url) as proxy:
            proxy.hurt(Stall())
            connection = socket.create_connection(
                ("127.0.0.1", proxy.port), timeout=DEADLINE_SECONDS
            )
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert asked.wait(DEADLINE_SECONDS)
            began = time.monotonic()
        with connection, contextlib.suppress(ConnectionResetError):
            assert connection.recv(10) == b""
        assert time.monotonic() - began < DEADLINE_SECONDS


# --- processes ------------------------------------------------------------------------------------


def _command(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]


@pytest.mark.process
def test_a_process_answers_while_the_block_runs_and_not_after(tmp_path: Path) -> None:
    """It is ready when the block begins and gone when it has ended, also by an error."""
    (tmp_path / "a").write_bytes(b"body")
    running = serving(_command, ready=answers("/a"), cwd=tmp_path)
    served = running.__enter__()
    assert _get(served.url) == (200, b"body")
    assert not running.__exit__(KeyError, KeyError("x"), None)
    assert served.process.returncode is not None
    with pytest.raises(ConnectionRefusedError):
        _get(served.url)


@pytest.mark.process
def test_a_process_that_cannot_start_says_why() -> None:
    """What it printed last is in the error, which comes at once."""
    began = time.monotonic()
    with (
        pytest.raises(RuntimeError, match=r"exited with 3; it said: no such luck"),
        serving(lambda _: [sys.executable, "-c", "print('no such luck'); raise SystemExit(3)"]),
    ):
        pytest.fail("it started")
    assert time.monotonic() - began < DEADLINE_SECONDS


@pytest.mark.process
def test_a_process_that_hangs_is_given_up_and_killed() -> None:
    """One that never answers, and ignores that it is asked to end, does not outlive its time."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    with (
        pytest.raises(RuntimeError, match="was not ready after 0 s"),
        serving(lambda _: [sys.executable, "-c", deaf], within=0.3),
    ):
        pytest.fail("it started")


@pytest.mark.kill
@pytest.mark.skipif(not os.path.exists("/usr/bin/setpriv"), reason="setpriv: not on this machine")  # noqa: PTH110
def test_a_server_dies_with_a_killed_test_run(tmp_path: Path) -> None:
    """Also a run that could not clean up leaves no server."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\n"
        "from tests.servers.processes import serving\n"
        "command = lambda port: [sys.executable, '-m', 'http.server', str(port)]\n"
        "with serving(command) as served:\n"
        "    print(served.port, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(os.getcwd())},  # noqa: PTH109
    ) as run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert _get(f"http://127.0.0.1:{port}", "/")[0] == 200
        run.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS).close()
        except OSError:
            return
    pytest.fail("the server outlived its test run")


def test_what_is_not_installed_is_a_skip_here_and_a_failure_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing server is told with its remedy, and cannot go unnoticed where it must be there."""
    needs("python", sys.executable, "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="swift is not installed here; buy one"):
        needs("swift", None, "buy one")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="swift is not installed here; buy one"):
        needs("swift", None, "buy one")
