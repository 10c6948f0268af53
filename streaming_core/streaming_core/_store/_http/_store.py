"""Objects behind HTTP: reading is the same for all services."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from streaming_core._store._abilities import Pieces
from streaming_core._store._contract import (
    PIECE_BYTES,
    ObjectInfo,
    Parts,
    check_key,
    check_ranges,
    check_size,
    check_start,
    resolve_ranges,
)
from streaming_core._store._http._gate import Call, RefusedError
from streaming_core._store._http._parallel import in_parallel
from streaming_core._store._http._reading import (
    Body,
    body_of,
    content_range,
    object_etag,
    spans,
)
from streaming_core._store._http._telling import Telling, raise_typed
from streaming_core._store._http._wire import Timeouts
from streaming_core.errors import RangeError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from streaming_core._store._contract import Buffer, ByteRange
    from streaming_core._store._http._gate import Gate
    from streaming_core._store._http._wire import Answer

__all__ = ["HttpStore"]

_FULL_ENOUGH_SECONDS: Final = 0.5
"""A piece that is not full after this long is handed over as it is, so that slowness is seen."""
_SMALL_BYTES: Final = 16 << 20
_NO_HEAD: Final = frozenset({405, 501})
_NOT_IN_THERE: Final = 416


class HttpStore(ABC):
    """What the stores of all services share; each adds listing and writing of its own.

    `gate` is the service, `root` the store's URL without secrets, `prefix` what precedes each key.
    """

    __slots__ = ("_gate", "_prefix", "_root")

    def __init__(self, gate: Gate, root: str, prefix: str = "") -> None:
        self._gate = gate
        self._root = root.rstrip("/")
        self._prefix = prefix

    # --- what services differ in ------------------------------------------------------------------

    @abstractmethod
    def _path(self, key: str) -> str:
        """Return the percent-encoded path of an object, below the gate's."""

    def _query(self) -> Mapping[str, str]:
        """Return the query that reading an object needs."""
        return {}

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects; see `Store.list`."""

    @abstractmethod
    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish an object; see `Store.put`."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; see `Store.delete`."""

    # --- identity ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The store's root, without secrets."""
        return f"{self._root}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HttpStore):
            return NotImplemented
        return (type(self), self.url) == (type(other), other.url)

    def __hash__(self) -> int:
        return hash((type(self), self.url))

    def child(self, prefix: str) -> Self:
        """Return the store of the keys below `prefix`."""
        check_key(prefix, url=self.url, operation="child")
        return self._rooted(f"{self._prefix}{prefix}/")

    def _rooted(self, prefix: str) -> Self:
        return type(self)(self._gate, self._root, prefix)

    def with_timeout(self, seconds: float) -> Self:
        """Return the same store, whose requests fail when nothing comes for so long."""
        other = copy.copy(self)
        connect = min(seconds, self._gate.timeouts.connect)
        other._gate = self._gate.with_timeouts(Timeouts(connect, seconds))  # noqa: SLF001 - our copy
        return other

    # --- reading ----------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object; see `Store.get`."""
        with self._errors(key, "get"):
            answer, body = self._reply(key)
            return self._whole(key, answer, body, max_bytes)

    def _whole(self, key: str, answer: Answer, body: Body, max_bytes: int | None) -> bytes:
        with answer:
            if body.size is not None:
                check_size(body.size, max_bytes, url=self.url, key=key)
                data = answer.read(body.size)
                self._check_end(key, len(data), body)
                return data
            most = _SMALL_BYTES if max_bytes is None else max_bytes
            data = answer.read(most + 1)
            if max_bytes is None:
                while piece := answer.read(_SMALL_BYTES):
                    data += piece
            check_size(len(data), max_bytes, url=self.url, key=key)
            return data

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges, near ones read together, others at once; see `Store.get_ranges`."""
        check_key(key, url=self.url, operation="get_ranges")
        check_ranges(ranges, url=self.url, key=key)
        with self._errors(key, "get_ranges"):
            if len(ranges) == 1 and ranges[0][0] < 0:
                return self._suffix(key, ranges[0])
            known: list[Body] = []
            if any(stop is None or start == stop for start, stop in ranges) or not ranges:
                # Where the object ends has to be known, also to say that a range is not in there.
                info = self.head(key)
                known = [Body(0, info.size, info.etag)]
                wanted = resolve_ranges(ranges, info.size, url=self.url, key=key)
            else:
                wanted = [(start, stop or 0) for start, stop in ranges]
            parts = spans(wanted)
            found = in_parallel([partial(self._span, key, part.start, part.stop) for part in parts])
            etag = self._one_version(key, [*known, *(body for _, body in found)])
            out = [b""] * len(ranges)
            for part, (data, _) in zip(parts, found, strict=True):
                for i in part.members:
                    start, stop = wanted[i]
                    out[i] = data[start - part.start : stop - part.start]
            return Parts(out, etag)

    def stream(self, key: str, *, start: int = 0, max_bytes: int | None = None) -> Pieces:
        """Yield the object's bytes through one buffer, and tell its version; see `Store.stream`."""
        return Pieces(partial(self._streamed, key, start, max_bytes))

    def _streamed(
        self, key: str, start: int, max_bytes: int | None, note: Callable[[str], None]
    ) -> Generator[memoryview]:
        check_key(key, url=self.url, operation="stream")
        if start < 0:
            check_start(start, 0, url=self.url, key=key)
        with self._errors(key, "stream"):
            try:
                answer, body = self._reply(key, start)
                with answer:
                    if body.size is not None:
                        check_size(body.size, max_bytes, url=self.url, key=key)
                        check_start(start, body.size, url=self.url, key=key)
                    note(body.etag)
                    _skip(answer, start - body.start)
                    at = yield from self._pieces(answer, key, start, max_bytes)
                    self._check_end(key, at, body)
            except RefusedError as error:
                if error.status != _NOT_IN_THERE:
                    raise
                info = self.head(key)
                check_size(info.size, max_bytes, url=self.url, key=key)
                check_start(start, info.size, url=self.url, key=key)
                if start < info.size:
                    raise

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the object; see `Store.head`."""
        with self._errors(key, "head"):
            try:
                with self._send("HEAD", key) as answer:
                    if answer.length is not None:
                        return ObjectInfo(key, answer.length, object_etag(answer.headers))
            except RefusedError as error:
                if error.status not in _NO_HEAD:
                    raise
            return self._head_by_get(key)

    def _head_by_get(self, key: str) -> ObjectInfo:
        """Ask for the first byte, of a server that says no size when asked for none."""
        try:
            answer, body = self._reply(key, 0, 1, part=True)
            answer.close()
            size, etag = body.size, body.etag
        except RefusedError as error:
            found = content_range(error.headers.get("content-range", ""))
            if error.status != _NOT_IN_THERE or found is None:
                raise
            size, etag = found[2], object_etag(error.headers)
        if size is None:
            raise self._unclear(key)
        return ObjectInfo(key, size, etag)

    # --- within -----------------------------------------------------------------------------------

    def _send(self, method: str, key: str, headers: Mapping[str, str] | None = None) -> Answer:
        check_key(key, url=self.url, operation=method.lower())
        return self._gate.send(Call(method, self._path(key), self._query(), headers or {}))

    def _reply(
        self, key: str, start: int = 0, stop: int | None = None, *, part: bool | None = None
    ) -> tuple[Answer, Body]:
        """Ask for an object, or with `start` or `part` for some of it; close the answer."""
        headers: dict[str, str] = {}
        if start if part is None else part:
            last = "" if stop is None else stop - 1
            headers["Range"] = f"bytes={start if start < 0 else f'{start}-{last}'}"
        answer = self._send("GET", key, headers)
        body = body_of(answer.status, answer.headers, answer.length, start=start, stop=stop)
        if isinstance(body, str):
            answer.close()
            msg = f"read {key!r} in {self.url}: wrong answer, {body}"
            raise StoreError(msg)
        return answer, body

    def _suffix(self, key: str, wanted: ByteRange) -> Parts:
        """Return the last few bytes, without asking first how many there are."""
        count = -wanted[0]
        try:
            answer, body = self._reply(key, -count, part=True)
            with answer:
                if body.size is None:
                    raise self._unclear(key)
                resolve_ranges([wanted], body.size, url=self.url, key=key)
                _skip(answer, body.size - count - body.start)
                data = answer.read(count)
                self._check_end(key, body.size - count + len(data), body)
                return Parts([data], body.etag)
        except RefusedError as error:
            if error.status != _NOT_IN_THERE:
                raise
            resolve_ranges([wanted], self.head(key).size, url=self.url, key=key)
            raise

    def _span(self, key: str, start: int, stop: int) -> tuple[bytes, Body]:
        """Return the bytes from `start` to `stop`, and what they are of."""
        try:
            answer, body = self._reply(key, start, stop, part=True)
            with answer:
                if body.size is not None and stop > body.size:
                    resolve_ranges([(start, stop)], body.size, url=self.url, key=key)
                _skip(answer, start - body.start)
                data = answer.read(stop - start)
        except RefusedError as error:
            if error.status != _NOT_IN_THERE:
                raise
            resolve_ranges([(start, stop)], self.head(key).size, url=self.url, key=key)
            raise
        if len(data) < stop - start:
            msg = (
                f"get_ranges {key!r} in {self.url}: {len(data)} bytes came from byte {start} on, "
                f"wanted were {stop - start}"
            )
            raise RangeError(msg)
        return data, body

    def _pieces(
        self, answer: Answer, key: str, at: int, max_bytes: int | None
    ) -> Generator[memoryview, None, int]:
        """Yield what comes, and return the number of the byte after the last."""
        buffer = memoryview(bytearray(PIECE_BYTES))
        shown = buffer.toreadonly()
        more = True
        while more:
            filled, began = 0, time.monotonic()
            while filled < PIECE_BYTES:
                count = answer.readinto(buffer[filled:])
                filled += count
                more = count > 0
                if not more or time.monotonic() - began > _FULL_ENOUGH_SECONDS:
                    break
            at += filled
            check_size(at, max_bytes, url=self.url, key=key)
            if filled:
                yield shown[:filled]
        return at

    # --- errors -----------------------------------------------------------------------------------

    def _errors(self, key: str, operation: str) -> Telling:
        """Return what turns whatever goes wrong within it into a typed error."""
        return Telling(self._tell, key, operation)

    def _tell(self, error: Exception, key: str, operation: str) -> None:
        """Raise the typed error that `error` stands for; services have some of their own."""
        raise_typed(error, self._said(key, operation), operation)

    def _said(self, key: str, operation: str) -> str:
        return f"{operation} {key!r} in {self.url}" if key else f"{operation} in {self.url}"

    def _one_version(self, key: str, bodies: Sequence[Body]) -> str:
        """Return the etag that all have, as far as the server says; raise if they differ."""
        etags = {body.etag for body in bodies if body.etag}
        sizes = {body.size for body in bodies if body.size is not None}
        if len(etags) > 1 or len(sizes) > 1:
            msg = f"read {key!r} in {self.url}: the object was replaced meanwhile; read it again"
            raise StoreError(msg)
        return next(iter(etags), "")

    def _check_end(self, key: str, end: int, body: Body) -> None:
        """Raise if a body that came to its end did so at another byte than the object."""
        if body.size is not None and end != body.size:
            msg = f"read {key!r} in {self.url}: it ended at byte {end}, announced were {body.size}"
            raise StoreError(msg)

    def _unclear(self, key: str) -> StoreError:
        return StoreError(f"read {key!r} in {self.url}: the server does not say how long it is")


def _skip(answer: Answer, count: int) -> None:
    """Read what a server without ranges sends before what was wanted."""
    while count > 0:
        piece = answer.read(min(count, PIECE_BYTES))
        if not piece:
            return
        count -= len(piece)
