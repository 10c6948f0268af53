"""Files in DBFS, which are read and written in small pieces of text."""

from __future__ import annotations

import base64
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from streaming_core._names import name_problem
from streaming_core._store._abilities import Pieces
from streaming_core._store._contract import (
    ObjectInfo,
    Parts,
    byte_views,
    check_key,
    check_prefix,
    check_ranges,
    check_size,
    check_start,
    resolve_ranges,
)
from streaming_core._store._databricks._walk import Entry, walk
from streaming_core._store._http import Call, HttpStore, RefusedError, in_parallel
from streaming_core._store._http._reading import spans
from streaming_core.errors import AlreadyExistsError, ObjectNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from streaming_core._store._contract import Buffer, ByteRange

__all__ = ["DbfsStore"]

_T = TypeVar("_T")

_log = logging.getLogger("streaming_core.store")
_API: Final = "/api/2.0/dbfs"
_PIECE: Final = 1 << 20
"""The most that one request reads, or adds to a file."""
_SINGLE_BYTES: Final = 768 << 10
"""The most that one request puts: a mebibyte of base64."""
_AT_ONCE: Final = 8
_PAGE_BYTES: Final = 64 << 20
_MISSING: Final = "RESOURCE_DOES_NOT_EXIST"
_EXISTS: Final = "RESOURCE_ALREADY_EXISTS"
_PART: Final = ".streaming-part"


class _Status(msgspec.Struct):
    path: str = ""
    is_dir: bool = False
    file_size: int = 0
    modification_time: int = 0
    """In milliseconds."""

    @property
    def etag(self) -> str:
        return f"{self.modification_time}-{self.file_size}"


class _Folder(msgspec.Struct):
    files: list[_Status] = []


class _Read(msgspec.Struct):
    bytes_read: int = 0
    data: bytes = b""


class _Opened(msgspec.Struct):
    handle: int


class _Nothing(msgspec.Struct):
    pass


_STATUS: Final = msgspec.json.Decoder(_Status)
_FOLDER: Final = msgspec.json.Decoder(_Folder)
_READ: Final = msgspec.json.Decoder(_Read)
_OPENED: Final = msgspec.json.Decoder(_Opened)
_NOTHING: Final = msgspec.json.Decoder(_Nothing)


