"""Signatures of requests as Oracle wants them. Pure: the moment is given."""

from __future__ import annotations

import base64
import hashlib
from email.utils import format_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_core._extras import require
from streaming_core.errors import AccessDeniedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

__all__ = ["Identity", "signature_headers"]

_PURPOSE: Final = "signing requests to oci://"
_ALWAYS: Final = ("date", "(request-target)", "host")
_OF_BODIES: Final = ("content-length", "content-type", "x-content-sha256")


class Identity(NamedTuple):
    """What proves who we are."""

    key_id: str
    """Tenancy, user and fingerprint, or a token of a session."""
    key: str
    """The private key, as PEM."""
    pass_phrase: str = ""
    """What the key is locked with."""

    def __repr__(self) -> str:
        return "Identity(...)"


def signature_headers(
    identity: Identity,
    moment: datetime,
    *,
    method: str,
    host: str,
    target: str,
    body: Sequence[memoryview] | None = None,
) -> dict[str, str]:
    """Return the headers that sign a request: date, what tells of the body, and authorisation.

    `target` is path and query as they are sent, `moment` in UTC. The `body` is signed with what is
    posted; objects that are put are not, they have a checksum.

    Raises:
        AccessDeniedError: The key is none, or its pass phrase is wrong.
        MissingExtraError: The package that knows the algorithm is not installed.
    """
    added = {"date": format_datetime(moment, usegmt=True)}
    signed = {**added, "(request-target)": f"{method.lower()} {target}", "host": host}
    names: tuple[str, ...] = _ALWAYS
    if body is not None:
        names += _OF_BODIES
        digest = hashlib.sha256(b"".join(body)).digest()
        added["content-type"] = "application/json"
        added["x-content-sha256"] = base64.b64encode(digest).decode()
        signed |= added | {"content-length": str(sum(map(len, body)))}
    text = "\n".join(f"{name}: {signed[name]}" for name in names)
    added["authorization"] = (
        f'Signature version="1",headers="{" ".join(names)}",keyId="{identity.key_id}",'
        f'algorithm="rsa-sha256",signature="{_signature(identity, text.encode())}"'
    )
    return added


def _signature(identity: Identity, text: bytes) -> str:
    primitives = "cryptography.hazmat.primitives"
    hashes: Any = require(f"{primitives}.hashes", extra="oci", purpose=_PURPOSE)
    padding: Any = require(f"{primitives}.asymmetric.padding", extra="oci", purpose=_PURPOSE)
    signature: bytes = _loaded(identity).sign(text, padding.PKCS1v15(), hashes.SHA256())
    return base64.b64encode(signature).decode()


@lru_cache(maxsize=8)
def _loaded(identity: Identity) -> Any:  # noqa: ANN401 - of a package that may be missing
    serialization: Any = require(
        "cryptography.hazmat.primitives.serialization", extra="oci", purpose=_PURPOSE
    )
    password = identity.pass_phrase.encode() or None
    try:
        key = serialization.load_pem_private_key(identity.key.encode(), password)
    except (TypeError, ValueError):
        # Not chained: what parsers quote may be of the key.
        msg = (
            "the private key for Oracle is no PEM document, or its pass phrase is wrong or "
            "missing; check key_file and pass_phrase"
        )
        raise AccessDeniedError(msg) from None
    if not hasattr(key, "private_numbers") or not hasattr(key.private_numbers(), "dmp1"):
        msg = "the private key for Oracle is not an RSA key; it signs with no other"
        raise AccessDeniedError(msg)
    return key
