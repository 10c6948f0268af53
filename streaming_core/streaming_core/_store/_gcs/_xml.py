"""Google Cloud Storage with HMAC keys: the language of S3, in Google's dialect of it.

Amazon's own dialect would be understood too, but not its way to create only: Google overlooks an
`If-None-Match` with a write, and refuses its own header for that beside those of Amazon.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from streaming_core._names import name_problem
from streaming_core._store._contract import ObjectInfo, byte_views, check_key, check_prefix
from streaming_core._store._gcs._place import no_bucket, place_of, plain, project_of
from streaming_core._store._http import (
    Answer,
    Call,
    Gate,
    HttpStore,
    Refusal,
    RefusedError,
    connection_options,
    object_etag,
    query_text,
    sent,
)
from streaming_core._store._s3._documents import DocumentError, error_of, object_page
from streaming_core._store._s3._sign import signing_key
from streaming_core.errors import ObjectNotFoundError, SchemaError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming_core._store._contract import Buffer
    from streaming_core._store._gcs._place import Place
    from streaming_core._store._options import Options, StorageOptions

__all__ = ["GCSKeyStore", "Keys", "google_headers"]

_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_LOCATION: Final = "auto"
_PAGE_BYTES: Final = 64 << 20
_DENIED: Final = frozenset({401, 403})
_SKEWED: Final = "RequestTimeTooSkewed"


class Keys(NamedTuple):
    """An HMAC key of a service account or user."""

    key_id: str
    secret: str

    def __repr__(self) -> str:
        return "Keys(...)"


def google_headers(
    keys: Keys,
    moment: datetime,
    *,
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
) -> dict[str, str]:
    """Return the headers that sign a request with `GOOG4-HMAC-SHA256`.

    `path` is percent-encoded, as it is sent. Of `headers` those of Google's own are signed.

    Example:
        >>> headers = google_headers(
        ...     Keys("id", "secret"),
        ...     datetime(2026, 1, 2, tzinfo=UTC),
        ...     method="GET",
        ...     host="storage.googleapis.com",
        ...     path="/bucket/a",
        ...     query={},
        ...     headers={},
        ... )
        >>> headers["Authorization"].partition(",")[0]
        'GOOG4-HMAC-SHA256 Credential=id/20260102/auto/storage/goog4_request'
    """
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    added = {"x-goog-content-sha256": _UNSIGNED, "x-goog-date": stamp}
    signed = {"host": host, **added}
    for name, value in headers.items():
        if name.lower().startswith("x-goog-"):
            signed[name.lower()] = " ".join(value.split())
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = "\n".join([method, path, query_text(query), lines, names, _UNSIGNED])
    scope = f"{stamp[:8]}/{_LOCATION}/storage/goog4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"GOOG4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = signing_key(f"GOOG4{keys.secret}", scope)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    added["Authorization"] = (
        f"GOOG4-HMAC-SHA256 Credential={keys.key_id}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return added


class GCSKeyGate(Gate):
    """One bucket of Google Cloud Storage, for who has an HMAC key."""

    def __init__(self, place: Place, options: Options) -> None:
        endpoint = f"{place.endpoint.rstrip('/')}/{quote(place.bucket, safe='')}"
        super().__init__(endpoint, **connection_options(options))
        self._options = options
        self._payer = project_of(options, "user_project") or project_of(options, "project")
        self._ahead = timedelta()
        """How much the service's clock is ahead of ours."""
        self._keys()  # what cannot be sent is refused now

    def signed(self, call: Call) -> Call:
        """Sign the call."""
        sent.proof = self._options.renewals
        headers = dict(call.headers)
        if self._payer:
            headers["x-goog-user-project"] = self._payer
        proof = google_headers(
            self._keys(),
            datetime.now(UTC) + self._ahead,
            method=call.method,
            host=self.origin.authority,
            path=call.path,
            query=call.query,
            headers=headers,
        )
        return call._replace(headers=headers | proof)

    def is_expired(self, status: int, refusal: Refusal) -> bool:
        """Tell whether another key may help: keys do not run out, but are replaced."""
        return status in _DENIED and refusal.code != _SKEWED

    def renew(self) -> bool:
        """Ask for another key, where a function gives them."""
        return self._options.renew(sent.proof)

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return code and message; the rest of the document may name keys."""
        code, message, _ = error_of(plain(headers, body))
        return Refusal(code, message)

    def send(self, call: Call) -> Answer:
        """Return the answer; learns the service's time from a refusal."""
        try:
            return super().send(call)
        except RefusedError as error:
            if error.refusal.code != _SKEWED or "date" not in error.headers:
                raise
            self._ahead = parsedate_to_datetime(error.headers["date"]) - datetime.now(UTC)
        return super().send(call)

    def _keys(self) -> Keys:
        options = self._options
        if options.get("hmac_key_id"):
            keys = Keys(str(options.get("hmac_key_id")), str(options.get("hmac_secret")))
        else:
            keys = Keys(os.environ.get("GCS_KEY", ""), os.environ.get("GCS_SECRET", ""))
        if not keys.key_id.isascii() or not keys.key_id.isalnum():
            msg = (
                "the id of an HMAC key (storage option hmac_key_id, variable GCS_KEY) has letters "
                "and digits only; came something else"
            )
            raise SchemaError(msg)
        return keys


