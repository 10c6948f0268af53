"""The way to one bucket: signing, and learning from refusals where it is and what time it is."""

from __future__ import annotations

import base64
import hashlib
import re
import time
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from streaming_core._store._http import (
    Answer,
    Call,
    Gate,
    Origin,
    Refusal,
    RefusedError,
    connection_options,
)
from streaming_core._store._http._wire import FAILURES, Request, exchange
from streaming_core._store._s3._credentials import Credentials
from streaming_core._store._s3._documents import error_of
from streaming_core._store._s3._place import is_requester_pays, wants_checksums
from streaming_core._store._s3._sign import EMPTY_SHA256, UNSIGNED, signature_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_core._store._options import Options
    from streaming_core._store._s3._place import Place
    from streaming_core._store._s3._sign import Keys

__all__ = ["S3Gate"]

EXPIRED: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",  # an old key that was removed when the new one was made
        "InvalidToken",
        "RequestExpired",
        "TokenRefreshRequired",
    }
)
"""What is said of credentials that were good once."""
_SKEWED: Final = "RequestTimeTooSkewed"
_SKEW: Final = timedelta(seconds=60)
_MOMENT_SECONDS: Final = 10
_DEFAULT_REGION: Final = "us-east-1"
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_REGION_OF_HOST: Final = re.compile(r"[./]s3[.-]([a-z0-9-]+)\.amazonaws\.com")
_REDIRECTED: Final = 300
_NOT_FOUND: Final = 404
_DENIED: Final = frozenset({401, 403})
_SILENT: Final = frozenset({400, 403, 404})
"""The answers to HEAD that may mean anything, because they have no body."""
_ERROR_BYTES: Final = 64 << 10


class _Way(NamedTuple):
    """Where the bucket is, as far as is known."""

    region: str
    origin: Origin
    base: str


class _Attempt(NamedTuple):
    """What one request is made with."""

    way: _Way
    keys: Keys | None
    ahead: timedelta


@dataclass(slots=True)
class _Learned:
    """What answers have taught; each value is replaced whole, so threads need no lock."""

    way: _Way
    ahead: timedelta = timedelta()
    """How much the service's clock is ahead of ours."""
    exists: bool = False
    """Whether the bucket has answered a request with success."""
    creates_only: bool = True
    """Whether the service can refuse to replace an object."""


