"""Writing over lines that break, faults that come at random, credentials that run out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.core.store.http.reads import (
    BODY,
    DEADLINE_SECONDS,
    reads,
    wait_until,
)
from tests.servers.faults import (
    Cut,
    Denied,
    Dribble,
    Etag,
    Latency,
    NoRange,
    Reset,
    Stall,
    Status,
    Swallow,
    WrongRange,
)

from streaming_core._store import RequestPolicy
from streaming_core._store._http import WebStore
from streaming_core.errors import (
    ObjectNotFoundError,
    StoreError,
)

if TYPE_CHECKING:
    from tests.servers.faults import Fault
    from tests.servers.proxy import Proxy

_server = pytest.mark.server


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["own", pytest.param("nginx", marks=_server)], indirect=True)
@pytest.mark.parametrize(
    "fault", [Reset(), Stall(), Swallow(), Status(500), Status(500, after_server=True)], ids=repr
)
def test_a_put_without_a_confirmation_is_an_error(
    proxy: Proxy, store: WebStore, hasty: WebStore, fault: Fault
) -> None:
    """Whatever became of it on the server, it did not succeed; a rerun does."""
    body = BODY * 20
    rule = proxy.hurt(fault, first=1, methods={"PUT"})
    began = time.monotonic()
    with pytest.raises(StoreError, match="put 'new'"):
        (hasty if isinstance(fault, (Stall, Swallow)) else store).put("new", [body])
    assert time.monotonic() - began < DEADLINE_SECONDS
    wait_until(lambda: rule.num_done == 1)
    assert store.put("new", [body]).size == len(body)
    assert store.get("new") == body
    store.delete("new")


def test_a_lost_confirmation_of_a_create_only_put_is_never_a_second_put(
    proxy: Proxy, store: WebStore
) -> None:
    """It is sent once: what was there first stays, and the caller hears of the failure."""
    rule = proxy.hurt(Reset(), first=1, methods={"PUT"})
    with pytest.raises(StoreError):
        store.put("once", [b"first"], if_absent=True)
    assert rule.num_matched == 1
    assert store.get("once") == b"first"
    store.delete("once")


def test_a_slow_line_takes_uploads(proxy: Proxy, store: WebStore) -> None:
    """A put whose confirmation is late but comes is a success."""
    proxy.hurt(Latency(0.15))
    assert store.put("late", [b"body"]).size == 4
    store.delete("late")
    with pytest.raises(ObjectNotFoundError):
        store.head("late")


# --- storms ---------------------------------------------------------------------------------------


def test_random_errors_are_got_over_by_retrying(proxy: Proxy, store: WebStore) -> None:
    """With one error in ten, a few tries for each read bring all, for few more requests."""
    proxy.hurt(Status(500), chance=0.1, seed=3)
    retry = RequestPolicy(6, first_pause=0.001)
    for _ in range(100):
        assert retry.call(lambda: store.get_ranges("set/a", [(5, 10)])) == [BODY[5:10]]
    assert proxy.num_requests <= 200


@pytest.mark.slow
def test_every_fault_at_random_never_brings_wrong_bytes(proxy: Proxy, store: WebStore) -> None:
    """Under all faults that can be known, each read is right or fails with its error."""
    store = store.with_timeout(1.0)  # a read that is too slow for it has failed with its error
    faults: list[Fault] = [
        *(Cut(900), Cut(0), Reset(), Reset(700), Stall(800), Status(503), Status(500)),
        *(WrongRange(), NoRange(), Etag('"other"'), Dribble(512)),
    ]
    for number, fault in enumerate(faults):
        proxy.hurt(fault, chance=0.06, seed=number)
    outcomes = {"right": 0, "failed": 0}
    for number in range(60):
        verb = ["get_ranges", "suffix", "stream", "get"][number % 4]
        try:
            reads(store, verb)
        except StoreError:
            outcomes["failed"] += 1
        else:
            outcomes["right"] += 1
    assert min(outcomes.values()) > 5


def test_credentials_that_run_out_are_renewed_on_the_way(proxy: Proxy) -> None:
    """A token that stops being taken in the middle of a job costs one more request."""
    tokens = iter(["Bearer one", "Bearer two"])
    store = WebStore.at(f"{proxy.url}/dav", lambda: {"headers": {"Authorization": next(tokens)}})
    proxy.hurt(Denied("one"), first=3)
    for _ in range(3):
        reads(store, "suffix")
    proxy.heal()
    proxy.hurt(Denied("two"))
    for _ in range(3):
        reads(store, "suffix")
    assert proxy.num_requests == 7
