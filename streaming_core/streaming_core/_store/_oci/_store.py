"""Objects in a bucket of Oracle Cloud Infrastructure."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from streaming_core._names import name_problem
from streaming_core._store._contract import ObjectInfo, byte_views, check_key, check_prefix
from streaming_core._store._http import Call, HttpStore, RefusedError, object_etag, send_parts
from streaming_core._store._oci._account import KNOWN, SECRET, region_of
from streaming_core._store._oci._gate import OciGate
from streaming_core._store._options import Options
from streaming_core._store._resolve import public_url
from streaming_core.errors import (
    AlreadyExistsError,
    ObjectNotFoundError,
    SchemaError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming_core._store._contract import Buffer
    from streaming_core._store._http import Answer, Gate
    from streaming_core._store._options import StorageOptions

__all__ = ["OciStore", "oci_from_url"]

_T = TypeVar("_T")

_log = logging.getLogger("streaming_core.store")
_URL: Final = re.compile(r"oci://([^/@]+)(?:@([^/@]+))?(?:/(.*))?", re.DOTALL)
_PART_BYTES: Final = 8 << 20
_SINGLE_BYTES: Final = 16 << 20
"""Up to this size an object is sent in one request."""
_MOST_PARTS: Final = 10_000
_PARALLEL_PARTS: Final = 4
_PAGE_BYTES: Final = 64 << 20
_PAGE_OBJECTS: Final = "1000"
_CONFLICT: Final = 409


class _Object(msgspec.Struct):
    name: str
    size: int = 0
    etag: str = ""


class _Page(msgspec.Struct, rename="camel"):
    objects: list[_Object] = []
    next_start_with: str | None = None


class _Upload(msgspec.Struct, rename="camel"):
    upload_id: str


_PAGE: Final = msgspec.json.Decoder(_Page)
_UPLOAD: Final = msgspec.json.Decoder(_Upload)


class OciStore(HttpStore):
    """The objects below a folder of a bucket.

    Example:
        >>> OciStore.at("oci://bucket@namespace/folder", {"region": "eu-frankfurt-1"})
        OciStore('oci://bucket@namespace/folder')
    """

    __slots__ = ("_bucket",)

    def __init__(self, gate: Gate, root: str, prefix: str, bucket: str) -> None:
        """Take `bucket` as the path of one, as in `/n/namespace/b/bucket`."""
        super().__init__(gate, root, prefix)
        self._bucket = bucket

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> OciStore:
        """Return the store at an `oci://` URL; see the guide on storage for the options.

        Raises `SchemaError` for a URL without bucket and namespace, where nobody says which region
        is meant, and for options that are none.
        """
        known = Options(options, known=KNOWN, secret=SECRET)
        match = _URL.fullmatch(url)
        namespace = (match and match[2]) or str(known.get("namespace", default=""))
        if match is None or not namespace:
            msg = (
                f"{public_url(url)!r} names no bucket: write oci://<bucket>@<namespace>/<folder>, "
                "or give the storage option namespace"
            )
            raise SchemaError(msg)
        endpoint = str(known.get("endpoint_url", "OCI_CLI_ENDPOINT", default=""))
        region = region_of(known)
        if not endpoint and not region:
            msg = (
                f"{url!r} needs a region: give the storage option region or endpoint_url, set "
                "OCI_REGION, or name it in the profile"
            )
            raise SchemaError(msg)
        endpoint = endpoint or f"https://objectstorage.{region}.oraclecloud.com"
        try:
            gate = OciGate(endpoint, known)
        except ValueError as error:
            msg = f"the service's address {endpoint!r} cannot be used: {error}"
            raise SchemaError(msg) from None
        folder = (match[3] or "").strip("/")
        bucket = f"/n/{quote(namespace, safe='')}/b/{quote(match[1], safe='')}"
        root = f"oci://{match[1]}@{namespace}"
        return cls(gate, root, f"{folder}/" if folder else "", bucket)

    def _rooted(self, prefix: str) -> OciStore:
        return type(self)(self._gate, self._root, prefix, self._bucket)

    def _path(self, key: str) -> str:
        return f"{self._bucket}/o/{quote(self._prefix + key)}"

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects, a thousand per request; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        start: str | None = ""
        while start is not None:
            query = {"prefix": prefix, "fields": "name,size,etag", "limit": _PAGE_OBJECTS}
            if start:
                query["start"] = start
            with (
                self._errors("", "list"),
                self._gate.send(Call("GET", f"{self._bucket}/o", query)) as answer,
            ):
                page = self._parsed(answer, _PAGE)
            for found in page.objects:
                key = found.name[len(self._prefix) :]
                # Folders that consoles make are objects of no bytes whose names end in a slash.
                if name_problem(key) is None:
                    yield ObjectInfo(key, found.size, found.etag.strip('"'))
            start = page.next_start_with

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the object, a large one in parts that are sent side by side; see `Store.put`."""
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        size = sum(map(len, views))
        only = {"if-none-match": "*"} if if_absent else {}
        with self._errors(key, "put"):
            try:
                if size > _SINGLE_BYTES:
                    data = views[0] if len(views) == 1 else memoryview(b"".join(views))
                    etag = self._put_parts(key, data, only)
                else:
                    headers = {"content-md5": _md5(views), **only}
                    call = Call("PUT", self._path(key), {}, headers, views, once=if_absent)
                    with self._gate.send(call) as answer:
                        etag = object_etag(answer.headers)
            except RefusedError as error:
                if error.status != _CONFLICT:
                    raise
                msg = f"put {key!r} in {self.url}: another is writing it at this moment, {error}"
                raise StoreBusyError(msg) from None
        return ObjectInfo(key, size, etag) if etag else self.head(key)

    def _put_parts(self, key: str, data: memoryview, only: dict[str, str]) -> str:
        if only:
            self._check_absent(key)  # it would be refused only after all was sent
        body = [memoryview(msgspec.json.encode({"object": self._prefix + key}))]
        with self._gate.send(Call("POST", f"{self._bucket}/u", {}, only, body)) as answer:
            upload = self._parsed(answer, _UPLOAD).upload_id
        path = f"{self._bucket}/u/{quote(self._prefix + key)}"
        try:
            step = max(_PART_BYTES, -(-len(data) // _MOST_PARTS))
            starts = range(0, len(data), step)
            tasks = [
                partial(self._put_part, path, upload, number, data[at : at + step])
                for number, at in enumerate(starts, 1)
            ]
            parts = [
                {"partNum": number, "etag": etag}
                for number, etag in enumerate(send_parts(tasks, _PARALLEL_PARTS), 1)
            ]
            body = [memoryview(msgspec.json.encode({"partsToCommit": parts}))]
            call = Call("POST", path, {"uploadId": upload}, only, body, once=True)
            with self._gate.send(call) as answer:
                return object_etag(answer.headers)
        except BaseException:
            self._abort(path, upload)
            raise

    def _check_absent(self, key: str) -> None:
        try:
            self.head(key)
        except ObjectNotFoundError:
            return
        msg = f"put {key!r} in {self.url}: the object exists already and was left as it is"
        raise AlreadyExistsError(msg)

    def _put_part(self, path: str, upload: str, number: int, data: memoryview) -> str:
        query = {"uploadId": upload, "uploadPartNum": str(number)}
        headers = {"content-md5": _md5([data])}
        with self._gate.send(Call("PUT", path, query, headers, [data])) as answer:
            return object_etag(answer.headers)

    def _abort(self, path: str, upload: str) -> None:
        """Let the store forget the parts; they cost money."""
        try:
            self._gate.send(Call("DELETE", path, {"uploadId": upload})).close()
        except Exception as error:  # noqa: BLE001 - the first error is the one that matters
            _log.warning("an unfinished upload stays in %s: %s", self.url, type(error).__name__)

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        try:
            with self._errors(key, "delete"):
                self._gate.send(Call("DELETE", self._path(key))).close()
        except ObjectNotFoundError:
            return

    def _parsed(self, answer: Answer, form: msgspec.json.Decoder[_T]) -> _T:
        try:
            return form.decode(answer.read(_PAGE_BYTES))
        except msgspec.DecodeError as error:
            msg = f"{self.url}: the answer is not as documented, {error}"
            raise StoreError(msg) from None


def oci_from_url(url: str, options: StorageOptions | None = None) -> OciStore:
    """Return the store that an `oci://` URL names."""
    return OciStore.at(url, options)


def _md5(views: Sequence[memoryview]) -> str:
    """Return the checksum that the service compares with what arrives."""
    digest = hashlib.md5(usedforsecurity=False)
    for view in views:
        digest.update(view)
    return base64.b64encode(digest.digest()).decode()
