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

__all__ = ["EMPTY_SHA256", "UNSIGNED", "Keys", "signature_headers", "signing_key"]

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
    own = [
        (lowered, " ".join(value.split()))
        for name, value in headers.items()
        if (lowered := name.lower()) in _SIGNED or lowered.startswith("x-amz-")
    ]
    asked = query_text(query) if query else ""
    return {**_proof(keys, region, moment, method, host, path, asked, tuple(own), payload)}


@lru_cache(maxsize=1024)
def _proof(
    keys: Keys,
    region: str,
    moment: datetime,
    method: str,
    host: str,
    path: str,
    query: str,
    own: tuple[tuple[str, str], ...],
    payload: str,
) -> Mapping[str, str]:
    """Return the headers; of many ranges of one object in one moment they are the same."""
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-content-sha256": payload, "x-amz-date": stamp}
    if keys.token:
        added["x-amz-security-token"] = keys.token
    signed = {"host": host, **added, **dict(own)}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = signing_key(f"AWS4{keys.secret_key}", scope)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    added["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return added


@lru_cache(maxsize=16)
def signing_key(secret: str, scope: str) -> bytes:
    """Return what signs the requests of one day, region and service, which `scope` names."""
    key = secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
