"""Writing: in one request and in chunks, and what holds when that breaks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.servers.gcs_rules import GoogleRules
from tests.servers.web import Said, WebServer

from streaming_core._store import is_final
from streaming_core._store._gcs import GCSStore, _upload
from streaming_core.errors import (
    AlreadyExistsError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.web import Asked

_SECONDS = 60.0
_UNIT = 256 << 10


@pytest.fixture
def store(rules: GoogleRules) -> GCSStore:
    """Return the bucket."""
    return GCSStore.at("gs://bucket", {"endpoint_url": rules.url, "anonymous": True})


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let anything go in chunks of half a mebibyte."""
    monkeypatch.setattr(_upload, "SINGLE_BYTES", 0)
    monkeypatch.setattr(_upload, "CHUNK_BYTES", 2 * _UNIT)


def _once(when: Callable[[Asked], bool], act: Callable[[Asked], Said | None]) -> Any:
    """Return what does something with the first request of a kind."""
    left = [act]
    guard = threading.Lock()

    def before(asked: Asked) -> Said | None:
        with guard:
            found = left.pop() if left and when(asked) else None
        return None if found is None else found(asked)

    return before


def _is_chunk(asked: Asked) -> bool:
    return asked.method == "PUT" and bool(asked.body)


# --- how ------------------------------------------------------------------------------------------


def test_small_objects_go_in_one_request(store: GCSStore, rules: GoogleRules) -> None:
    """Up to eight mebibytes one request does it all."""
    info = store.put("a", [bytes(_upload.SINGLE_BYTES)])
    assert len(rules.asked) == 1
    assert info == store.head("a")


def test_large_objects_go_in_chunks(store: GCSStore, rules: GoogleRules) -> None:
    """A larger one is begun, and then sent in as few chunks as there have to be."""
    body = os.urandom(1 << 20) * 33 + b"tail"
    info = store.put("large", [body[:5], body[5:100], body[100:]])
    assert len(rules.asked) == 3
    assert rules.objects["large"][0] == body
    assert info == store.head("large")


def _measured(url: str, connection: Any) -> None:
    body = bytes(80 << 20)
    store = GCSStore.at("gs://bucket", {"endpoint_url": url, "anonymous": True})
    tracemalloc.start()
    store.put("large", [body[: 1 << 20], memoryview(body)[1 << 20 :]])
    connection.send(tracemalloc.get_traced_memory()[1])


