"""A download may take as long as it takes, as long as it gets on; one that does not is an error."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.reader.cache.making import LoggedStore, expected, ids, make
from tests.reader.remote.serving import dataset, read, run_processes, write
from tests.servers.faults import Cut, Slow, Stall
from tests.servers.proxy import Proxy
from tests.servers.web import WebServer

from streaming_core._store import ProgressDeadline, last_progress
from streaming_core.errors import IndexMissingError, ShardFetchError, StoreError, WaitTimeoutError
from streaming_core.testing import LatencyStore
from streaming_reader._cache import CacheGroup
from streaming_reader._fetch import Fetcher

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.servers.faults import Fault

    from streaming_core._format import Shard

_BIG = 300 << 10
_SECONDS = 3.0
"""A timeout that no good line comes near to on a busy machine."""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set whose first shard has about 300 KiB, and the second too."""
    folder = tmp_path_factory.mktemp("remote")
    write(folder, 6, size=100 << 10, shard=_BIG + 4096)
    return folder


@pytest.fixture
def proxy(remote: Path) -> Generator[Proxy]:
    """Serve it through a proxy."""
    with WebServer(remote) as server, Proxy(server.url) as found:
        yield found


@pytest.mark.slow
def test_a_slow_line_is_no_error(proxy: Proxy, tmp_path: Path) -> None:
    """A shard that takes several times the timeout comes at the first try, by any access."""
    proxy.hurt(Slow(40 << 10), path="*.mds")
    settings: dict[str, Any] = {"download_timeout": _SECONDS, "download_retry": 0}
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        epoch = pool.submit(read, proxy.url, tmp_path / "epoch", **settings)
        single = pool.submit(lambda: dataset(proxy.url, tmp_path / "single", **settings)[4]["id"])
        assert epoch.result() == list(range(6))
        assert single.result() == 4
    assert time.monotonic() - began > 2 * _SECONDS
    assert proxy.count(part=".mds") == 3


@pytest.mark.process
def test_others_wait_for_a_slow_line_too(proxy: Proxy, tmp_path: Path) -> None:
    """Processes that want the shard another one fetches wait as long as its bytes come."""
    proxy.hurt(Slow(40 << 10), path="*.mds")
    code = f"""
from pathlib import Path
settings = dict(download_timeout={_SECONDS}, download_retry=0)
print(json.dumps(read(sys.argv[1], Path(sys.argv[2]), **settings)))
"""
    found = run_processes(code, [[proxy.url, str(tmp_path)]] * 3)
    assert found == [list(range(6))] * 3
    assert proxy.count(part=".mds") == 2


@pytest.mark.slow
def test_a_line_that_stalls_is_an_error_in_time(remote: Path, tmp_path: Path) -> None:
    """Whether nothing comes at all, no more, or too little: after so many tries of a timeout each.

    All at once, as most of it is waiting.
    """
    name = r"shard\.00000\.mds"
    cases: list[tuple[Fault, str, type[StoreError], str]] = [
        (Stall(), "*.mds", ShardFetchError, name),
        (Stall(0), "*.mds", ShardFetchError, name),
        (Stall(100 << 10), "*.mds", ShardFetchError, name),
        (Slow(60), "*.mds", ShardFetchError, "download timeout"),
        (Stall(10), "*/index.json", StoreError, r"index\.json"),
    ]

    def check(number: int, url: str) -> None:
        fault, path, kind, said = cases[number]
        local = tmp_path / str(number)
        with Proxy(url) as proxy:
            proxy.hurt(fault, path=path)
            began = time.monotonic()
            with pytest.raises(kind, match=said) as caught:
                read(proxy.url, local, download_timeout=_SECONDS, download_retry=1)
            assert _SECONDS <= time.monotonic() - began < 60
            if isinstance(caught.value, ShardFetchError):
                assert time.monotonic() - began >= 2 * _SECONDS
                assert caught.value.attempts == 2
            proxy.heal()
            assert read(proxy.url, local) == list(range(6))

    with WebServer(remote) as server, ThreadPoolExecutor() as pool:
        list(pool.map(lambda number: check(number, server.url), range(len(cases))))


