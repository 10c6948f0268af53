"""Blobs in a container of Azure storage, with a flat or a hierarchical namespace."""

from __future__ import annotations

import base64
import hashlib
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from streaming_core._names import name_problem
from streaming_core._store._azure._gate import AzureGate
from streaming_core._store._azure._place import place_of
from streaming_core._store._azure._refusals import EXISTS, meaning
from streaming_core._store._contract import (
    ObjectInfo,
    Parts,
    byte_views,
    check_key,
    check_prefix,
    cut_views,
)
from streaming_core._store._http import (
    Call,
    HttpStore,
    Refusal,
    RefusedError,
    object_etag,
    send_parts,
)
from streaming_core._store._options import Options
from streaming_core.errors import (
    AlreadyExistsError,
    ObjectNotFoundError,
    SchemaError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming_core._store._contract import Buffer, ByteRange
    from streaming_core._store._http import Answer
    from streaming_core._store._options import StorageOptions

__all__ = ["AzureStore", "azure_from_url"]

_BLOCK_BYTES: Final = 8 << 20
_SINGLE_BYTES: Final = 16 << 20
"""Up to this size a blob is sent in one request."""
_MOST_BLOCKS: Final = 50_000
_PARALLEL_BLOCKS: Final = 4
_PAGE_NAMES: Final = 5000
"""As many as Azure gives at once."""
_PAGE_BYTES: Final = 64 << 20
_KNOWN: Final = ("account_name", "allow_http", "anonymous", "ca_file", "endpoint_url")
_SECRET: Final = ("account_key", "connection_string", "sas_token", "token")
_PARTIAL: Final = 206
_NOT_IN_THERE: Final = 416
_FOLDER: Final = "hdi_isfolder"
"""Metadata of blobs that stand for folders."""


class AzureStore(HttpStore):
    """The blobs below a folder of a container.

    Data Lake Storage Gen2 is served through its Blob endpoint; the folders of its hierarchical
    namespace are no objects here. A listing is gathered whole before its first entry comes, because
    the order of Azure's depends on the namespace.

    Example:
        >>> AzureStore.at("abfss://data@account.dfs.core.windows.net/set", {"anonymous": True})
        AzureStore('abfss://account.dfs.core.windows.net/data/set')
    """

    __slots__ = ()

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> Self:
        """Return the store at a URL of Azure; the guide on storage has its forms and the options.

        Raises `SchemaError` for a URL without container or account, and for options that are none.
        """
        known = Options(options, known=_KNOWN, secret=_SECRET)
        place = place_of(url, known)
        try:
            gate = AzureGate(place, known)
        except ValueError as error:
            msg = f"the endpoint of {place.root} cannot be used: {error}"
            raise SchemaError(msg) from error
        return cls(gate, place.root, f"{place.folder}/" if place.folder else "")

    @property
    def _azure(self) -> AzureGate:
        assert isinstance(self._gate, AzureGate)  # noqa: S101 - for the type checker
        return self._gate

    def _path(self, key: str) -> str:
        return "/" + quote(self._prefix + key, safe="/-_.~")

    # --- reading ----------------------------------------------------------------------------------

    def _send(self, method: str, key: str, headers: Mapping[str, str] | None = None) -> Answer:
        answer = super()._send(method, key, headers)
        if _is_folder(answer.headers):
            answer.close()
            msg = f"{method.lower()} {key!r} in {self.url}: there is a folder, and no object"
            raise ObjectNotFoundError(msg)
        if answer.status == _PARTIAL and answer.length == 0:
            # Some say it so that the range begins where the blob ends.
            answer.close()
            raise RefusedError(_NOT_IN_THERE, answer.headers, Refusal("InvalidRange"))
        return answer

    def _suffix(self, key: str, wanted: ByteRange) -> Parts:
        """Return the last few bytes; Azure has to be asked first how many there are."""
        # A range of no bytes makes the base ask that, and compare the versions.
        found = self.get_ranges(key, [wanted, (0, 0)])
        return Parts(found[:1], found.etag)

    def _tell(self, error: Exception, key: str, operation: str) -> None:
        if isinstance(error, RefusedError):
            gate = self._azure
            what = self._said(key, operation)
            found = meaning(error, what, gate.place, is_anonymous=gate.is_anonymous)
            if found is not None:
                raise found from None
        super()._tell(error, key, operation)

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects, five thousand per request; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        found: list[ObjectInfo] = []
        marker = ""
        while True:
            page = self._page(prefix, marker)
            found += self._infos(page)
            marker = page.findtext("NextMarker") or ""
            if not marker:
                break
        found.sort(key=lambda info: info.key)
        yield from found

    def _page(self, prefix: str, marker: str) -> ET.Element:
        query = {"restype": "container", "comp": "list", "include": "metadata"}
        query["maxresults"] = str(_PAGE_NAMES)
        query |= {name: text for name, text in (("prefix", prefix), ("marker", marker)) if text}
        with self._errors("", "list"):
            try:
                with self._gate.send(Call("GET", "", query)) as answer:
                    return _parsed(answer.read(_PAGE_BYTES), self.url)
            except RefusedError as error:
                # In a hierarchical namespace what lies below a file is an error, not nothing.
                if error.refusal.code == "PathNotFound":
                    return ET.Element("EnumerationResults")
                raise

    def _infos(self, page: ET.Element) -> Iterator[ObjectInfo]:
        for blob in page.iterfind("Blobs/Blob"):
            name = blob.find("Name")
            text = "" if name is None else name.text or ""
            if name is not None and name.get("Encoded") == "true":  # what XML cannot say
                text = unquote(text)
            key = text[len(self._prefix) :]
            kind = blob.findtext("Properties/ResourceType") or ""
            is_folder = kind == "directory" or blob.findtext(f"Metadata/{_FOLDER}") == "true"
            if is_folder or name_problem(key) is not None:
                continue
            size = int(blob.findtext("Properties/Content-Length") or 0)
            etag = (blob.findtext("Properties/Etag") or "").strip('"')
            # Listings have it without the quotes that headers have.
            yield ObjectInfo(key, size, f'"{etag}"' if etag else "")

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the blob, a large one in blocks that are sent side by side; see `Store.put`.

        Blocks of an upload that failed are not visible; Azure drops them when the blob is next
        written, or after a week.
        """
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        size = sum(map(len, views))
        only = {"If-None-Match": "*"} if if_absent else {}
        with self._errors(key, "put"):
            try:
                if size > _SINGLE_BYTES:
                    etag = self._put_blocks(key, views, size, only)
                else:
                    etag = self._put_blob(key, views, only)
            except RefusedError as error:
                if if_absent and self._is_there(key, error):
                    msg = (
                        f"put {key!r} in {self.url}: {error}: the object exists already and was "
                        "left as it is; delete it first or put without if_absent"
                    )
                    raise AlreadyExistsError(msg) from None
                raise
        return ObjectInfo(key, size, etag)

    def _is_there(self, key: str, error: RefusedError) -> bool:
        """Tell whether a put that may only create was refused because somebody else had created."""
        if error.refusal.code == "InvalidBlockList":  # their commit has discarded our blocks
            try:
                self.head(key)
            except ObjectNotFoundError:
                return False
            return True
        return error.refusal.code in EXISTS

    def _put_blob(self, key: str, views: Sequence[memoryview], only: Mapping[str, str]) -> str:
        headers = {"x-ms-blob-type": "BlockBlob", "Content-MD5": _md5(views), **only}
        call = Call("PUT", self._path(key), {}, headers, views, once=bool(only))
        with self._gate.send(call) as answer:
            return object_etag(answer.headers)

    def _put_blocks(
        self, key: str, views: Sequence[memoryview], size: int, only: Mapping[str, str]
    ) -> str:
        step = max(_BLOCK_BYTES, -(-size // _MOST_BLOCKS))
        starts = range(0, size, step)
        names = _block_names(len(starts))
        tasks = [
            partial(self._put_block, key, name, cut_views(views, at, min(at + step, size)))
            for name, at in zip(names, starts, strict=True)
        ]
        send_parts(tasks, _PARALLEL_BLOCKS)
        document = ET.Element("BlockList")
        for name in names:
            # The latest, not the uncommitted: a list that is sent again must mean the same.
            ET.SubElement(document, "Latest").text = name
        body = [memoryview(ET.tostring(document, "utf-8"))]
        headers = {"Content-MD5": _md5(body), **only}
        call = Call("PUT", self._path(key), {"comp": "blocklist"}, headers, body, once=bool(only))
        with self._gate.send(call) as answer:
            return object_etag(answer.headers)

    def _put_block(self, key: str, name: str, views: Sequence[memoryview]) -> None:
        query = {"comp": "block", "blockid": name}
        headers = {"Content-MD5": _md5(views)}
        self._gate.send(Call("PUT", self._path(key), query, headers, views)).close()

    def delete(self, key: str) -> None:
        """Remove the blob and its snapshots; a missing one, or a folder, is fine."""
        check_key(key, url=self.url, operation="delete")
        headers = {"x-ms-delete-snapshots": "include"}
        try:
            with self._errors(key, "delete"):
                try:
                    self._gate.send(Call("DELETE", self._path(key), {}, headers)).close()
                except RefusedError as error:
                    if error.refusal.code != "DirectoryIsNotEmpty":
                        raise
        except ObjectNotFoundError:
            return


def azure_from_url(url: str, options: StorageOptions | None = None) -> AzureStore:
    """Return the store that a URL of Azure names; see `AzureStore.at`."""
    return AzureStore.at(url, options)


def _is_folder(headers: Mapping[str, str]) -> bool:
    kind = headers.get("x-ms-resource-type", "")
    return kind == "directory" or headers.get(f"x-ms-meta-{_FOLDER}", "") == "true"


def _block_names(count: int) -> list[str]:
    """Return names for the blocks of one upload.

    Unfinished blocks of all uploads to one blob share a place, so the names are drawn at random:
    two that write at once must not mix theirs. Azure demands that all of them are equally long, so
    their length is that of Azure's own package, whose uploads may have been left there.
    """
    upload = secrets.token_hex(20)
    return [base64.b64encode(f"{upload}{number:08}".encode()).decode() for number in range(count)]


def _md5(views: Sequence[memoryview]) -> str:
    """Return the checksum of a body, which the service verifies."""
    digest = hashlib.md5(usedforsecurity=False)
    for view in views:
        digest.update(view)
    return base64.b64encode(digest.digest()).decode()


def _parsed(body: bytes, url: str) -> ET.Element:
    try:
        return ET.fromstring(body)  # noqa: S314 - the parser limits what entities expand to
    except ET.ParseError as error:
        msg = f"list in {url}: the answer is no XML document: {error}"
        raise StoreError(msg) from None
