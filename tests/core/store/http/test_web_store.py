"""Web servers as stores: addresses, secrets, redirects, answers of all kinds."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import traceback
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.servers.processes import connections_to
from tests.servers.web import Asked, Said, WebServer, in_turn

from streaming_core._store import open_store
from streaming_core._store._http import WebStore
from streaming_core.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- addresses and secrets ------------------------------------------------------------------------


def test_url_and_children_name_the_same_place() -> None:
    """The URL of a child opens a store that is equal and reads the same, whatever its name."""
    with WebServer() as server:
        for prefix in ("part", "100%41/a+b", "d#e?f", "数据 x"):
            child = open_store(f"{server.url}/data%20set/ümlaut").child(prefix)
            child.put("a", [prefix.encode()])
            again = open_store(child.url)
            assert (again, again.get("a")) == (child, prefix.encode())
            assert server.files.open(f"data set/ümlaut/{prefix}/a") is not None


def test_user_password_and_query_go_with_every_request() -> None:
    """What the URL says of credentials is sent, for every verb and child, and never shown."""
    seen: list[tuple[str, str, str]] = []

    def answer(asked: Asked) -> Said | None:
        path, _, query = asked.target.partition("?")
        seen.append((path, query, asked.headers.get("authorization", "")))
        return None

    with WebServer(answer=answer) as server:
        host = server.url.removeprefix("http://")
        store = open_store(f"http://us%40er:s3cret@{host}/data?token=t0ken&sig=a%2Bb%3D")
        child = store.child("part")
        child.put("a", [b"body"])
        assert (child.get("a"), child.head("a").size) == (b"body", 4)
        list(child.stream("a"))
        child.get_ranges("a", [(0, 1)])
        child.delete("a")
        assert {query for _, query, _ in seen} == {"sig=a%2Bb%3D&token=t0ken"}
        assert {path for path, _, _ in seen} == {"/data/part/a"}
        assert {auth for _, _, auth in seen} == {"Basic dXNAZXI6czNjcmV0"}
        with pytest.raises(ObjectNotFoundError) as caught:
            child.get("absent")
        shown = "".join(traceback.format_exception(caught.value)) + repr(child) + child.url
        for secret in ("s3cret", "t0ken", "a%2Bb", "a+b", "dXNAZXI6czNjcmV0"):
            assert secret not in shown


def test_no_secret_leaves_the_process_in_a_pickle() -> None:
    """A pickle for a disk has no secret, and says so when one is needed; a function travels."""
    with WebServer(
        answer=lambda asked: Said(200, asked.headers.get("x-key", "").encode())
    ) as server:
        options = {"headers": {"X-Key": "s3cret"}}
        host = server.url.removeprefix("http://")
        for store in (
            open_store(server.url, options),
            open_store(f"http://u:s3cret@{host}/?k=s3cret"),
        ):
            data = pickle.dumps(store)
            assert b"s3cret" not in data
            copy = pickle.loads(data)
            assert copy == store
            with pytest.raises(AccessDeniedError, match="is not in the pickle"):
                copy.get("a")
        assert pickle.loads(pickle.dumps(open_store(server.url, _options))).get("a") == b"by call"


def _options() -> Mapping[str, object]:
    return {"headers": {"X-Key": "by call"}}


@pytest.mark.process
@pytest.mark.essential
def test_a_worker_process_is_given_the_secrets() -> None:
    """A worker that this process starts reads as this process does."""
    with WebServer(
        answer=lambda asked: Said(200, asked.headers.get("x-key", "").encode())
    ) as server:
        store = open_store(server.url, {"headers": {"X-Key": "s3cret"}})
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager:
            found = manager.list()
            worker = context.Process(target=_get_into, args=(store, found))
            worker.start()
            worker.join(60)
            assert (worker.exitcode, list(found)) == (0, [b"s3cret"])


def _get_into(store: WebStore, found: list[bytes]) -> None:
    found.append(store.get("a"))


@pytest.mark.parametrize("url", ["http://", "https:///data", "http://host:port/data"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    """What cannot be connected to is an error when it is opened."""
    with pytest.raises(SchemaError, match="cannot be read from"):
        open_store(url)


def test_unknown_options_are_refused() -> None:
    """An option that is not known is named, and those that are."""
    with pytest.raises(SchemaError, match=r"'header'; known are allow_http, ca_file, headers"):
        open_store("http://host/data", {"header": {}})


def test_a_header_that_cannot_be_sent_is_a_typed_error() -> None:
    """It is named, its value is not."""
    with WebServer() as server:
        store = open_store(server.url, {"headers": {"X-Key": "s3cret\r\nX-More: 1"}})
        with pytest.raises(StoreError, match="the header 'X-Key' has characters") as caught:
            store.get("a")
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))


# --- servers of all kinds -------------------------------------------------------------------------


def test_head_of_a_server_that_will_not_say_asks_for_a_byte() -> None:
    """Where HEAD is refused or tells no length, the first byte's answer tells it."""
    with WebServer() as server:
        server.files.put("a", b"0123456789")
        server.files.put("empty", b"")
        for said in (Said(405), Said(501), Said(200, [b"pieces"])):
            server.answer = lambda asked, said=said: said if asked.method == "HEAD" else None
            store = open_store(server.url)
            assert (store.head("a").size, store.head("empty").size) == (10, 0)
            assert store.get_ranges("a", [(8, None), (0, 1)]) == [b"89", b"0"]
            with pytest.raises(ObjectNotFoundError):
                store.head("absent")