class DbfsStore(HttpStore):
    """The files below a folder of DBFS.

    An etag is made of the time of the last change and the size. What takes more than one request to
    read is compared with the etag afterwards, and what takes more than one to write is moved
    into place; one that is replaced so is missing for a moment.

    Example:
        >>> from streaming_core._store._databricks import databricks_from_url
        >>> databricks_from_url("dbfs:/a/b", {"host": "https://example.org"})
        DbfsStore('dbfs:/a/b')
    """

    __slots__ = ()

    def _path(self, key: str) -> str:
        return f"/{self._prefix}{key}"

    # --- reading ----------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole file, a small one by one request; see `Store.get`."""
        check_key(key, url=self.url, operation="get")
        with self._errors(key, "get"):
            data = self._read(key, 0, _PIECE)
        if len(data) < _PIECE:
            check_size(len(data), max_bytes, url=self.url, key=key)
            return data
        return b"".join(self.stream(key, max_bytes=max_bytes))

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges; see `Store.get_ranges`."""
        check_key(key, url=self.url, operation="get_ranges")
        check_ranges(ranges, url=self.url, key=key)
        bounded = [(start, stop) for start, stop in ranges if stop is not None and stop > start]
        with self._errors(key, "get_ranges"):
            found = spans(bounded) if len(bounded) == len(ranges) else []
            if len(found) == 1 and found[0].stop - found[0].start <= _PIECE:
                at = found[0].start
                data = self._read(key, at, found[0].stop - at)
                if len(data) == found[0].stop - at:
                    return Parts([data[start - at : stop - at] for start, stop in bounded], "")
            info = self.head(key)
            wanted = resolve_ranges(ranges, info.size, url=self.url, key=key)
            out = [b""] * len(wanted)
            for span in spans(wanted):
                data = b"".join(self._blocks(key, span.start, span.stop))
                for i in span.members:
                    start, stop = wanted[i]
                    out[i] = data[start - span.start : stop - span.start]
            self._check_same(info)
            return Parts(out, info.etag)

    def stream(self, key: str, *, start: int = 0, max_bytes: int | None = None) -> Pieces:
        """Yield the file's bytes, some pieces at a time; see `Store.stream`."""
        return Pieces(lambda note: self._batches(key, start, max_bytes, note))

    def _batches(
        self, key: str, start: int, max_bytes: int | None, note: Callable[[str], None]
    ) -> Generator[memoryview]:
        check_key(key, url=self.url, operation="stream")
        if start < 0:
            check_start(start, 0, url=self.url, key=key)
        info = self.head(key)
        check_size(info.size, max_bytes, url=self.url, key=key)
        check_start(start, info.size, url=self.url, key=key)
        note(info.etag)
        for at in range(start, info.size, _AT_ONCE * _PIECE):
            with self._errors(key, "stream"):
                blocks = self._blocks(key, at, min(at + _AT_ONCE * _PIECE, info.size))
                self._check_same(info)
            for block in blocks:
                yield memoryview(block)

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the file; see `Store.head`."""
        check_key(key, url=self.url, operation="head")
        with self._errors(key, "head"):
            status = self._asked("GET", "get-status", _STATUS, path=self._path(key))
        if status.is_dir:
            msg = f"head {key!r} in {self.url}: this is a folder, there is no such file"
            raise ObjectNotFoundError(msg)
        return ObjectInfo(key, status.file_size, status.etag)

    def _blocks(self, key: str, start: int, stop: int) -> list[bytes]:
        """Return the bytes from `start` to `stop` in pieces, none of them short."""
        tasks = [
            partial(self._read, key, at, min(_PIECE, stop - at))
            for at in range(start, stop, _PIECE)
        ]
        pieces = in_parallel(tasks, _AT_ONCE)
        if sum(map(len, pieces)) != stop - start:
            raise self._changed(key)
        return pieces

    def _read(self, key: str, offset: int, length: int) -> bytes:
        got = self._asked("GET", "read", _READ, path=self._path(key), offset=offset, length=length)
        if len(got.data) != got.bytes_read or len(got.data) > length:
            msg = (
                f"read {key!r} in {self.url}: {len(got.data)} bytes came, announced were "
                f"{got.bytes_read}, wanted {length}"
            )
            raise StoreError(msg)
        return got.data

    def _check_same(self, info: ObjectInfo) -> None:
        if self.head(info.key) != info:
            raise self._changed(info.key)

    def _changed(self, key: str) -> StoreError:
        return StoreError(f"read {key!r} in {self.url}: the file was replaced meanwhile")

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files, folder by folder; see `Store.list`."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        for path, entry in walk(self._folder, prefix):
            key = path[len(self._prefix) :]
            if name_problem(key) is None and not key.endswith(_PART):
                yield ObjectInfo(key, entry.size, entry.etag)

    def _folder(self, folder: str) -> Iterator[Entry]:
        try:
            with self._errors("", "list"):
                found = self._asked("GET", "list", _FOLDER, path=f"/{folder}")
        except ObjectNotFoundError:
            return
        for status in found.files:
            above, _, name = status.path.rstrip("/").rpartition("/")
            if above == f"/{folder}".rstrip("/"):  # asked for a file, it names that
                yield Entry(name, status.is_dir, status.file_size, status.etag)

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish the file, a large one by moving it into place; see `Store.put`."""
        check_key(key, url=self.url, operation="put")
        data = b"".join(byte_views(buffers))
        path = self._path(key)
        with self._errors(key, "put"):
            try:
                if len(data) <= _SINGLE_BYTES:
                    text = _text(data)
                    self._told("put", path=path, contents=text, overwrite=not if_absent)
                else:
                    self._put_blocks(path, data, if_absent=if_absent)
            except RefusedError as error:
                if error.refusal.code != _EXISTS:
                    raise
                msg = f"put {key!r} in {self.url}: the file exists already and was left as it is"
                raise AlreadyExistsError(msg) from None
        info = self.head(key)
        if info.size != len(data):
            msg = f"put {key!r} in {self.url}: {info.size} bytes are there, sent were {len(data)}"
            raise StoreError(msg)
        return info

    def _put_blocks(self, path: str, data: bytes, *, if_absent: bool) -> None:
        aside = f"{path.rpartition('/')[0]}/.{secrets.token_hex(8)}{_PART}"
        handle = self._asked("POST", "create", _OPENED, path=aside, overwrite=True).handle
        try:
            for at in range(0, len(data), _PIECE):
                self._told("add-block", handle=handle, data=_text(data[at : at + _PIECE]))
            self._told("close", handle=handle)
            try:
                self._told("move", source_path=aside, destination_path=path)
            except RefusedError as error:
                if if_absent or error.refusal.code != _EXISTS:
                    raise
                self._told("delete", path=path, recursive=False)
                self._told("move", source_path=aside, destination_path=path)
        except BaseException:
            self._remove_part(aside)
            raise

    def _remove_part(self, path: str) -> None:
        try:
            self._told("delete", path=path, recursive=False)
        except Exception as error:  # noqa: BLE001 - the first error is the one that matters
            _log.warning("an unfinished file stays in %s: %s", self.url, type(error).__name__)

    def delete(self, key: str) -> None:
        """Remove the file; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        try:
            self.head(key)  # or else an empty folder would be removed
            with self._errors(key, "delete"):
                self._told("delete", path=self._path(key), recursive=False)
        except ObjectNotFoundError:
            return

    # --- requests ---------------------------------------------------------------------------------

    def _told(self, verb: str, **values: Any) -> None:  # noqa: ANN401 - of any type
        self._asked("POST", verb, _NOTHING, **values)

    def _asked(self, method: str, verb: str, form: msgspec.json.Decoder[_T], **values: Any) -> _T:  # noqa: ANN401 - as above
        call = Call(method, f"{_API}/{verb}")
        if method == "GET":
            call = call._replace(query={name: str(value) for name, value in values.items()})
        else:
            # A verb that came twice may fail the second time, or add a block twice.
            body = [memoryview(msgspec.json.encode(values))]
            headers = {"Content-Type": "application/json"}
            call = call._replace(headers=headers, body=body, once=True)
        with self._gate.send(call) as answer:
            text = answer.read(_PAGE_BYTES)
        try:
            return form.decode(text or b"{}")
        except msgspec.DecodeError as error:
            msg = f"{verb} in {self.url}: the answer is not as documented, {error}"
            raise StoreError(msg) from None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