@pytest.mark.slow
@pytest.mark.parametrize("sums", [True, False])
def test_a_stall_is_got_over(tmp_path: Path, *, sums: bool) -> None:
    """The next try goes on where the stalled one stopped; the version tells if no hash does."""
    write(tmp_path / "remote", 3, size=1 << 20, shard=4 << 20)
    if not sums:
        (tmp_path / "remote/checksums.xxh128").unlink()
    with WebServer(tmp_path / "remote") as server, Proxy(server.url) as proxy:
        proxy.hurt(Stall(2_500_000), path="*.mds", methods=["GET"], first=1)
        assert read(proxy.url, tmp_path / "local", download_timeout=_SECONDS) == list(range(3))
        got = [entry for entry in proxy.log if entry.method == "GET"]
        ranges = [entry.range for entry in got if ".mds" in entry.target]
        assert ranges[0] == ""
        assert ranges[1].startswith("bytes=2")
        assert len(ranges) == 2


@pytest.mark.slow
def test_a_line_that_breaks_often_gets_there(tmp_path: Path) -> None:
    """Each try that brings a good part of the shard is followed by as many as at first."""
    write(tmp_path / "remote", 6, size=5 << 20, shard=40 << 20)
    with WebServer(tmp_path / "remote") as server, Proxy(server.url) as proxy:
        proxy.hurt(Cut(5 << 20), path="*.mds")
        assert read(proxy.url, tmp_path / "local", download_retry=1) == list(range(6))
        assert proxy.count(part=".mds") <= 7


def test_a_server_that_is_gone_is_an_error_for_a_new_folder_only(
    proxy: Proxy, tmp_path: Path
) -> None:
    """Nobody answers: a filled cache goes on, an empty one says so."""
    assert read(proxy.url, tmp_path / "full") == list(range(6))
    with proxy.refusing():
        assert read(proxy.url, tmp_path / "full", download_retry=0) == list(range(6))
        with pytest.raises(StoreError, match=r"index\.json"):
            read(proxy.url, tmp_path / "empty", download_retry=1)
    with pytest.raises(IndexMissingError):
        read(f"{proxy.url}/none", tmp_path / "none")


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_store_that_never_answers_does_not_hold_its_readers(tmp_path: Path) -> None:
    """Even one that cannot be told how long to wait: the reader gives up by itself."""
    made = make(tmp_path / "remote")
    store = LatencyStore(made.store, 3600.0)
    cache = made.cache(tmp_path / "local", remote=store, timeout=0.3, tries=2)

    class _One:
        def is_local(self, shard: int) -> bool:
            return cache.is_near(shard)

        def open(self, shard: int) -> Shard:
            return cache.open(shard)

        def warm(self, shard: Shard) -> None:
            pass

        def weight(self, _: int) -> int:
            return 1

        def last_progress(self) -> float:
            return last_progress()

        def describe(self, shard: int) -> str:
            return f"shard {shard}"

    fetcher = Fetcher(_One(), timeout=cache.stall_seconds + 0.3)
    began = time.monotonic()
    fetcher.want([0])
    with pytest.raises(WaitTimeoutError, match="shard 0"):
        fetcher.get(0)
    assert cache.stall_seconds <= time.monotonic() - began < cache.stall_seconds + 60
    store.wake()
    fetcher.close()


@pytest.mark.slow
def test_room_below_a_limit_is_waited_for_while_others_get_on(tmp_path: Path) -> None:
    """The limit lets one shard in at a time; the other waits for longer than its timeout."""
    made = make(tmp_path / "remote")
    slow = LoggedStore(made.folder, tmp_path / "log", piece=40, seconds=0.1)
    group = CacheGroup(10 * made.largest)
    cache = made.cache(tmp_path / "local", remote=slow, group=group, timeout=2.0, tries=1)
    other = ProgressDeadline(1.0)
    group._here().overdraft.add(other)
    threading.Timer(0.2, group._here().overdraft.discard, (other,)).start()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda shard: ids(cache.open(shard)), range(4)))
    assert found == [expected(made, shard) for shard in range(4)]


def test_progress_deadline() -> None:
    """A deadline moves with what comes, never back."""
    progress = ProgressDeadline(10.0)
    first = progress.deadline
    progress.renew(time.monotonic() - 5.0)
    assert progress.deadline == first
    progress.renew()
    assert progress.deadline >= first
    assert last_progress() >= progress.deadline - 10.0