def test_a_body_of_unknown_length_is_read_to_its_end() -> None:
    """A server that makes its answers while it sends them is a server, too; limits hold for it."""
    pieces = [b"some", b"thing", bytes(3 << 20)]
    whole = b"".join(pieces)
    with WebServer(answer=lambda _: Said(200, list(pieces))) as server:
        store = open_store(server.url)
        assert store.get("a") == whole
        assert store.get("a", max_bytes=len(whole)) == whole
        assert store.get_ranges("a", [(4, 9)]) == [b"thing"]
        with closing(store.stream("a", start=4)) as read:
            assert b"".join(map(bytes, read)) == whole[4:]
        with pytest.raises(StoreError, match="allowed"):
            store.get("a", max_bytes=len(whole) - 1)
        with pytest.raises(StoreError, match="allowed"):
            list(store.stream("a", max_bytes=1000))


def test_a_range_with_status_200_is_taken_for_what_it_is() -> None:
    """Some servers send a part and call it a success; its `Content-Range` says that it is one."""
    part = {"Content-Range": "bytes 4-8/20"}
    with WebServer(answer=lambda _: Said(200, b"thing", part)) as server:
        store = open_store(server.url)
        assert store.get_ranges("a", [(4, 9)]) == [b"thing"]
        with pytest.raises(StoreError, match="byte 0 was to be the first"):
            store.get("a")


@pytest.mark.parametrize("location", ["/b?x=1", "b", "//{host}/b", "{url}/b", "/ü b", "/%C3%BC"])
def test_redirects_are_followed_wherever_they_point(location: str) -> None:
    """Relative, without scheme, absolute and badly encoded targets all lead there."""
    with WebServer() as server:
        server.files.put("b", b"body")
        server.files.put("ü b", b"body")
        server.files.put("ü", b"body")
        host = server.url.removeprefix("http://")
        target = location.format(host=host, url=server.url).encode().decode("latin-1")
        server.answer = in_turn(Said(302, b"", {"Location": target}))
        assert open_store(server.url).get("a") == b"body"


@pytest.mark.parametrize(
    "said",
    [
        Said(302, b"", {"Location": "/a"}),
        Said(302, b""),
        Said(302, b"", {"Location": "ftp://elsewhere/a"}),
        Said(302, b"", {"Location": "http://[bad/a"}),
        Said(304, b""),
        Said(300, b"choices"),
        Said(204, b""),
    ],
    ids=["loop", "nowhere", "ftp", "bad", "304", "300", "204"],
)
def test_no_answer_that_is_no_body_is_taken_for_one(said: Said) -> None:
    """Redirects that lead nowhere and successes without a body are errors of every verb."""
    with WebServer(answer=lambda _: said) as server:
        store = open_store(server.url)
        for act in (
            lambda: store.get("a"),
            lambda: store.get_ranges("a", [(0, 1)]),
            lambda: list(store.stream("a")),
        ):
            with pytest.raises(StoreError, match="'a'"):
                act()


def test_an_upload_that_is_redirected_is_no_success() -> None:
    """Only reads are followed; a put that was sent elsewhere was not done."""
    for said in (Said(307, b"", {"Location": "/b"}), Said(301, b"")):
        with WebServer(answer=in_turn(said)) as server:
            with pytest.raises(StoreError, match="redirected"):
                open_store(server.url).put("a", [b"body"])
            assert server.files.open("a") is None


