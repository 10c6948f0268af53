"""SFTP over connections that break, fall silent, or are a parent's."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from tests.servers.sftp import (
    SftpServer,
    store_at,
)

from streaming_core._store import RequestPolicy
from streaming_core.errors import (
    AccessDeniedError,
    StoreError,
)

_LARGE = os.urandom(9 << 20)


def test_one_connection_serves_one_request_after_another(server: SftpServer) -> None:
    """Requests, children, errors and streams that were read use the connection that is there."""
    store = store_at(server)
    store.put("part/a", [b"body"])
    for _ in range(3):
        assert b"".join(map(bytes, store.stream("part/a"))) == store.child("part").get("a")
        with pytest.raises(FileNotFoundError):
            store.get("absent")
    assert [info.key for info in store.list()] == ["part/a"]
    assert server.logins == 1


def test_a_dead_connection_is_replaced(server: SftpServer) -> None:
    """A server that was started anew is used without an error in between."""
    store = store_at(server)
    store.put("a", [b"body"])
    server.close()
    with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
        store.get("a")
    server.open()
    assert store.get("a") == b"body"


def test_a_connection_that_was_idle_is_asked_first(
    server: SftpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers is used again, one that does not is replaced, without an error."""
    monkeypatch.setattr("streaming_core._store._sftp._server._DOUBTFUL_SECONDS", 0.0)
    monkeypatch.setattr("streaming_core._store._sftp._connect._PROBE_SECONDS", 0.2)
    store = store_at(server)
    store.put("a", [b"body"])
    assert store.get("a") == b"body"
    assert server.logins == 1
    server.is_deaf = True
    assert store.get("a") == b"body"
    assert server.logins == 2


def test_a_line_that_breaks_is_an_error_and_the_next_try_succeeds(server: SftpServer) -> None:
    """Wherever it breaks, reading and writing raise `StoreError`, and a retry gets all bytes."""
    store = store_at(server)
    store.put("a", [_LARGE])
    left = 3

    async def cut(_: str, offset: int) -> None:
        nonlocal left
        if offset >= 3 << 20 and left:
            left -= 1
            server.connections[-1].abort()

    server.hook = cut
    with pytest.raises(StoreError, match="get 'a'"):
        store.get("a")
    assert RequestPolicy(5, first_pause=0.01).call(lambda: store.get("a")) == _LARGE
    left = 1
    assert RequestPolicy(5, first_pause=0.01).call(lambda: store.put("b", [_LARGE])).size == len(
        _LARGE
    )
    assert store.get("b") == _LARGE
    assert [info.key for info in store.list()] == ["a", "b"]


def test_a_silent_server_is_not_waited_for(server: SftpServer) -> None:
    """Nothing for as long as allowed is an error that says so."""
    store = store_at(server)
    store.put("a", [_LARGE])

    async def sleep(*_: object) -> None:
        await asyncio.sleep(600)

    server.hook = sleep
    began = time.monotonic()
    timed: Any = store
    with pytest.raises(StoreError, match="went silent"):
        timed.with_timeout(0.3).get("a")
    assert time.monotonic() - began < 60


@pytest.mark.process
def test_a_fork_does_not_touch_the_parents_connection(server: SftpServer) -> None:
    """A child that reads, drops what it inherited and ends in order leaves the stream whole."""
    store = store_at(server)
    store.put("a", [_LARGE])
    with closing(store.stream("a")) as pieces:
        got = bytes(next(pieces))
        child = os.fork()
        if not child:
            code = 1
            try:
                pieces.close()
                code = 0 if store.get("a") == _LARGE else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        got += b"".join(map(bytes, pieces))
    assert got == _LARGE
    assert store.get("a") == _LARGE
    assert server.logins == 2


@pytest.mark.slow
def test_nothing_is_left_open(server: SftpServer) -> None:
    """Refused logins, broken and left streams leave no file descriptor and no thread behind."""

    def act() -> None:
        store = store_at(server)
        store.put("a", [_LARGE])
        for _ in range(3):
            with closing(store.stream("a")) as pieces:
                next(pieces)
            with pytest.raises(AccessDeniedError):
                store_at(server, password="wrong").get("a")  # noqa: S106 - the wrong one

    def used() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208

    act()
    deadline = time.monotonic() + 60
    before = used()
    act()
    act()
    while used() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    after = used()
    assert (after[0] <= before[0], after[1] <= before[1]) == (True, True)
