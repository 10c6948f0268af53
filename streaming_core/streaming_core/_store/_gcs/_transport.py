"""How Google's library for credentials reaches its services: over the one HTTP client there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from streaming_core._extras import require
from streaming_core._store._http._wire import FAILURES, Origin, Request, Timeouts, exchange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ask"]

_MOST_BYTES: Final = 1 << 20


class _Answer(NamedTuple):
    """What Google's library reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def ask(
    url: str,
    method: str = "GET",
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: Any,  # noqa: ANN401 - what other transports know
) -> _Answer:
    """Send one request of Google's library; raises its `TransportError` where there is no answer.

    `timeout` bounds each wait, not the whole.
    """
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    data = body.encode() if isinstance(body, str) else body or b""
    views: Sequence[memoryview] = [memoryview(data)] if data else ()
    usual = Timeouts()
    limit = usual.stall if timeout is None else timeout
    request = Request(
        method,
        Origin.of(url),
        target,
        dict(headers or {}),
        views,
        timeouts=Timeouts(min(limit, usual.connect), min(limit, usual.stall)),
    )
    try:
        with exchange(request) as answer:
            return _Answer(answer.status, answer.headers, answer.read(_MOST_BYTES))
    except FAILURES as error:
        errors = require("google.auth.exceptions", extra="gcs", purpose="Google's credentials")
        msg = f"{Origin.of(url).text}: {type(error).__name__}: {error}"
        raise errors.TransportError(msg) from error