def test_a_get_that_changes_on_the_way_is_noticed() -> None:
    """Ranges of two versions are never joined, by etag or by size."""
    one, two = (
        {"Content-Range": f"bytes 0-3/{size}", "ETag": tag}
        for size, tag in ((400000, '"1"'), (400000, '"2"'))
    )
    far = {"Content-Range": "bytes 300000-300003/400000"}
    larger = {"Content-Range": "bytes 300000-300003/400001"}

    def answer(second: Mapping[str, str]) -> object:
        return lambda asked: Said(
            206, b"body", one if asked.headers["range"] == "bytes=0-3" else second
        )

    for second, right in (
        ({**far, "ETag": '"1"'}, True),
        ({**far, "ETag": two["ETag"]}, False),
        (larger, False),
        (far, True),
    ):
        with WebServer(answer=answer(second)) as server:  # type: ignore[arg-type]
            store = open_store(server.url)
            ranges = [(0, 4), (300_000, 300_004)]
            if right:
                assert store.get_ranges("a", ranges) == [b"body", b"body"]
            else:
                with pytest.raises(StoreError, match="replaced meanwhile"):
                    store.get_ranges("a", ranges)


def test_ranges_far_apart_are_asked_for_at_once_and_near_ones_together() -> None:
    """The requests are those of the spans, no more, and they do not wait for each other."""
    arrived = threading.Barrier(4)

    def answer(_: Asked) -> None:
        arrived.wait(60)

    with WebServer() as server:
        server.files.put("a", bytes(8 << 20))
        server.answer = answer
        ranges = [(n << 20, (n << 20) + 10) for n in range(4)] + [
            ((n << 20) + 20, (n << 20) + 30) for n in range(4)
        ]
        assert open_store(server.url).get_ranges("a", ranges) == [bytes(10)] * 8
        assert server.count("GET") == 4


def test_threads_of_parallel_requests_end() -> None:
    """No thread outlives the call that needed it, also if one of them failed."""
    with WebServer() as server:
        server.files.put("a", bytes(8 << 20))
        store = open_store(server.url)
        store.get_ranges("a", [(n << 20, (n << 20) + 10) for n in range(8)])
        server.answer = lambda asked: Said(500) if asked.number % 3 else None
        with pytest.raises(StoreError, match="status 500"):
            store.get_ranges("a", [(n << 20, (n << 20) + 10) for n in range(8)])
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("streaming-request")]


def test_streams_that_are_left_hold_nothing() -> None:
    """Closed early, dropped, or never begun: the connection of a stream goes with it."""
    with WebServer() as server:
        server.files.put("a", bytes(8 << 20))
        store = open_store(server.url)
        port = int(server.url.rpartition(":")[2])
        for _ in range(5):
            store.stream("a")
            dropped = store.stream("a")
            next(dropped)
            with closing(store.stream("a")) as closed:
                next(closed)
            del dropped
        assert connections_to(port) == 0


def test_another_timeout_is_another_store_with_the_same_secrets() -> None:
    """The copy waits differently and has the same secrets; both, and children, are equal."""
    given_up = threading.Event()

    def answer(asked: Asked) -> Said | None:
        if asked.path == "/part/slow":
            given_up.wait(60)
        return Said(200, asked.headers.get("x-key", "").encode())

    with WebServer(answer=answer) as server:
        store = WebStore.at(server.url, {"headers": {"X-Key": "s3cret"}})
        patient = store.with_timeout(60.0).child("part")
        hasty = store.with_timeout(0.2).child("part")
        assert patient == hasty == store.child("part")
        assert patient.get("quick") == b"s3cret"
        with pytest.raises(StoreError, match="TimeoutError"):
            hasty.get("slow")
        given_up.set()
        assert store.child("part").get("slow") == b"s3cret"


def test_a_request_that_is_refused_late_uses_what_another_renewed() -> None:
    """Its header is not that of now, so no third one is needed."""
    calls: list[int] = []

    def options() -> dict[str, dict[str, str]]:
        calls.append(1)
        return {"headers": {"Authorization": str(min(len(calls), 2))}}

    with WebServer() as server:
        store = WebStore.at(server.url, options)

        def answer(asked: Asked) -> Said:
            if asked.headers["authorization"] == "2":
                return Said(200, b"body")
            if asked.path == "/late":
                store.get("early")
            return Said(401)

        server.answer = answer
        assert store.get("late") == b"body"
    assert len(calls) == 2
