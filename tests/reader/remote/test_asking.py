"""How many requests opening costs: one index for a node, one request for what has not changed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.reader.remote.serving import dataset, read, run_processes, write
from tests.servers.faults import Html, Stall
from tests.servers.proxy import Proxy
from tests.servers.web import Asked, Said, WebServer

from streaming_core import Stream, StreamingDataLoader, StreamingDataset
from streaming_core.errors import (
    IndexInvalidError,
    IndexMissingError,
    StoreError,
    StreamingError,
    StreamsError,
)
from streaming_reader._documents import Source

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_RECORD = ".streaming/source"
_READ = [("GET", "/checksums.xxh128"), ("GET", "/index.json")]
_COMPARED = [("HEAD", "/checksums.xxh128"), ("HEAD", "/index.json")]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small data set."""
    folder = tmp_path_factory.mktemp("remote")
    write(folder, 60)
    return folder


@pytest.fixture
def server(remote: Path) -> Generator[WebServer]:
    """Serve it."""
    with WebServer(remote) as found:
        yield found


def _asked(server: WebServer) -> list[tuple[str, str]]:
    return sorted((entry.method, entry.path) for entry in server.log)


def test_each_opening_is_two_requests(server: WebServer, tmp_path: Path) -> None:
    """Index and hashes, read twice where no etag proves them; then whether they are the same."""
    for requests in (_READ, _READ, _COMPARED, _COMPARED):
        server.log.clear()
        dataset(server.url, tmp_path)
        assert _asked(server) == requests


def test_without_hashes_the_first_and_the_last_shard_are_compared(tmp_path: Path) -> None:
    """Two requests more, where no index and no sums would change with the shards."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, 60)
    (remote / "checksums.xxh128").unlink()
    last = max(path.name for path in remote.glob("*.mds"))
    shards = [("HEAD", "/shard.00000.mds"), ("HEAD", f"/{last}")]
    with WebServer(remote) as server:
        for requests in (_READ, _READ, _COMPARED):
            server.log.clear()
            dataset(server.url, local)
            assert _asked(server) == sorted([*requests, *shards])


def test_index_and_hashes_come_side_by_side(server: WebServer, tmp_path: Path) -> None:
    """An opening takes one round trip: either request is on its way before the other ends."""
    both = threading.Barrier(2, timeout=100)

    def answer(asked: Asked) -> Said | None:
        if "index" in asked.path or "checksums" in asked.path:
            both.wait()
        return None

    server.answer = answer
    for _ in range(3):
        assert dataset(server.url, tmp_path).num_samples == 60


@pytest.mark.process
def test_ranks_of_a_node_ask_once(server: WebServer, tmp_path: Path) -> None:
    """Whether the folder is new or full, all open at once or one after the other; all read."""
    code = """
