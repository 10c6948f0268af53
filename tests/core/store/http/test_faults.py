"""What reading and writing come to when the line, or the server, does all that they can do wrong.

For each fault and verb: the right bytes, or a typed error in time, never a hang and never wrong
bytes where an answer shows that they are wrong. What no answer shows comes through unchanged, for
whoever knows size and hash to find; the tests that say so have `only_the_caller` in their names.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.core.store.http.reads import (
    BODY,
    DEADLINE_SECONDS,
    PATIENT_SECONDS,
    RANGES,
    READS,
    STALL_SECONDS,
    WITH_BODY,
    fails,
    reads,
    wait_until,
)
from tests.servers.faults import (
    HTML,
    Cut,
    Dribble,
    Empty,
    Etag,
    Flip,
    Html,
    Latency,
    NoRange,
    OtherBytes,
    Reset,
    Slow,
    Stall,
    Status,
    WrongRange,
)
from tests.servers.proxy import Proxy
from tests.servers.web import WebServer

from streaming_core._store._http import WebStore
from streaming_core.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    RangeError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.servers.faults import Fault

_PARTS = ["get_ranges", "suffix", "stream-on"]
_slow, _server = pytest.mark.slow, pytest.mark.server


def _each(
    address: str, verbs: Iterable[str], check: Callable[[Proxy, WebStore, str], None]
) -> None:
    """Check each verb through a proxy of its own, and report all that fail."""
    problems = []
    for verb in verbs:
        with Proxy(address) as proxy:
            store = WebStore.at(f"{proxy.url}/dav").with_timeout(PATIENT_SECONDS)
            try:
                check(proxy, store, verb)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported below
                problems.append(f"{verb}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)


# --- the line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("own", Cut(0)),
        ("own", Cut(500)),
        ("own", Reset()),
        ("own", Reset(0)),
        ("own", Reset(500)),
        pytest.param("own", Stall(), marks=_slow),
        pytest.param("own", Stall(0), marks=_slow),
        ("own", Stall(500)),
        pytest.param("nginx", Cut(500), marks=_server),
        pytest.param("nginx", Reset(500), marks=_server),
        pytest.param("nginx", Stall(500), marks=_server),
    ],
    indirect=["address"],
    ids=repr,
)
def test_a_broken_line_is_an_error_and_leaves_nothing_behind(address: str, fault: Fault) -> None:
    """Each verb fails in time, after one attempt; the next one is right."""

    def check(proxy: Proxy, store: WebStore, verb: str) -> None:
        rule = proxy.hurt(fault, first=len(RANGES))
        fails(store.with_timeout(STALL_SECONDS) if isinstance(fault, Stall) else store, verb)
        # The verb may have given up before the proxy has looked at the request.
        wait_until(lambda: 1 <= proxy.num_requests == rule.num_done)
        # Where one of several requests failed, those that had not begun are not made.
        assert proxy.num_requests <= (len(RANGES) if verb == "get_ranges" else 1)
        proxy.heal()
        reads(store, verb)

    _each(address, WITH_BODY, check)


@pytest.mark.parametrize("fault", [Reset(), Stall(), Cut(0)], ids=repr)
def test_head_fails_as_the_others_do(
    proxy: Proxy, store: WebStore, hasty: WebStore, fault: Fault
) -> None:
    """A head that gets no answer is an error; one that is cut after its answer has all it needs."""
    proxy.hurt(fault)
    if fault == Cut(0):
        reads(store, "head")
    else:
        fails(hasty if fault == Stall() else store, "head")


def test_a_refused_connection_is_an_error_at_once(address: str) -> None:
    """Nobody listens: the error comes immediately, and all is well when somebody does again."""

    def check(proxy: Proxy, store: WebStore, verb: str) -> None:
        with proxy.refusing():
            fails(store, verb)
        reads(store, verb)

    _each(address, READS, check)


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("own", Slow(900_000)),
        ("own", Dribble(512)),
        ("own", Latency(0.15)),
        ("own", NoRange()),
        pytest.param("nginx", Dribble(512), marks=_server),
        pytest.param("nginx", NoRange(), marks=_server),
    ],
    indirect=["address"],
    ids=repr,
)
def test_a_slow_or_simple_server_is_right(address: str, fault: Fault) -> None:
    """Bytes that come late, in crumbs, or more of them than were asked for, are the right bytes."""

    def check(proxy: Proxy, store: WebStore, verb: str) -> None:
        proxy.hurt(fault)
        reads(store, verb)

    _each(address, READS, check)


def _stream_into(store: WebStore, got: bytearray) -> None:
    with closing(store.stream("set/a")) as pieces:
        for piece in pieces:
            got += piece


@pytest.mark.slow
def test_a_stream_gives_a_true_beginning_before_it_breaks() -> None:
    """Pieces that came before the line broke are right, and the break is an error, not an end."""
    large = BODY * 10
    with WebServer() as server, Proxy(server.url) as proxy:
        server.files.put("set/a", large)
        store = WebStore.at(proxy.url).with_timeout(PATIENT_SECONDS)
        for fault in (Cut(2_500_000), Reset(2_500_000), Stall(2_500_000)):
            proxy.heal()
            proxy.hurt(fault)
            got = bytearray()
            with pytest.raises(StoreError, match="stream 'set/a'"):
                _stream_into(store.with_timeout(3.0) if isinstance(fault, Stall) else store, got)
            assert large.startswith(got)
            # A reset may overtake bytes that were sent before it.
            assert got or isinstance(fault, Reset)


def test_a_black_hole_under_load_holds_nobody_for_long(proxy: Proxy, hasty: WebStore) -> None:
    """Sixteen readers whose line dies in the middle all know in time, and leave no thread."""
    proxy.hurt(Stall(1000))
    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        reads = [pool.submit(READS["get_ranges"][0], hasty) for _ in range(16)]
        errors = [read.exception() for read in reads]
    assert time.monotonic() - began < DEADLINE_SECONDS
    assert all(isinstance(error, StoreError) for error in errors)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("streaming")]


# --- answers that show what is wrong --------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Status(500), StoreError),
        (Status(502), StoreError),
        (Status(504), StoreError),
        (Status(401), AccessDeniedError),
        (Status(403, body=b"<Error>expired</Error>"), AccessDeniedError),
        (Status(404), ObjectNotFoundError),
        (Status(410), ObjectNotFoundError),
        (Status(429, retry_after="3"), StoreBusyError),
        (Status(503, retry_after="3"), StoreBusyError),
        (Status(204), StoreError),
        (Status(304), StoreError),
    ],
    ids=repr,
)
def test_an_error_of_the_server_has_its_type(
    address: str, fault: Status, kind: type[StoreError]
) -> None:
    """Each status becomes the error that says what to do, after one request."""

    def check(proxy: Proxy, store: WebStore, verb: str) -> None:
        proxy.hurt(fault)
        error = fails(store, verb, kind)
        assert type(error) is kind
        assert f"{fault.code}" in str(error)
        assert proxy.num_requests <= (len(RANGES) if verb == "get_ranges" else 1)
        if isinstance(error, StoreBusyError):
            assert error.retry_after == 3

    # To HEAD, 204 is an answer like any other.
    _each(address, WITH_BODY if fault.code == 204 else READS, check)


@pytest.mark.parametrize("address", ["own", pytest.param("nginx", marks=_server)], indirect=True)
def test_a_wrong_content_range_is_noticed(address: str) -> None:
    """An answer that says it has other bytes than were asked for is an error."""
    for shift in (1, -1, 100):

        def check(proxy: Proxy, store: WebStore, verb: str, shift: int = shift) -> None:
            proxy.hurt(WrongRange(shift), where=lambda _, target: bool(target))
            fails(store, verb)

        _each(address, _PARTS, check)


@pytest.mark.parametrize("fault", [Empty(), Html()], ids=["empty", "html"])
def test_a_page_in_place_of_a_part_is_noticed(address: str, fault: Fault) -> None:
    """A page is too short to have the bytes that were asked for."""

    def check(proxy: Proxy, store: WebStore, verb: str) -> None:
        proxy.hurt(fault)
        fails(store, verb, RangeError)

    _each(address, _PARTS, check)


def test_parts_of_two_versions_are_never_joined(proxy: Proxy, store: WebStore) -> None:
    """An etag that changes between the requests for ranges is an error."""
    proxy.hurt(Etag('"other"'), every=2)
    assert "replaced" in str(fails(store, "get_ranges"))


def test_all_parts_may_have_an_etag_nobody_saw_before(proxy: Proxy, store: WebStore) -> None:
    """An etag is only compared with others of the same call, and handed on to the caller."""
    proxy.hurt(Etag('"other"'))
    assert store.get_ranges("set/a", list(RANGES)).etag == '"other"'
    stream = store.stream("set/a")
    with closing(stream):
        next(stream)
        assert getattr(stream, "etag", None) == '"other"'
    assert store.head("set/a").etag == '"other"'


# --- what only the caller can know ----------------------------------------------------------------


@pytest.mark.parametrize("fault", [Flip(150), Flip(-1), OtherBytes()], ids=repr)
def test_only_the_caller_can_know_flipped_bytes_which_are_not_hidden(
    address: str, fault: Fault
) -> None:
    """Other bytes with right headers come through as they are: as many, and not the right ones."""

    def check(proxy: Proxy, store: WebStore, verb: str) -> None:
        proxy.hurt(fault)
        act, right = READS[verb]
        got = act(store)
        assert got != right
        assert _length(got) == _length(right)

    _each(address, WITH_BODY, check)


def _length(data: object) -> int:
    return len(data) if isinstance(data, bytes) else sum(map(len, data))  # type: ignore[call-overload]


@pytest.mark.parametrize(("fault", "body"), [(Empty(), b""), (Html(), HTML)], ids=["empty", "html"])
@pytest.mark.parametrize("verb", ["get", "stream"])
def test_only_the_caller_can_know_a_page_in_place_of_a_file_which_is_not_hidden(
    proxy: Proxy, store: WebStore, verb: str, fault: Fault, body: bytes
) -> None:
    """A whole answer of another length comes through with that length."""
    proxy.hurt(fault)
    assert READS[verb][0](store) == body


def test_only_the_caller_can_know_the_size_of_a_page_which_is_not_hidden(
    proxy: Proxy, store: WebStore
) -> None:
    """`head` tells the size of what the server would send."""
    proxy.hurt(Html())
    assert store.head("set/a").size == len(HTML)
