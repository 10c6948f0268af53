"""Requests as the tests of this folder make them."""

from __future__ import annotations

from streaming_core._store._http._wire import Origin, Request, Timeouts, exchange

__all__ = ["OK", "PATIENT", "STALL", "read", "request"]

PATIENT = Timeouts(connect=60.0, stall=60.0)
"""For what answers: no machine is slow enough for these to end."""
STALL = Timeouts(connect=60.0, stall=0.5)
"""For what never answers."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


def request(url: str, method: str = "GET", **more: object) -> Request:
    """Return a request for a URL; `more` is as for `Request`."""
    origin = Origin.of(url)
    given = {"headers": {}, "timeouts": PATIENT, **more}
    return Request(method, origin, url.removeprefix(origin.text) or "/", **given)  # type: ignore[arg-type]


def read(url: str, method: str = "GET", **more: object) -> tuple[int, bytes]:
    """Send it, and return status and body."""
    with exchange(request(url, method, **more)) as answer:
        return answer.status, answer.read(1 << 20)