class S3Gate(Gate):
    """One bucket of one S3 service, under one identity."""

    def __init__(self, place: Place, options: Options) -> None:
        way = _way(place, place.region or _DEFAULT_REGION)
        super().__init__(way.origin.text + way.base, **connection_options(options, "AWS_CA_BUNDLE"))
        self.bucket = place.bucket
        self.learned = _Learned(way)
        self._place = place
        self._credentials = Credentials(options)
        self._extra: dict[str, str] = {}
        if is_requester_pays(place.bucket, options):
            self._extra["x-amz-request-payer"] = "requester"
        self._checksums = wants_checksums(options)

    # --- what a request needs ---------------------------------------------------------------------

    @property
    def root(self) -> str:
        """The path of the bucket itself, below the gate's."""
        return "" if self.learned.way.base else "/"

    @property
    def service(self) -> str:
        """The URL of the service, as far as all its buckets have it."""
        way = self.learned.way
        return way.origin.text + way.base.removesuffix(f"/{quote(self.bucket)}")

    def checksum(self, body: Sequence[memoryview]) -> str:
        """Return the CRC-32 of a body as S3 writes it; empty if the store is not to verify any."""
        if not self._checksums:
            return ""
        crc = 0
        for view in body:
            crc = zlib.crc32(view, crc)
        return base64.b64encode(crc.to_bytes(4, "big")).decode()

    def absence(self) -> str:
        """Return why requests are not signed; empty if they are."""
        return self._credentials.absence()

    def signed(self, call: Call) -> Call:
        """Add the signature, if there are keys."""
        return call._replace(headers=self._headers(call, self._attempt()))

    # --- sending ----------------------------------------------------------------------------------

    def send(self, call: Call) -> Answer:
        """Return the answer to a call; see `Gate.send`.

        A refusal that teaches something - another region, the service's clock, that keys have run
        out - is tried again with that, once for each.
        """
        lessons: set[str] = set()
        while True:
            attempt = self._attempt()
            try:
                answer = self._answered(call, attempt)
            except RefusedError as refused:
                error = self._reason(call, attempt, refused)
                lesson = self._lesson(error, attempt, lessons)
                if not lesson:
                    raise error from None
                lessons.add(lesson)
            else:
                self.learned.exists = True
                return answer

    def _attempt(self) -> _Attempt:
        learned = self.learned
        return _Attempt(learned.way, self._credentials.keys(), learned.ahead)

    def _headers(self, call: Call, attempt: _Attempt) -> dict[str, str]:
        """Return what goes with a call, its signature too if there are keys."""
        headers = {**self._extra, **call.headers}
        if attempt.keys is None:
            return headers
        proof = signature_headers(
            attempt.keys,
            attempt.way.region,
            _signed_at(time.time() + attempt.ahead.total_seconds()),
            method=call.method,
            host=attempt.way.origin.authority,
            path=call.path,
            query=call.query,
            headers=headers,
            payload=_payload(call.body, attempt.way.origin.scheme),
        )
        return headers | proof

    def _answered(self, call: Call, attempt: _Attempt) -> Answer:
        """Return the answer to one request; redirects are refusals, as they need new signatures."""
        way = attempt.way
        call = call._replace(path=way.base + call.path)
        answer = exchange(
            Request(
                method=call.method,
                origin=way.origin,
                target=call.target,
                headers=self._headers(call, attempt),
                body=call.body,
                once=call.once,
                timeouts=self.timeouts,
                ca_file=self.ca_file,
                allow_http=self.allow_http,
            )
        )
        if answer.status < _REDIRECTED:
            return answer
        with answer:
            code, message, region = error_of(_error_body(answer, call.method))
        headers = {"x-amz-bucket-region": region} if region else {}
        raise RefusedError(answer.status, {**headers, **answer.headers}, Refusal(code, message))

    def _reason(self, call: Call, attempt: _Attempt, error: RefusedError) -> RefusedError:
        """Return a refusal that says why: that of HEAD does not, so the same is asked with GET."""
        if call.method != "HEAD" or error.status not in _SILENT:
            return error
        if error.status == _NOT_FOUND and self.learned.exists:
            return error
        first = {**call.headers, "Range": "bytes=0-0"}
        try:
            self._answered(Call("GET", call.path, call.query, first), attempt).close()
        except RefusedError as said:
            return said if said.status == error.status else error
        except FAILURES:
            return error
        return error

    # --- learning ---------------------------------------------------------------------------------

    def _lesson(self, error: RefusedError, attempt: _Attempt, had: set[str]) -> str:
        """Learn from a refusal; return what it was about, or nothing if it was no news."""
        region = _region_of(error)
        if "region" not in had and region and region != attempt.way.region:
            self.learned.way = _way(self._place, region)
            return "region"
        if "clock" not in had and error.refusal.code == _SKEWED:
            ahead = _ahead(error.headers.get("date", ""))
            if ahead is not None and abs(ahead - attempt.ahead) > _SKEW:
                self.learned.ahead = ahead
                return "clock"
        run_out = error.refusal.code in EXPIRED
        # Without keys it may be that those who give them were not to be reached before.
        refused = error.status in _DENIED and (attempt.keys is None or not error.refusal.code)
        if "keys" not in had and (run_out or refused) and self._credentials.renew(attempt.keys):
            return "keys"
        return ""


def _error_body(answer: Answer, method: str) -> bytes:
    """Return what an error comes with; the error stands, even if that is cut short."""
    try:
        return b"" if method == "HEAD" else answer.read(_ERROR_BYTES)
    except FAILURES:
        return b""


def _signed_at(seconds: float) -> datetime:
    """Return the moment to sign with: one for all requests of a few seconds, which cost less so.

    Services take what was signed in the last quarter of an hour.
    """
    return datetime.fromtimestamp(seconds // _MOMENT_SECONDS * _MOMENT_SECONDS, UTC)


def _way(place: Place, region: str) -> _Way:
    url = place.url(region)
    return _Way(region, Origin.of(url), urlsplit(url).path.rstrip("/"))


def _region_of(error: RefusedError) -> str:
    """Return the region that a refusal names."""
    region = error.headers.get("x-amz-bucket-region", "")
    if not region and error.status < 400:  # noqa: PLR2004 - a redirect
        host = _REGION_OF_HOST.search(error.headers.get("location", ""))
        region = host[1] if host else ""
    # It becomes part of a host's name.
    return region if _REGION.fullmatch(region) else ""


def _ahead(date: str) -> timedelta | None:
    try:
        return parsedate_to_datetime(date) - datetime.now(UTC)
    except (TypeError, ValueError):
        return None


def _payload(body: Sequence[memoryview], scheme: str) -> str:
    """Return the hash of a body; where the line itself guards it, that is left out."""
    if not body:
        return EMPTY_SHA256
    if scheme == "https":
        return UNSIGNED
    digest = hashlib.sha256()
    for view in body:
        digest.update(view)
    return digest.hexdigest()
