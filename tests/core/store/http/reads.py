"""The reading verbs of a store, each with what is right, and how it fails."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_core._store._http import WebStore

__all__ = [
    "BODY",
    "DEADLINE_SECONDS",
    "PATIENT_SECONDS",
    "RANGES",
    "READS",
    "SIZE",
    "STALL_SECONDS",
    "WITH_BODY",
    "fails",
    "reads",
    "wait_until",
]

SIZE = 300_000
BODY = hashlib.shake_128(b"body").digest(SIZE)
STALL_SECONDS = 0.3
"""The timeout of stores whose server never answers."""
PATIENT_SECONDS = 120.0
"""The timeout of all others."""
DEADLINE_SECONDS = 60.0
"""How long an error may take: no patient store has waited in vain by then."""
RANGES = [(0, 2000), (200_000, 202_000), (299_000, SIZE)]


def _streamed(store: WebStore, start: int = 0) -> bytes:
    with closing(store.stream("set/a", start=start)) as pieces:
        return b"".join(map(bytes, pieces))


READS: dict[str, tuple[Callable[[WebStore], object], object]] = {
    "get": (lambda store: store.get("set/a"), BODY),
    "get_ranges": (
        lambda store: list(store.get_ranges("set/a", list(RANGES))),
        [BODY[start:stop] for start, stop in RANGES],
    ),
    "suffix": (lambda store: list(store.get_ranges("set/a", [(-5000, None)])), [BODY[-5000:]]),
    "stream": (_streamed, BODY),
    "stream-on": (lambda store: _streamed(store, 1000), BODY[1000:]),
    "head": (lambda store: store.head("set/a").size, SIZE),
}
"""Verb -> how it is called, and what is right."""
WITH_BODY = [name for name in READS if name != "head"]


def fails(store: WebStore, verb: str, kind: type[StoreError] = StoreError) -> StoreError:
    """Call a verb and return its error, which came in time and says where."""
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        READS[verb][0](store)
    assert time.monotonic() - began < DEADLINE_SECONDS
    assert "'set/a'" in str(caught.value)
    assert store.url in str(caught.value)
    return caught.value


def reads(store: WebStore, verb: str) -> None:
    """Call a verb, which is right."""
    act, right = READS[verb]
    assert act(store) == right


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