import time
from pathlib import Path
time.sleep(float(sys.argv[3]))
found = dataset(sys.argv[1], Path(sys.argv[2]))
print(found.num_samples, flush=True)
sys.stdin.readline()
"""
    for requests, apart in ((_READ, 0.0), (_READ, 0.2), (_COMPARED, 0.2)):
        server.log.clear()
        ranks = [[server.url, str(tmp_path), str(rank * apart)] for rank in range(4)]
        found = run_processes(code, ranks)
        assert found == [60] * 4
        assert _asked(server) == requests


@pytest.mark.process
def test_workers_ask_for_nothing(server: WebServer, tmp_path: Path) -> None:
    """Forked or started anew, they have what their rank has read."""
    found = dataset(server.url, tmp_path)
    before = sum("index" in entry.path for entry in server.log)
    for context in ("fork", "spawn"):
        loader = StreamingDataLoader(
            found, batch_size=8, num_workers=1, multiprocessing_context=context
        )
        ids = sorted(int(i) for batch in loader for i in batch["id"])
        assert ids == list(range(60))
    assert sum("index" in entry.path for entry in server.log) == before


@pytest.mark.process
def test_a_process_that_has_ended_spares_nobody_the_question(
    server: WebServer, tmp_path: Path
) -> None:
    """A program that ran a moment ago says nothing about the remote now."""
    code = (
        "import sys; from streaming_core import StreamingDataset as D;"
        "D(remote=sys.argv[1], local=sys.argv[2], batch_size=1)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, server.url, str(tmp_path)], check=True)
    server.log.clear()
    dataset(server.url, tmp_path)
    assert _asked(server) == _COMPARED


def test_what_is_fresh() -> None:
    """Asked by another live process within half a minute, and not in the future."""
    now = time.time()
    parent = os.getppid()
    source = Source("http://a", 1, "0", "etag", now, parent)
    assert source.is_fresh(now + 1)
    assert source.is_fresh(now + 29)
    assert not source.is_fresh(now + 31)
    assert not source.is_fresh(now - 1)
    assert not source._replace(by=os.getpid()).is_fresh(now + 1)
    assert not source._replace(by=2**22 + 1).is_fresh(now + 1)
    assert not Source("http://a", 1, "0", "etag").is_fresh(now)


def test_an_index_that_changed_is_read_again(tmp_path: Path) -> None:
    """By the next process at once, by one of the same job later; nothing old is mixed with it."""
    write(tmp_path / "remote", 30)
    with WebServer(tmp_path / "remote") as server:
        assert read(server.url, tmp_path / "local") == list(range(30))
        shutil.rmtree(tmp_path / "remote")
        write(tmp_path / "remote", 45, size=120)
        assert read(server.url, tmp_path / "local") == list(range(45))
        note = json.loads((tmp_path / "local" / _RECORD).read_text())
        assert note["by"] == os.getpid()
        assert note["etag"]


def test_a_server_without_versions_is_asked_for_the_index_itself(
    remote: Path, tmp_path: Path
) -> None:
    """Where nothing tells whether it changed, the index is read each time."""
    body = (remote / "index.json").read_bytes()

    def answer(asked: Asked) -> Said | None:
        return Said(200, body) if asked.path == "/index.json" else None

    with WebServer(remote, answer=answer) as server:
        dataset(server.url, tmp_path)
        server.log.clear()
        dataset(server.url, tmp_path)
        assert ("GET", "/index.json") in _asked(server)


# --- many streams ---------------------------------------------------------------------------------


def _streams(url: str, local: Path, count: int) -> list[Stream]:
    return [Stream(remote=f"{url}/{i}", local=str(local / str(i))) for i in range(count)]


class _Numbered:
    """Serves one data set under every number, and watches how much is asked at a time."""

    def __init__(self, folder: Path, together: int = 1) -> None:
        """Answer the first requests when so many have been made together."""
        self._together = together
        self._enough = threading.Event()
        self._files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self._guard = threading.Lock()
        self._now = 0
        self.most = 0
        self.broken: dict[str, Said] = {}

    def __call__(self, asked: Asked) -> Said:
        with self._guard:
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now >= self._together:
                self._enough.set()
        self._enough.wait(100)
        _, number, name = asked.path.split("/")
        body = self._files[name]
        with self._guard:
            self._now -= 1
        said = self.broken.get(number)
        if said is not None and name == "index.json":
            return said
        return Said(200, b"" if asked.method == "HEAD" else body, {"ETag": '"1"'}, len(body))


@pytest.mark.slow
def test_many_streams_open_side_by_side_within_bounds(remote: Path, tmp_path: Path) -> None:
    """Two requests each, a few dozen at a time, never hundreds."""
    answer = _Numbered(remote, together=8)
    with WebServer(answer=answer) as server:
        for method in ("GET", "GET", "HEAD"):
            server.log.clear()
            found = StreamingDataset(streams=_streams(server.url, tmp_path, 120), batch_size=1)
            assert found.num_samples == 7200
            assert len(server.log) == server.count(method) == 240
        assert 8 <= answer.most <= 32


def test_all_streams_that_are_broken_are_told(remote: Path, tmp_path: Path) -> None:
    """One error has each of them, in order; a single one is raised as it is."""
    answer = _Numbered(remote)
    answer.broken = {
        "3": Said(404),
        "5": Said(200, b"<!DOCTYPE html><p>Sign in</p>", {"ETag": '"2"'}),
        "17": Said(403, b"no"),
    }
    with WebServer(answer=answer) as server:
        with pytest.raises(StreamsError, match="3 of 20 streams cannot be opened:") as caught:
            StreamingDataset(streams=_streams(server.url, tmp_path, 20), batch_size=1)
        error = caught.value
        assert [type(each).__name__ for each in error.errors] == [
            "IndexMissingError",
            "IndexInvalidError",
            "AccessDeniedError",
        ]
        for told in ("/3/", "HTML or XML", "/17"):
            assert told in str(error)
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), len(again.errors)) == (str(error), 3)
        answer.broken = {"3": Said(404)}
        with pytest.raises(IndexMissingError):
            StreamingDataset(streams=_streams(server.url, tmp_path, 20), batch_size=1)
        answer.broken = {}
        streams = _streams(server.url, tmp_path, 20)
        assert StreamingDataset(streams=streams, batch_size=1).num_streams == 20


@pytest.mark.slow
def test_a_dead_server_is_not_asked_a_thousand_times(remote: Path, tmp_path: Path) -> None:
    """Streams that were not begun when one got no answer are left alone."""
    with WebServer(remote) as server, Proxy(server.url) as proxy:
        proxy.hurt(Stall())
        streams = _streams(proxy.url, tmp_path, 500)
        began = time.monotonic()
        with pytest.raises(StreamingError, match="were not tried"):
            StreamingDataset(streams=streams, batch_size=1, download_timeout=0.5, download_retry=1)
        assert time.monotonic() - began < 60
        assert proxy.num_requests < 200


# --- wrong indexes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Said(200, b"<!DOCTYPE html><p>Sign in</p>", {"ETag": '"x"'}), "looks like HTML"),
        (Said(200, b"", {"ETag": '"x"'}), "the document is empty"),
        (Said(200, b'{"shards": [', {"ETag": '"x"'}), "cut off"),
    ],
)
def test_an_index_that_is_none_says_what_came(
    server: WebServer, tmp_path: Path, said: Said, told: str
) -> None:
    """A page, nothing, half of it: the error names the URL and says what came; nothing stays."""
    server.answer = lambda asked: said if asked.path == "/index.json" else None
    with pytest.raises(IndexInvalidError, match=told) as caught:
        dataset(server.url, tmp_path)
    assert f"{server.url}/index.json" in str(caught.value)
    assert not (tmp_path / "index.json").exists()
    server.answer = None
    assert read(server.url, tmp_path) == list(range(60))


def test_a_page_for_an_index_of_a_filled_cache_is_an_error(
    server: WebServer, tmp_path: Path
) -> None:
    """The server says that it has another index: what it has is shown, not passed over."""
    assert read(server.url, tmp_path) == list(range(60))
    with Proxy(server.url) as proxy:
        proxy.hurt(Html(), path="*/index.json")
        with pytest.raises(StreamingError):
            read(proxy.url, tmp_path)
    assert read(server.url, tmp_path) == list(range(60))


def test_no_index_says_what_to_do(server: WebServer, tmp_path: Path) -> None:
    """A web server has no listing, so the error cannot tell what is there, but says so."""
    with pytest.raises(IndexMissingError, match="cannot be listed"):
        dataset(f"{server.url}/none", tmp_path)
    server.answer = lambda _: Said(403, b"")
    with pytest.raises(StoreError, match="credentials"):
        dataset(server.url, tmp_path / "b")
