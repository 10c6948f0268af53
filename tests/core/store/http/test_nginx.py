"""A real web server as a store: places of many kinds, refusals, headers that run out."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.servers.nginx import SLOW_BYTES_PER_SECOND, TOKEN, Nginx, nginx

from streaming_core._store import open_store
from streaming_core._store._http import WebStore
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ObjectNotFoundError,
    RangeError,
    StoreBusyError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.server

BODY = bytes(range(256)) * 16
KEYS = [
    "plain.mds",
    "ähnlich.mds",
    "数据/碎片.00000",
    "🙂",
    "100%/a+b=c&d#e?f",
    "with space/and 'q'",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """Run one nginx with some files."""
    with nginx(tmp_path_factory.mktemp("nginx")) as running:
        for key in KEYS:
            path = running.files / "set" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(BODY)
        (running.files / "set" / "empty").write_bytes(b"")
        yield running


def _reads_right(store: WebStore, key: str) -> None:
    assert store.get(key) == BODY
    assert store.head(key).size == len(BODY)
    assert store.get_ranges(key, [(0, 5), (-3, None), (4000, None)]) == [
        BODY[:5],
        BODY[-3:],
        BODY[4000:],
    ]
    assert store.get_ranges(key, [(-7, None)]) == [BODY[-7:]]
    for start in (0, 1, len(BODY) - 1, len(BODY)):
        with closing(store.stream(key, start=start)) as pieces:
            assert b"".join(map(bytes, pieces)) == BODY[start:]


@pytest.mark.essential
@pytest.mark.parametrize("place", ["data", "no-range", "moved", "safe"])
def test_reads_what_lies_on_disk(server: Nginx, place: str) -> None:
    """Files of any name are read whole, by ranges and in streams, redirected or without ranges."""
    store = WebStore.at(f"{server.url}/{place}/set", {"ca_file": str(server.ca_file)})
    for key in KEYS:
        _reads_right(store, key)


def test_reads_over_tls(server: Nginx) -> None:
    """Over TLS all is the same, if somebody trusted vouches for the server."""
    _reads_right(WebStore.at(f"{server.tls_url}/data/set", {"ca_file": str(server.ca_file)}), "🙂")


@pytest.mark.parametrize("place", ["data", "no-range"])
def test_an_empty_file_has_no_bytes_and_no_ranges(server: Nginx, place: str) -> None:
    """Of nothing, nothing can be read, and more is an error."""
    store = open_store(f"{server.url}/{place}/set")
    assert (store.get("empty"), store.head("empty").size) == (b"", 0)
    assert list(store.stream("empty")) == []
    for wanted in [(0, 1), (-1, None), (1, None)]:
        with pytest.raises(RangeError, match="empty"):
            store.get_ranges("empty", [wanted])


@pytest.mark.slow
def test_a_slow_server_is_waited_for(server: Nginx) -> None:
    """A file that takes longer than the timeout is read, because bytes keep coming."""
    (server.files / "large").write_bytes(bytes(SLOW_BYTES_PER_SECOND * 7))
    store = WebStore.at(f"{server.url}/slow").with_timeout(5.0)
    began = time.monotonic()
    with closing(store.stream("large")) as pieces:
        assert sum(len(piece) for piece in pieces) == SLOW_BYTES_PER_SECOND * 7
    assert time.monotonic() - began > 5.0


def test_a_private_place_wants_the_right_header(server: Nginx) -> None:
    """401 without it is a refusal with a remedy; with it, all is well."""
    url = f"{server.url}/private/set"
    with pytest.raises(AccessDeniedError, match=r"status 401.*check the credentials"):
        open_store(url).get("plain.mds")
    store = WebStore.at(url, {"headers": {"Authorization": TOKEN}})
    _reads_right(store, "plain.mds")


def test_a_header_that_ran_out_is_renewed_once(server: Nginx) -> None:
    """Eight threads whose header is refused at once have it renewed by one call of the function."""
    calls: list[int] = []

    def headers() -> Mapping[str, object]:
        calls.append(1)
        return {"headers": {"Authorization": TOKEN if len(calls) > 1 else "Bearer old"}}

    store = WebStore.at(f"{server.url}/private/set", headers)
    start = threading.Barrier(8)

    def read(_: int) -> bytes:
        start.wait(60)
        return store.get("plain.mds")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [BODY] * 8
    assert len(calls) == 2


def test_a_header_that_stays_wrong_is_refused(server: Nginx) -> None:
    """New headers are tried once, then the refusal stands."""
    store = WebStore.at(
        f"{server.url}/private/set", lambda: {"headers": {"Authorization": "Bearer old"}}
    )
    before = len(server.log())
    with pytest.raises(AccessDeniedError):
        store.get("plain.mds")
    assert len(server.log()) - before <= 2


def test_what_proves_who_we_are_is_not_for_others(server: Nginx) -> None:
    """A redirect to another host is followed without the headers meant for the first."""
    headers = {"Authorization": "Bearer mine", "X-Team": "ours"}
    store = WebStore.at(f"{server.url}/seen", {"headers": headers})
    assert store.get("x") == b"Bearer mine|ours"
    assert WebStore.at(f"{server.url}/away", {"headers": headers}).get("x") == b"|"


def test_refusals_are_typed(server: Nginx) -> None:
    """403, 404, 405, 503 and folders each have their error, with the URL and what to do."""
    (server.files / "x").write_bytes(b"")
    with pytest.raises(AccessDeniedError, match=rf"get 'x' in {server.url}/closed: status 403"):
        open_store(f"{server.url}/closed").get("x")
    with pytest.raises(StoreBusyError, match="status 503") as busy:
        open_store(f"{server.url}/busy").get("x")
    assert busy.value.retry_after == 7
    with pytest.raises(ObjectNotFoundError, match="404"):
        open_store(f"{server.url}/data").get("set")
    store = open_store(f"{server.url}/data")
    for attempt in (lambda: store.put("new", [b"x"]), lambda: store.delete("x")):
        with pytest.raises(AccessDeniedError, match=r"405.*does not take such requests"):
            attempt()
    assert (server.files / "x").exists()


def test_a_server_that_knows_no_condition_keeps_what_is_there(server: Nginx) -> None:
    """Nginx replaces whatever the condition says, so it is asked before."""
    store = open_store(f"{server.url}/dav/fresh")
    store.put("a", [b"first"], if_absent=True)
    with pytest.raises(AlreadyExistsError, match="'a'"):
        store.put("a", [b"second"], if_absent=True)
    assert store.get("a") == b"first"
