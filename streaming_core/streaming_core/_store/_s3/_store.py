"""Objects in a bucket of S3, or of a store that speaks its language."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import quote

from streaming_core._names import name_problem
from streaming_core._store._contract import ObjectInfo, byte_views, check_key, check_prefix
from streaming_core._store._http import Call, HttpStore, RefusedError, object_etag
from streaming_core._store._options import Options
from streaming_core._store._s3._documents import DocumentError, object_page
from streaming_core._store._s3._gate import EXPIRED, S3Gate
from streaming_core._store._s3._place import place_of
from streaming_core._store._s3._upload import abort, unfinished, upload
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming_core._store._contract import Buffer
    from streaming_core._store._options import StorageOptions

__all__ = ["S3Store", "s3_from_url"]

_log = logging.getLogger("streaming_core.store")

_SINGLE_BYTES: Final = 16 << 20
"""Up to this size an object is sent in one request."""
_PAGE_BYTES: Final = 64 << 20
_KNOWN: Final = (
    "account_id",
    "addressing_style",
    "anonymous",
    "allow_http",
    "ca_file",
    "canned_acl",
    "checksums",
    "endpoint_url",
    "profile",
    "region",
    "requester_pays",
)
_SECRET: Final = ("access_key_id", "secret_access_key", "session_token")
_NOT_IMPLEMENTED: Final = 501
_CONFLICT: Final = 409
_DENIED: Final = frozenset({401, 403})


class S3Store(HttpStore):
    """The objects below a folder of a bucket.

    Example:
        >>> S3Store.at("s3://bucket/folder", {"endpoint_url": "http://127.0.0.1:9000"})
        S3Store('s3://bucket/folder')
    """

    __slots__ = ("_acl",)

    def __init__(self, gate: S3Gate, root: str, prefix: str = "", acl: str = "") -> None:
        super().__init__(gate, root, prefix)
        self._acl = acl

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> S3Store:
        """Return the store at an `s3://` or `r2://` URL; see the guide on storage for the options.

        Raises `SchemaError` for a URL without a bucket, and for options that are none.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, folder = rest.partition("/")
        known = Options(options, known=_KNOWN, secret=_SECRET)
        place = place_of(scheme.lower(), bucket, known)
        folder = folder.strip("/")
        problem = name_problem(folder) if folder else None
        if problem is not None:
            msg = f"{scheme}://{bucket}/{folder}: the folder is refused, {problem}; give another"
            raise SchemaError(msg)
        acl = str(known.get("canned_acl", "S3_CANNED_ACL", default=""))
        prefix = f"{folder}/" if folder else ""
        return cls(S3Gate(place, known), f"{scheme.lower()}://{bucket}", prefix, acl)

    def _rooted(self, prefix: str) -> Self:
        return type(self)(self._s3, self._root, prefix, self._acl)

    @property
    def _s3(self) -> S3Gate:
        return cast("S3Gate", self._gate)

    def _path(self, key: str) -> str:
        return "/" + quote(self._prefix + key, safe="/-_.~")

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects, a thousand per request; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        while True:
            with (
                self._errors("", "list"),
                self._gate.send(Call("GET", self._s3.root, query)) as answer,
            ):
                asked = query.get("continuation-token", "")
                page = object_page(answer.read(_PAGE_BYTES), asked)
            for entry in page.entries:
                key = entry.key.removeprefix(self._prefix)
                # Folders that consoles make are objects of no bytes whose names end in a slash.
                if entry.key.startswith(prefix) and name_problem(key) is None:
                    yield ObjectInfo(key, entry.size, entry.etag)
            if not page.next_token:
                return
            query["continuation-token"] = page.next_token

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the object, a large one in parts that are sent side by side; see `Store.put`.

        Where the store cannot create only, a look comes before the put, and a log entry says so:
        two that put at the same moment may then both succeed.
        """
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        with self._errors(key, "put"):
            if not if_absent:
                etag = self._put(key, views)
            elif self._s3.learned.creates_only:
                etag = self._created(key, views)
            else:
                etag = self._put_unless_there(key, views)
        return ObjectInfo(key, sum(map(len, views)), etag) if etag else self.head(key)

    def _created(self, key: str, views: Sequence[memoryview]) -> str:
        if sum(map(len, views)) > _SINGLE_BYTES:
            # Some heed the condition with a single request, and not when parts are joined.
            self._refuse_existing(key)
        try:
            return self._put(key, views, only={"If-None-Match": "*"})
        except RefusedError as error:
            if error.status == _CONFLICT:
                self._refuse_existing(key)
                raise
            if error.status != _NOT_IMPLEMENTED:
                raise
        etag = self._put_unless_there(key, views)
        # Only now it is known that nothing else was what the store could not do.
        self._s3.learned.creates_only = False
        _log.warning(
            "%s: this store cannot create only; it is asked first whether the object is there, so "
            "two that put it at the same moment may both succeed",
            self.url,
        )
        return etag

    def _put_unless_there(self, key: str, views: Sequence[memoryview]) -> str:
        self._refuse_existing(key)
        return self._put(key, views)

    def _refuse_existing(self, key: str) -> None:
        try:
            self.head(key)
        except ObjectNotFoundError:
            return
        msg = (
            f"put {key!r} in {self.url}: the object exists already and was left as it is; delete "
            "it first or put without if_absent"
        )
        raise AlreadyExistsError(msg)

    def _put(
        self, key: str, views: Sequence[memoryview], *, only: dict[str, str] | None = None
    ) -> str:
        path, condition = self._path(key), only or {}
        headers = {"x-amz-acl": self._acl} if self._acl else {}
        if sum(map(len, views)) > _SINGLE_BYTES:
            return upload(self._s3, path, views, headers=headers, only=condition)
        if crc := self._s3.checksum(views):
            headers["x-amz-checksum-crc32"] = crc
        call = Call("PUT", path, {}, {**headers, **condition}, views, once=bool(only))
        with self._gate.send(call) as answer:
            return object_etag(answer.headers)

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        try:
            with self._errors(key, "delete"):
                self._gate.send(Call("DELETE", self._path(key))).close()
        except ObjectNotFoundError:
            return

    def abort_uploads(self, prefix: str = "") -> int:
        """Abort unfinished uploads of keys that start with `prefix`; return how many there were.

        Such are left by a process that was killed while it put a large object: no reader sees
        them, but their parts cost money. Only who knows that nobody else is putting such keys at
        the moment may call this.

        Example:
            >>> store = S3Store.at("s3://bucket/data")
            >>> store.abort_uploads("shard.")  # doctest: +SKIP
            1
        """
        check_prefix(prefix, url=self.url)
        with self._errors("", "abort_uploads"):
            # All are listed first, because pages of what is being removed may skip some.
            uploads = list(unfinished(self._s3, self._prefix + prefix))
            for found in uploads:
                abort(self._s3, "/" + quote(found.key, safe="/-_.~"), found.upload_id)
        return len(uploads)

    # --- errors -----------------------------------------------------------------------------------

    def _tell(self, error: Exception, key: str, operation: str) -> None:
        if isinstance(error, DocumentError):
            msg = f"{self._said(key, operation)}: {error}"
            raise StoreError(msg) from None
        if isinstance(error, RefusedError):
            found = self._meaning(error, self._said(key, operation))
            if found is not None:
                raise found from None
        super()._tell(error, key, operation)

    def _meaning(self, error: RefusedError, what: str) -> StoreError | None:
        """Return what a refusal means that other services do not have; None if they have."""
        code = error.refusal.code
        if code == "NoSuchBucket":
            where = self._s3.service
            msg = (
                f"{what}: there is no bucket {self._s3.bucket!r} at {where}; check its name and "
                "the endpoint, or make it first"
            )
            return LastingError(msg)
        if code == "NoSuchUpload":
            return StoreError(f"{what}: {error}: somebody aborted the upload; try again")
        if error.status == _CONFLICT:
            return StoreError(f"{what}: {error}: another is writing it at this moment; try again")
        if error.status in _DENIED or code in EXPIRED:
            advice = self._s3.absence() or "check the credentials and what they may do there"
            return AccessDeniedError(f"{what}: {error}; {advice}")
        return None


def s3_from_url(url: str, options: StorageOptions | None = None) -> S3Store:
    """Return the store that an `s3://` or `r2://` URL names."""
    return S3Store.at(url, options)
