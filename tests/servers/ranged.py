"""What services of all kinds answer to a request for some bytes of an object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from tests.servers.web import Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.web import Asked

__all__ = ["ranged", "said_json"]

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")


def ranged(asked: Asked, data: bytes, headers: Mapping[str, str]) -> Said:
    """Return the object, or the one range that `Range` names, as HTTP has it."""
    headers = {"Accept-Ranges": "bytes", **headers}
    match = _RANGE.fullmatch(asked.headers.get("range", ""))
    size = len(data)
    if match is None or not (match[1] or match[2]):
        return Said(200, data, headers)
    if match[1]:
        start, stop = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    else:
        start, stop = max(0, size - int(match[2])), size
    if start >= stop:
        return Said(416, b"", {"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return Said(206, data[start:stop], headers)


def said_json(document: Any, status: int = 200, **headers: str) -> Said:
    """Return a document as an answer; underscores in names of headers stand for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = msgspec.json.encode(document)
    return Said(status, body, {"Content-Type": "application/json", **named})
