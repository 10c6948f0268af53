"""Files in a volume of Unity Catalog."""

from __future__ import annotations

import time
from email.utils import mktime_tz, parsedate_tz
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from streaming_core._names import name_problem
from streaming_core._store._contract import (
    ObjectInfo,
    byte_views,
    check_key,
    check_prefix,
    check_ranges,
    resolve_ranges,
)
from streaming_core._store._databricks._walk import Entry, walk
from streaming_core._store._http import Call, HttpStore, RefusedError
from streaming_core._store._http._reading import content_range
from streaming_core.errors import ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming_core._store._contract import Buffer, ByteRange, Parts
    from streaming_core._store._http import Answer

__all__ = ["VolumeStore"]

_FILES: Final = "/api/2.0/fs/files"
_FOLDERS: Final = "/api/2.0/fs/directories"
_PAGE_BYTES: Final = 64 << 20
_PAGE_FILES: Final = "1000"
_MISSING: Final = 404
_CONFLICT: Final = 409
_YOUNG_SECONDS: Final = 2
"""Times come in whole seconds, so a file may be replaced so soon without anybody seeing it."""


class _File(msgspec.Struct):
    path: str = ""
    name: str = ""
    is_directory: bool = False
    file_size: int = 0
    last_modified: int = 0
    """In milliseconds."""


class _Page(msgspec.Struct):
    contents: list[_File] = []
    next_page_token: str = ""


_PAGE: Final = msgspec.json.Decoder(_Page)


class VolumeStore(HttpStore):
    """The files below a folder of a volume.

    The service names no versions, so an etag is made of the time of the last change, in seconds,
    and the size. What was read of a file that was changed a moment ago names none.

    Example:
        >>> from streaming_core._store._databricks import databricks_from_url
        >>> databricks_from_url("dbfs:/Volumes/a/b/c", {"host": "https://example.org"})
        VolumeStore('dbfs:/Volumes/a/b/c')
    """

    __slots__ = ()

    def _path(self, key: str) -> str:
        return f"{_FILES}/{quote(self._prefix + key)}"

    # --- reading ----------------------------------------------------------------------------------

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges; see `Store.get_ranges`.

        The service documents none that count from the end.
        """
        check_key(key, url=self.url, operation="get_ranges")
        check_ranges(ranges, url=self.url, key=key)
        if any(start < 0 for start, _ in ranges):
            size = self.head(key).size
            ranges = resolve_ranges(ranges, size, url=self.url, key=key)
        return super().get_ranges(key, ranges)

    def _send(self, method: str, key: str, headers: Mapping[str, str] | None = None) -> Answer:
        answer = super()._send(method, key, headers)
        answer.headers["etag"] = _etag(answer, even_young=method == "HEAD")
        answer.headers.pop("last-modified", None)
        return answer

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files, folder by folder; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        for path, entry in walk(self._folder, prefix):
            key = path[len(self._prefix) :]
            if name_problem(key) is None:
                yield ObjectInfo(key, entry.size, entry.etag)

    def _folder(self, folder: str) -> Iterator[Entry]:
        token = ""
        while True:
            query = {"page_size": _PAGE_FILES} | ({"page_token": token} if token else {})
            with self._errors("", "list"):
                try:
                    call = Call("GET", f"{_FOLDERS}/{quote(folder)}", query)
                    with self._gate.send(call) as answer:
                        page = _PAGE.decode(answer.read(_PAGE_BYTES))
                except RefusedError as error:
                    if error.status == _MISSING and not token:
                        return
                    raise
                except msgspec.DecodeError as error:
                    msg = f"list in {self.url}: the answer is no listing, {error}"
                    raise StoreError(msg) from None
            for file in page.contents:
                name = file.name or file.path.rstrip("/").rpartition("/")[2]
                etag = f"{file.last_modified // 1000}-{file.file_size}"
                yield Entry(name, file.is_directory, file.file_size, etag)
            token = page.next_page_token
            if not token:
                return

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Send the file in one request, and make its folder if there is none; see `Store.put`."""
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        size = sum(map(len, views))
        query = {"overwrite": "false" if if_absent else "true"}
        headers = {"Content-Type": "application/octet-stream"}
        call = Call("PUT", self._path(key), query, headers, views, once=if_absent)
        with self._errors(key, "put"):
            try:
                self._put(call, key)
            except RefusedError as error:
                if error.status != _CONFLICT or if_absent:
                    raise
                msg = f"put {key!r} in {self.url}: {error}"
                raise StoreError(msg) from None
        info = self.head(key)
        if info.size != size:
            msg = f"put {key!r} in {self.url}: {info.size} bytes are there, sent were {size}"
            raise StoreError(msg)
        return info

    def _put(self, call: Call, key: str) -> None:
        try:
            self._gate.send(call).close()
        except RefusedError as error:
            if error.status != _MISSING:
                raise
            folder = (self._prefix + key).rpartition("/")[0]
            self._gate.send(Call("PUT", f"{_FOLDERS}/{quote(folder)}")).close()
            self._gate.send(call).close()

    def delete(self, key: str) -> None:
        """Remove the file; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        try:
            with self._errors(key, "delete"):
                self._gate.send(Call("DELETE", self._path(key))).close()
        except ObjectNotFoundError:
            return


def _etag(answer: Answer, *, even_young: bool) -> str:
    """Return the version that an answer is of; empty if its time may be the next one's as well."""
    changed = parsedate_tz(answer.headers.get("last-modified", ""))
    found = content_range(answer.headers.get("content-range", ""))
    size = answer.length if found is None else found[2]
    if changed is None or size is None:
        return ""
    seconds = mktime_tz(changed)
    now = parsedate_tz(answer.headers.get("date", ""))
    age = (time.time() if now is None else mktime_tz(now)) - seconds
    return f"{seconds}-{size}" if even_young or age > _YOUNG_SECONDS else ""
