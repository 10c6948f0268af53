"""Azure's Shared Key signature. Pure: the moment is among the headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["authorization"]

_STANDARD: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
"""The headers that are signed by position, without their names."""


def authorization(
    account: str,
    key: bytes,
    *,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    length: int,
) -> str:
    """Return the value of the header that signs a request.

    `path` is percent-encoded, as it is sent; `query` has plain texts; `headers` must have
    `x-ms-date`, and those with `x-ms-` are all signed. `length` is the size of the body.

    Example:
        >>> authorization(
        ...     "account",
        ...     b"key",
        ...     method="GET",
        ...     path="/container/a",
        ...     query={},
        ...     headers={"x-ms-date": "Fri, 02 Jan 2026 00:00:00 GMT"},
        ...     length=0,
        ... )
        'SharedKey account:F9m6h6QTD6ODx7XqXcU3+Bx78ng7B67+HxsRoRmKXv8='
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    lower["content-length"] = str(length or "")
    lines = [method, *(lower.get(name, "") for name in _STANDARD)]
    lines += [f"{name}:{lower[name]}" for name in sorted(lower) if name.startswith("x-ms-")]
    lines.append(f"/{account}{path}")
    lines += [f"{name.lower()}:{query[name]}" for name in sorted(query, key=str.lower)]
    digest = hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"
