"""Files on SFTP servers: reading, writing, and what killed writers leave."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.servers.sftp import (
    PASSWORD,
    SftpServer,
    options_for,
    store_at,
    temp_names,
)

from streaming_core._store import version_of
from streaming_core.errors import (
    AlreadyExistsError,
    StoreError,
    UnsafeKeyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streaming_core._store import Store

_LARGE = os.urandom(9 << 20)
_WINDOW_BYTES = 4 << 20


def test_a_server_may_send_less_than_was_asked_for(server: SftpServer) -> None:
    """The rest is asked for again."""
    store = store_at(server)
    data = _LARGE[:300_001]
    store.put("a", [data])
    server.most_read_bytes = 1000
    assert store.get("a") == data
    assert store.get_ranges("a", [(7, 70_007), (-5, None)]) == [data[7:70_007], data[-5:]]


def test_reading_ahead_is_bounded(server: SftpServer) -> None:
    """A reader that stops makes the server stop, some mebibytes later."""
    store = store_at(server)
    store.put("large", [_LARGE])
    store.put("small", [b"body"])
    furthest = 0

    async def note(_: str, offset: int) -> None:
        nonlocal furthest
        furthest = max(furthest, offset)

    server.hook = note
    with closing(store.stream("large")) as pieces:
        next(pieces)
        # Meanwhile, the server has had the time to read all of it.
        for _ in range(50):
            assert store.get("small") == b"body"
        assert 1 << 20 < furthest <= (1 << 20) + _WINDOW_BYTES
        for _ in pieces:
            pass
    assert furthest > 8 << 20


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (partial(os.utime, times=(1, 1)), "changed while it was read"),
        (partial(os.truncate, length=100), "ended at byte"),
    ],
    ids=["written", "cut"],
)
def test_a_file_that_is_written_to_while_it_is_read_is_an_error(
    server: SftpServer, spoil: Callable[[Path], None], reason: str
) -> None:
    """Others may write into a file instead of replacing it: no mixture passes for an object."""
    store = store_at(server)
    store.put("a", [_LARGE])

    def read() -> None:
        with closing(store.stream("a")) as pieces:
            for _ in pieces:
                spoil(server.folder / "set" / "a")

    with pytest.raises(StoreError, match=reason):
        read()


def test_a_stream_names_its_version(server: SftpServer) -> None:
    """The etag is known with the first piece, and is that of `head`."""
    store = store_at(server)
    store.put("a", [b"body"])
    with closing(store.stream("a")) as pieces:
        next(pieces)
        assert version_of(pieces) == store.head("a").etag != ""


@pytest.mark.process
@pytest.mark.parametrize("lacks", [set(), {"hardlink"}])
def test_creating_has_one_winner_without_hard_links_as_well(
    server: SftpServer, lacks: set[str]
) -> None:
    """Of some processes that create one object, each time one wins, and nothing else is left."""
    server.lacks = lacks
    script = (
        "import sys\n"
        "from streaming_core._store import open_store\n"
        "from streaming_core.errors import AlreadyExistsError\n"
        "url, hosts, name = sys.argv[1:]\n"
        f"store = open_store(url, {{'password': {PASSWORD!r}, 'known_hosts_file': hosts}})\n"
        "list(store.list())\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "for number in range(20):\n"
        "    try:\n"
        "        store.put(f'{number}', [name.encode()], if_absent=True)\n"
        "        print(number, flush=True)\n"
        "    except AlreadyExistsError:\n"
        "        pass\n"
    )
    store = store_at(server)
    hosts = options_for(server)["known_hosts_file"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, store.url, hosts, f"writer-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        won = [process.communicate(timeout=120)[0].split() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(20))
    for writer, numbers in enumerate(won):
        assert {store.get(number) for number in numbers} <= {f"writer-{writer}".encode()}
    assert list(temp_names(server.folder)) == []


def test_a_server_that_cannot_replace_keeps_the_old_file(server: SftpServer) -> None:
    """The put is an error, and neither changes the file nor leaves another."""
    store = store_at(server)
    store.put("a", [b"old"])
    server.lacks = {"posix-rename"}
    with pytest.raises(StoreError, match="posix-rename"):
        store.put("a", [b"new"])
    assert store.get("a") == b"old"
    assert [info.key for info in store.list()] == ["a"]
    assert list(temp_names(server.folder)) == []


def test_a_server_that_sets_no_times_is_written_to_as_well(server: SftpServer) -> None:
    """Without it, two versions of one second may share an etag, but not their bytes."""
    server.lacks = {"fsetstat"}
    store = store_at(server)
    for body in (b"first", b"other"):
        assert store.put("a", [body]) == store.head("a")
        assert store.get("a") == body


def test_creating_again_is_refused_before_the_bytes_are_sent(server: SftpServer) -> None:
    """An object that is there is not sent in vain."""
    store = store_at(server)
    store.put("a", [b"body"])
    written: list[int] = []

    async def note(_: str, offset: int) -> None:
        written.append(offset)

    server.hook = note
    with pytest.raises(AlreadyExistsError):
        store.put("a", [_LARGE], if_absent=True)
    assert written == []


@pytest.mark.kill
@pytest.mark.parametrize("then", ["list", "put"])
def test_a_killed_writer_leaves_nothing_that_stays(server: SftpServer, then: str) -> None:
    """Killed in the middle of a put, it leaves a hidden file, which the next writer removes."""
    script = (
        "import sys\n"
        "from streaming_core._store import open_store\n"
        "url, hosts = sys.argv[1:]\n"
        f"store = open_store(url, {{'password': {PASSWORD!r}, 'known_hosts_file': hosts}})\n"
        "store.put('part/a', [bytes(9 << 20)])\n"
    )
    store = store_at(server)
    half, killed = threading.Event(), threading.Event()

    async def stop(_: str, offset: int) -> None:
        if offset >= 4 << 20:
            half.set()
            await asyncio.to_thread(killed.wait)

    server.hook = stop
    process = subprocess.Popen(
        [sys.executable, "-c", script, store.url, options_for(server)["known_hosts_file"]]
    )
    try:
        assert half.wait(60)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        killed.set()
    server.hook = None
    (left,) = temp_names(server.folder)
    assert not (server.folder / "set" / "part" / "a").exists()
    with pytest.raises(UnsafeKeyError):
        store.get(f"part/{left}")
    if then == "list":
        assert list(store.list()) == []
    else:
        store.put("part/b", [b"body"])
    assert list(temp_names(server.folder)) == []


def test_a_living_writers_file_stays(server: SftpServer) -> None:
    """What somebody else is writing is neither listed nor removed, unless it is a day old."""
    folder = server.folder / "set"
    folder.mkdir()
    mine = folder / f".a.{os.getpid()}-{'0' * 20}.tmp"
    elsewhere = folder / ".b.1-0123456789abcdef0123.tmp"
    old = folder / ".c.1-0123456789abcdef0123.tmp"
    for path in (mine, elsewhere, old):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    assert list(store_at(server).list()) == []
    assert sorted(temp_names(server.folder)) == [mine.name, elsewhere.name]


def test_lists_what_is_a_file_only(server: SftpServer, tmp_path: Path) -> None:
    """Links to files are listed and read; links to folders or nowhere, and bad names, are not."""
    folder = server.folder / "set"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"body")
    (folder / "link").symlink_to("a")
    (folder / "nowhere").symlink_to("absent")
    (folder / "loop").symlink_to("sub")
    (folder / "sub" / "b").write_bytes(b"more")
    (folder / "line\nbreak").write_bytes(b"bad")
    (folder / os.fsdecode(b"bytes-\xff")).write_bytes(b"bad")
    os.mkfifo(tmp_path / "files" / "set" / "pipe")
    store = store_at(server)
    assert [info.key for info in store.list()] == ["a", "link", "sub/b"]
    assert store.get("link") == b"body"
    assert store.head("link").size == 4


def test_threads_wait_at_the_door(server: SftpServer) -> None:
    """However many threads begin at once, no more than a few log in at the same time."""
    store = store_at(server)
    store.put("a", [b"body"])
    got: list[bytes] = []
    threads = [threading.Thread(target=partial(_append, got, store)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == [b"body"] * 16
    assert server.logins <= 17


def _append(got: list[bytes], store: Store) -> None:
    got.append(store.get("a"))