@pytest.mark.process
@pytest.mark.timeout(120)
def test_an_upload_takes_little_memory(rules: GoogleRules) -> None:
    """What is sent is not copied, but for a piece of it at a time."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_measured, args=(rules.url, theirs))
    process.start()
    assert ours.poll(_SECONDS)
    assert ours.recv() < 8 << 20
    process.join(_SECONDS)
    assert len(rules.objects["large"][0]) == 80 << 20


@pytest.mark.parametrize("size", [10, 9 << 20])
@pytest.mark.parametrize("is_fast", [True, False], ids=["crc32c", "md5"])
def test_the_service_looks_at_a_checksum(
    store: GCSStore,
    rules: GoogleRules,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    *,
    is_fast: bool,
) -> None:
    """A byte that changes on the way is found, and nothing is published."""
    if not is_fast:
        monkeypatch.setattr(_upload, "_crc32c", lambda: None)
    at = 5 if size > 10 else -40 - 5

    def flip(asked: Asked) -> Said:
        body = bytearray(asked.body)
        body[at] ^= 1
        return rules.served(replace(asked, body=bytes(body)))

    rules.before = _once(lambda asked: bool(asked.body) and (size == 10 or _is_chunk(asked)), flip)
    with pytest.raises(StoreError, match="crc32c" if is_fast else "md5Hash") as caught:
        store.put("a", [bytes(size)])
    assert not is_final(caught.value)
    assert not rules.objects
    assert store.put("a", [bytes(size)]).size == size


# --- what breaks ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("_small")
def test_an_upload_goes_on_where_it_broke(store: GCSStore, rules: GoogleRules) -> None:
    """After a lost connection only what the service does not have is sent again."""
    body = os.urandom(8 * _UNIT)

    def keep_half(asked: Asked) -> Said:
        size = f"/{len(body)}"
        first = asked.headers["content-range"].removeprefix("bytes ").partition("-")[0]
        half = asked.body[:_UNIT]
        said = f"bytes {first}-{int(first) + _UNIT - 1}{size}"
        rules.served(replace(asked, body=half, headers={**asked.headers, "content-range": said}))
        return Said(200, b"", length=1000, hang_up=True)

    rules.before = _once(
        lambda asked: asked.headers.get("content-range", "").startswith(f"bytes {2 * _UNIT}-"),
        keep_half,
    )
    store.put("a", [body])
    assert rules.objects["a"][0] == body
    assert sum(len(asked.body) for asked in rules.asked if _is_chunk(asked)) == len(body) + _UNIT


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_confirmation_that_got_lost_is_no_failure(
    store: GCSStore, rules: GoogleRules, status: int
) -> None:
    """An object that was finished is found to be, also where it was to be created only."""
    body = bytes(4 * _UNIT)

    def lose(asked: Asked) -> Said:
        rules.served(asked)
        return Said(status)

    rules.before = _once(
        lambda asked: asked.headers.get("content-range", "").startswith(f"bytes {2 * _UNIT}-"),
        lose,
    )
    info = store.put("a", [body], if_absent=True)
    assert info == store.head("a")
    assert rules.objects["a"][0] == body


@pytest.mark.usefixtures("_small")
def test_an_upload_that_comes_no_further_is_an_error(store: GCSStore, rules: GoogleRules) -> None:
    """A chunk that fails again and again does so twice, and then it is up to the caller."""
    rules.before = lambda asked: Said(500, b"down") if _is_chunk(asked) else None
    with pytest.raises(StoreError, match="500"):
        store.put("a", [bytes(4 * _UNIT)])
    assert sum(map(_is_chunk, rules.asked)) == 2
    assert not rules.sessions


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("status", [404, 410])
def test_a_forgotten_upload_is_no_missing_object(
    store: GCSStore, rules: GoogleRules, status: int
) -> None:
    """A session that the service does not know any more may be begun anew by the caller."""
    rules.before = lambda asked: Said(status) if _is_chunk(asked) else None
    with pytest.raises(StoreError, match="put it again") as caught:
        store.put("a", [bytes(4 * _UNIT)])
    assert not isinstance(caught.value, ObjectNotFoundError)
    assert not is_final(caught.value)


@pytest.mark.usefixtures("_small")
def test_a_service_that_wants_peace_gets_it(store: GCSStore, rules: GoogleRules) -> None:
    """Too many requests are told to the caller at once, with the time; the upload is dropped."""
    rules.before = lambda asked: Said(429, b"", {"Retry-After": "7"}) if _is_chunk(asked) else None
    with pytest.raises(StoreBusyError) as caught:
        store.put("a", [bytes(4 * _UNIT)])
    assert caught.value.retry_after == 7
    assert sum(map(_is_chunk, rules.asked)) == 1
    assert not rules.sessions


@pytest.mark.usefixtures("_small")
def test_a_token_that_expires_in_between_is_renewed(rules: GoogleRules) -> None:
    """A long upload lives longer than a token."""
    rules.tokens = {"given-1"}
    numbers = iter(range(1, 9))
    options = lambda: {"endpoint_url": rules.url, "token": f"given-{next(numbers)}"}  # noqa: E731
    store = GCSStore.at("gs://bucket", options)

    def expire(asked: Asked) -> Said:
        rules.tokens = {"given-2"}
        return rules.served(asked)

    rules.before = _once(
        lambda asked: asked.headers.get("content-range", "").startswith(f"bytes {2 * _UNIT}-"),
        expire,
    )
    body = os.urandom(6 * _UNIT)
    store.put("a", [body])
    assert rules.objects["a"][0] == body


@pytest.mark.parametrize("size", [10, 4 * _UNIT])
def test_create_only_holds_for_both_ways(
    store: GCSStore, rules: GoogleRules, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also an object that appears while the upload runs is left as it is."""
    monkeypatch.setattr(_upload, "SINGLE_BYTES", 1000)

    def appear(_: Asked) -> None:
        rules.objects.setdefault("a", (b"other", 1))

    rules.before = _once(lambda asked: size < 1000 or _is_chunk(asked), appear)
    with pytest.raises(AlreadyExistsError):
        store.put("a", [bytes(size)], if_absent=True)
    assert rules.objects["a"] == (b"other", 1)
    with pytest.raises(AlreadyExistsError):
        store.put("a", [bytes(size)], if_absent=True)


