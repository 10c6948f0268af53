"""What an answer says of the object it is about, and which requests read some ranges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Body", "Span", "body_of", "content_range", "object_etag", "spans"]

_CONTENT_RANGE: Final = re.compile(
    r"\s*bytes\s+(?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)\s*", re.ASCII
)
_GAP_BYTES: Final = 64 << 10
"""Reading so many bytes in vain costs no more than another request."""
_OK: Final = 200
_PARTIAL: Final = 206


def content_range(text: str) -> tuple[int, int, int | None] | None:
    """Return (first byte, end, size of the object or None) of a `Content-Range`, None if it is bad.

    Example:
        >>> content_range("bytes 5-9/20"), content_range("bytes */20"), content_range("5-9")
        ((5, 10, 20), (0, 0, 20), None)
    """
    match = _CONTENT_RANGE.fullmatch(text)
    if match is None:
        return None
    size = None if match[3] == "*" else int(match[3])
    if match[1] is None:
        return 0, 0, size
    first, end = int(match[1]), int(match[2]) + 1
    return None if first >= end or (size is not None and end > size) else (first, end, size)


def object_etag(headers: Mapping[str, str]) -> str:
    """Return what changes with each version of the object, as far as the server says."""
    etag = headers.get("etag", "").strip()
    return etag or headers.get("last-modified", "").strip()


class Body(NamedTuple):
    """Which bytes of an object a body has."""

    start: int
    """The first one."""
    size: int | None
    """Bytes of the whole object; None if the server does not say."""
    etag: str
    """Its version; empty if the server does not say."""


def body_of(
    status: int, headers: Mapping[str, str], length: int | None, *, start: int, stop: int | None
) -> Body | str:
    """Return what the answer to a request for `start` to `stop` has, or what is wrong with it.

    `start` may count from the end. A server that does not know ranges sends the whole object, which
    is right as well; the caller leaves out what it did not want. Some send a range with status 200.
    """
    etag = object_etag(headers)
    text = headers.get("content-range", "")
    if status == _OK and not text:
        return Body(0, length, etag)
    if status not in {_OK, _PARTIAL}:
        return f"status {status} where 200 or 206 was expected"
    found = content_range(text)
    if found is None or found[0] == found[1]:
        return f"status {status} with the Content-Range {text!r:.80}"
    first, end, size = found
    if length is not None and length != end - first:
        return f"Content-Range {text!r:.80} with a body of {length} bytes"
    wanted = start if start >= 0 or size is None else max(0, start + size)
    if first != wanted:
        return f"Content-Range {text!r:.80} where byte {wanted} was to be the first"
    last = size if stop is None else stop if size is None else min(stop, size)
    if last is not None and end != last:
        return f"Content-Range {text!r:.80} where byte {last - 1} was to be the last"
    return Body(first, size, etag)


class Span(NamedTuple):
    """Bytes to be read by one request, and the ranges that lie in there."""

    start: int
    stop: int
    members: tuple[int, ...]
    """Positions of the ranges among all."""


def spans(ranges: Sequence[tuple[int, int]], gap: int = _GAP_BYTES) -> list[Span]:
    """Return the requests that read all ranges: those with small gaps between them together.

    Example:
        >>> [(span.start, span.stop, span.members) for span in spans([(900, 950), (0, 5)], gap=10)]
        [(0, 5, (1,)), (900, 950, (0,))]
    """
    order = sorted((i for i, (a, b) in enumerate(ranges) if a < b), key=lambda i: ranges[i])
    found: list[Span] = []
    for i in order:
        start, stop = ranges[i]
        if found and start <= found[-1].stop + gap:
            last = found[-1]
            found[-1] = Span(last.start, max(last.stop, stop), (*last.members, i))
        else:
            found.append(Span(start, stop, (i,)))
    return found
