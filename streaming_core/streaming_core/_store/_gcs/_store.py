"""Objects in Google Cloud Storage: `gs://` and `gcs://`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streaming_core._names import name_problem
from streaming_core._store._contract import ObjectInfo, byte_views, check_key, check_prefix
from streaming_core._store._gcs._gate import GCSGate
from streaming_core._store._gcs._place import has_keys, no_bucket, place_of
from streaming_core._store._gcs._upload import resource_of, send_object
from streaming_core._store._gcs._xml import GCSKeyGate, GCSKeyStore
from streaming_core._store._http import Call, HttpStore, RefusedError
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from streaming_core._store._contract import Buffer
    from streaming_core._store._http import Answer
    from streaming_core._store._options import StorageOptions

__all__ = ["GCSStore", "gcs_from_url"]

_MISSING: Final = 404
_NO_BUCKET: Final = "bucket does not exist"
_FIELDS: Final = "name,size,generation"


class GCSStore(HttpStore):
    """The objects below a folder of a bucket; their etag is the generation.

    Example:
        >>> GCSStore.at("gs://bucket/folder", {"anonymous": True})
        GCSStore('gs://bucket/folder')
    """

    __slots__ = ()

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> GCSStore:
        """Return the store at a `gs://` URL; see the guide on storage for the options.

        Raises `SchemaError` for a URL without a bucket, and for options that are none.
        """
        place, known = place_of(url, options)
        return cls(GCSGate(place, known), place.root, place.prefix)

    @property
    def _gcs(self) -> GCSGate:
        assert isinstance(self._gate, GCSGate)  # noqa: S101 - for the type checker
        return self._gate

    def _path(self, key: str) -> str:
        return f"{self._gcs.objects}/{quote(self._prefix + key, safe='')}"

    def _query(self) -> Mapping[str, str]:
        return {"alt": "media"}

    # --- reading ----------------------------------------------------------------------------------

    def _send(self, method: str, key: str, headers: Mapping[str, str] | None = None) -> Answer:
        # What was stored compressed would else be expanded on the way, and its length be unknown.
        return super()._send(method, key, {"Accept-Encoding": "gzip", **(headers or {})})

    def head(self, key: str) -> ObjectInfo:
        """Return size and generation of the object; see `Store.head`."""
        check_key(key, url=self.url, operation="head")
        call = Call("GET", self._path(key), {"fields": _FIELDS})
        with self._errors(key, "head"), self._gate.send(call) as answer:
            return self._info(key, resource_of(answer))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects, a thousand per request; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        query = {"prefix": prefix, "fields": f"nextPageToken,items({_FIELDS})"}
        while True:
            with (
                self._errors("", "list"),
                self._gate.send(Call("GET", self._gcs.objects, query)) as answer,
            ):
                page = resource_of(answer)
                found = [self._info("", item) for item in page.get("items", ())]
            for info in found:
                key = info.key.removeprefix(self._prefix)
                # Folders that consoles make are objects whose names end in a slash.
                if info.key.startswith(prefix) and name_problem(key) is None:
                    yield ObjectInfo(key, info.size, info.etag)
            token = str(page.get("nextPageToken") or "")
            if not token:
                return
            if token == query.get("pageToken"):
                msg = f"list in {self.url}: the service gave the same page again"
                raise StoreError(msg)
            query["pageToken"] = token

    def _info(self, key: str, document: Mapping[str, Any]) -> ObjectInfo:
        """Return what a document says, under its own name if no key is given."""
        try:
            name = key or str(document["name"])
            return ObjectInfo(name, int(document["size"]), str(document["generation"]))
        except (KeyError, TypeError, ValueError):
            what = f"head {key!r}" if key else "list"
            msg = f"{what} in {self.url}: an object without name, size or generation was answered"
            raise StoreError(msg) from None

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the object, a large one in chunks; see `Store.put`."""
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        with self._errors(key, "put"):
            generation = send_object(self._gcs, self._prefix + key, views, if_absent=if_absent)
        return ObjectInfo(key, sum(map(len, views)), generation)

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine, a missing bucket is not."""
        check_key(key, url=self.url, operation="delete")
        with self._errors(key, "delete"):
            try:
                self._gate.send(Call("DELETE", self._path(key))).close()
            except RefusedError as error:
                if error.status != _MISSING or _NO_BUCKET in error.refusal.message:
                    raise

    # --- errors -----------------------------------------------------------------------------------

    def _tell(self, error: Exception, key: str, operation: str) -> None:
        """Tell a missing bucket from a missing object, and say where errors are from."""
        what = self._said(key, operation)
        if isinstance(error, RefusedError) and error.status == _MISSING:
            # These address the bucket, so that nothing else can be missing.
            if operation in {"list", "put"} or _NO_BUCKET in error.refusal.message:
                raise no_bucket(what, self._root, error) from None
        elif type(error) is StoreError and self.url not in str(error):
            msg = f"{what}: {error}"
            raise StoreError(msg) from error.__cause__
        super()._tell(error, key, operation)


def gcs_from_url(url: str, options: StorageOptions | None = None) -> GCSStore | GCSKeyStore:
    """Return the store that a `gs://` or `gcs://` URL names; with HMAC keys if there are any."""
    place, known = place_of(url, options)
    if has_keys(place, known):
        return GCSKeyStore(GCSKeyGate(place, known), place.root, place.prefix)
    return GCSStore(GCSGate(place, known), place.root, place.prefix)