@pytest.mark.parametrize(
    "document",
    [b"", b"<html>", b"[]", b'{"size": "10"}', b'{"size": "9", "generation": "1"}'],
)
def test_a_confirmation_has_to_be_one(store: GCSStore, rules: GoogleRules, document: bytes) -> None:
    """A page of some proxy with a status of success does not pass for a stored object."""
    rules.before = lambda _: Said(200, document)
    with pytest.raises(StoreError, match="put 'a' in gs://bucket"):
        store.put("a", [bytes(10)])


# --- any faults -----------------------------------------------------------------------------------

_FAULTS = st.sampled_from(["none", "none", "before", "after", "hang up", "busy"])


@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    cuts=st.lists(st.integers(0, 5 * _UNIT), max_size=3),
    size=st.integers(1, 5 * _UNIT),
    faults=st.lists(_FAULTS, max_size=8),
)
def test_any_faults_leave_the_object_or_an_error(
    monkeypatch: pytest.MonkeyPatch, cuts: list[int], size: int, faults: list[str]
) -> None:
    """Whatever happens to whichever request, what is published is what was put."""
    monkeypatch.setattr(_upload, "SINGLE_BYTES", 0)
    monkeypatch.setattr(_upload, "CHUNK_BYTES", _UNIT)
    rules = GoogleRules()
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    left = list(faults)

    def before(asked: Asked) -> Said | None:
        fault = left.pop(0) if left else "none"
        if fault == "before":
            return Said(500)
        if fault == "busy":
            return Said(503)
        if fault in {"after", "hang up"}:
            rules.served(asked)
            return Said(502) if fault == "after" else Said(200, b"", length=9, hang_up=True)
        return None

    rules.before = before
    edges = sorted({0, size, *(cut % (size + 1) for cut in cuts)})
    views = [memoryview(body)[a:b] for a, b in pairwise(edges)]
    with WebServer(answer=rules.answer) as web:
        store = GCSStore.at("gs://bucket", {"endpoint_url": web.url, "anonymous": True})
        try:
            info = store.put("a", views)
        except StoreError:
            assert any(fault != "none" for fault in faults)
        else:
            assert (info.size, info.etag) == (size, str(rules.objects["a"][1]))
            assert rules.objects["a"][0] == body
        assert {name: found[0] for name, found in rules.objects.items()} in ({}, {"a": body})
        chunks = sum(map(_is_chunk, rules.asked))
        assert chunks <= -(-size // _UNIT) + 1 + len(faults)


# --- kills ----------------------------------------------------------------------------------------


def _put(url: str) -> None:
    store = GCSStore.at("gs://bucket", {"endpoint_url": url, "anonymous": True})
    store.put("a", [b"x" * (70 << 20)])


@pytest.mark.kill
def test_a_killed_upload_leaves_nothing_and_can_be_done_again(rules: GoogleRules) -> None:
    """A process that dies between chunks has published nothing; another one does it all."""
    is_there, go_on = threading.Event(), threading.Event()

    def wait(_: Asked) -> None:
        is_there.set()
        assert go_on.wait(_SECONDS)

    rules.before = _once(
        lambda asked: asked.headers.get("content-range", "").startswith(f"bytes {32 << 20}-"), wait
    )
    process = multiprocessing.get_context("spawn").Process(target=_put, args=(rules.url,))
    process.start()
    try:
        assert is_there.wait(_SECONDS)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join(_SECONDS)
    finally:
        go_on.set()
    assert process.exitcode == -signal.SIGKILL
    assert not rules.objects
    _put(rules.url)
    assert len(rules.objects["a"][0]) == 70 << 20
