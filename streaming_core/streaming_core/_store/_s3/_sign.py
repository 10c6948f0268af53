"""AWS Signature Version 4, as S3 wants it. Pure: the moment is given."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_core._store._http import query_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = ["EMPTY_SHA256", "UNSIGNED", "Keys", "signature_headers"]

EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()
"""The hash of a request without a body."""
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
"""What stands for the hash of a body that is not signed; its checksum has a header of its own."""
_SIGNED: Final = frozenset({"content-md5", "content-type"})


class Keys(NamedTuple):
    """What proves an identity."""

    access_key: str
    secret_key: str
    token: str = ""
    """Of temporary keys only."""

    def __repr__(self) -> str:
        return "Keys(...)"


def signature_headers(
    keys: Keys,
    region: str,
    moment: datetime,
    *,
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    payload: str,
) -> dict[str, str]:
    """Return the headers that sign a request: date, hash of the body, token and authorisation.

    `path` is percent-encoded, as it is sent. Of `headers` those of Amazon's own are signed, and
    those that say what the body is.

    Example:
        >>> from datetime import UTC, datetime
        >>> headers = signature_headers(
        ...     Keys("id", "secret"),
        ...     "us-east-1",
        ...     datetime(2026, 1, 2, tzinfo=UTC),
        ...     method="GET",
        ...     host="b.s3.amazonaws.com",
        ...     path="/a",
        ...     query={},
        ...     headers={},
        ...     payload=EMPTY_SHA256,
        ... )
        >>> headers["Authorization"][-64:][:16]
        '27b7de2e34ddcdac'
    """
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-content-sha256": payload, "x-amz-date": stamp}
    if keys.token:
        added["x-amz-security-token"] = keys.token
    signed = {"host": host, **added}
    for name, value in headers.items():
        lowered = name.lower()
        if lowered.startswith("x-amz-") or lowered in _SIGNED:
            signed[lowered] = " ".join(value.split())
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = "\n".join([method, path, query_text(query), lines, names, payload])
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = _signing_key(keys.secret_key, stamp[:8], region)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    added["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return added


@lru_cache(maxsize=16)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