class GCSKeyStore(HttpStore):
    """The objects below a folder of a bucket, for who has an HMAC key.

    Example:
        >>> GCSKeyStore.at("gs://bucket/a", {"hmac_key_id": "GOOG1E", "hmac_secret": "secret"})
        GCSKeyStore('gs://bucket/a')
    """

    __slots__ = ()

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> GCSKeyStore:
        """Return the store at a `gs://` URL; see the guide on storage for the options.

        Raises `SchemaError` for a URL without a bucket, and for options that are none.
        """
        place, known = place_of(url, options)
        return cls(GCSKeyGate(place, known), place.root, place.prefix)

    def _path(self, key: str) -> str:
        return "/" + quote(self._prefix + key, safe="/-_.~")

    def _send(self, method: str, key: str, headers: Mapping[str, str] | None = None) -> Answer:
        # As for `GCSStore`: what is stored compressed is to come so.
        return super()._send(method, key, {"Accept-Encoding": "gzip", **(headers or {})})

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects, a thousand per request; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        while True:
            with self._errors("", "list"), self._gate.send(Call("GET", "", query)) as answer:
                asked = query.get("continuation-token", "")
                page = object_page(answer.read(_PAGE_BYTES), asked)
            for entry in page.entries:
                key = entry.key.removeprefix(self._prefix)
                # Folders that consoles make are objects whose names end in a slash.
                if entry.key.startswith(prefix) and name_problem(key) is None:
                    yield ObjectInfo(key, entry.size, entry.etag)
            if not page.next_token:
                return
            query["continuation-token"] = page.next_token

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the object in one request, of any size; see `Store.put`.

        Uploads in parts have no way to create only here, and no checksum of the whole.
        """
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        digest = hashlib.md5(usedforsecurity=False)
        for view in views:
            digest.update(view)
        headers = {
            "Content-MD5": base64.b64encode(digest.digest()).decode(),
            "Content-Type": "application/octet-stream",
        }
        if if_absent:
            headers["x-goog-if-generation-match"] = "0"
        call = Call("PUT", self._path(key), {}, headers, views, once=if_absent)
        with self._errors(key, "put"), self._gate.send(call) as answer:
            etag = object_etag(answer.headers)
        return ObjectInfo(key, sum(map(len, views)), etag)

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine, a missing bucket is not."""
        check_key(key, url=self.url, operation="delete")
        try:
            with self._errors(key, "delete"):
                self._gate.send(Call("DELETE", self._path(key))).close()
        except ObjectNotFoundError:
            return

    def _tell(self, error: Exception, key: str, operation: str) -> None:
        """Tell a missing bucket from a missing object, and say where errors are from."""
        what = self._said(key, operation)
        if isinstance(error, DocumentError):
            msg = f"{what}: {error}"
            raise StoreError(msg) from None
        if isinstance(error, RefusedError) and error.refusal.code == "NoSuchBucket":
            raise no_bucket(what, self._root, error) from None
        super()._tell(error, key, operation)
