"""How objects are sent: small ones in one request, large ones in chunks that can be taken up."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import logging
import re
import secrets
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

from streaming_core._store._contract import cut_views
from streaming_core._store._http import Answer, Call, RefusedError
from streaming_core._store._http._wire import FAILURES
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_core._store._gcs._gate import GCSGate

__all__ = ["CHUNK_BYTES", "SINGLE_BYTES", "checksum", "resource_of", "send_object"]

_log = logging.getLogger("streaming_core.store")
SINGLE_BYTES: Final = 8 << 20
"""Up to this size an object is sent in one request."""
CHUNK_BYTES: Final = 32 << 20
"""What a larger one is sent in; has to be a multiple of the unit that the service keeps."""
_COPY_BYTES: Final = 1 << 18
_UNIT_BYTES: Final = 256 << 10
_GOES_ON: Final = 308
"""What a chunk that is not the last one is answered with."""
_GONE: Final = frozenset({404, 410})
_PASSING: Final = frozenset({408, 500, 502, 504})
"""Refusals after which a session may go on; one that asks for fewer requests is not among them."""
_RANGE: Final = re.compile(r"bytes=0-(\d+)", re.ASCII)


def checksum(views: Sequence[memoryview]) -> dict[str, str]:
    """Return a checksum of the joined views, as an object's document has it.

    Example:
        >>> sorted(checksum([memoryview(b"abc")])) in (["crc32c"], ["md5Hash"])
        True
    """
    extend = _crc32c()
    if extend is not None:
        crc = 0
        for view in views:
            for at in range(0, len(view), _COPY_BYTES):
                crc = extend(crc, bytes(view[at : at + _COPY_BYTES]))  # it takes nothing else
        return {"crc32c": base64.b64encode(crc.to_bytes(4, "big")).decode()}
    digest = hashlib.md5(usedforsecurity=False)
    for view in views:
        digest.update(view)
    return {"md5Hash": base64.b64encode(digest.digest()).decode()}


@cache
def _crc32c() -> Callable[[int, bytes], int] | None:
    """Return what extends a CRC32C by some bytes; None where there is no fast one."""
    try:
        module = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    extend: Callable[[int, bytes], int] = module.extend
    return extend if module.implementation == "c" else None


def send_object(gate: GCSGate, key: str, views: Sequence[memoryview], *, if_absent: bool) -> str:
    """Publish the joined views as the object `key` of the gate's bucket; return its generation.

    The service compares what came with the checksum that it was told before.

    Raises:
        RefusedError: The service refused it.
        StoreError: An upload in chunks cannot be finished.
        OSError: There was no answer; so does `http.client.HTTPException`.
    """
    size = sum(map(len, views))
    only = {"ifGenerationMatch": "0"} if if_absent else {}
    document = {"name": key, "contentType": "application/octet-stream", **checksum(views)}
    if size > SINGLE_BYTES:
        found = _Session.begun(gate, document, only, size).sent(views)
    else:
        found = _sent_at_once(gate, document, only, views)
    generation = found.get("generation")
    if not generation or str(found.get("size")) != str(size):
        msg = (
            f"the service confirmed {found.get('size')!r} bytes as generation {generation!r} where "
            f"{size} bytes were sent"
        )
        raise StoreError(msg)
    return str(generation)


def resource_of(answer: Answer) -> dict[str, Any]:
    """Return the document of an answer, or raise `StoreError`."""
    body = answer.read(64 << 20)
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    msg = f"the answer with status {answer.status} is no JSON document but {body[:40]!r}"
    raise StoreError(msg)


def _sent_at_once(
    gate: GCSGate,
    document: Mapping[str, str],
    only: Mapping[str, str],
    views: Sequence[memoryview],
) -> dict[str, Any]:
    border = secrets.token_hex(16)
    head = (
        f"--{border}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
        f"{json.dumps(document)}\r\n--{border}\r\n"
        f"Content-Type: {document['contentType']}\r\n\r\n"
    )
    body = [memoryview(head.encode()), *views, memoryview(f"\r\n--{border}--\r\n".encode())]
    query = {"uploadType": "multipart", **only}
    headers = {"Content-Type": f"multipart/related; boundary={border}"}
    # Where it came twice, the second would find what the first has made.
    with gate.send(Call("POST", gate.uploads, query, headers, body, once=bool(only))) as answer:
        return resource_of(answer)


class _Session(NamedTuple):
    """An upload in chunks; the service keeps what came, so that a broken one goes on from there."""

    gate: GCSGate
    path: str
    query: Mapping[str, str]
    size: int

    @classmethod
    def begun(
        cls, gate: GCSGate, document: Mapping[str, str], only: Mapping[str, str], size: int
    ) -> _Session:
        """Return a session for an object of `size` bytes."""
        headers = {
            "Content-Type": "application/json; charset=UTF-8",
            "X-Upload-Content-Length": str(size),
            "X-Upload-Content-Type": document["contentType"],
        }
        query = {"uploadType": "resumable", **only}
        body = [memoryview(json.dumps(document).encode())]
        with gate.send(Call("POST", gate.uploads, query, headers, body)) as answer:
            # Sent to the host that we know: what it says of hosts may be of inner networks.
            where = urlsplit(answer.headers.get("location", ""))
        query = dict(parse_qsl(where.query, keep_blank_values=True))
        path = where.path.removeprefix(gate.base) if gate.base else where.path
        if not path or "upload_id" not in query:
            msg = "the service began no upload in chunks: its answer has no usable Location"
            raise StoreError(msg)
        return cls(gate, path, query, size)

    def sent(self, views: Sequence[memoryview]) -> dict[str, Any]:
        """Send everything and return the object's document.

        A chunk that fails is taken up where the service says, as long as that is further each time.
        """
        try:
            return self._sent(views)
        except FAILURES:
            raise  # who does not answer cannot be told to forget it
        except BaseException:
            self._forget()
            raise

    def _sent(self, views: Sequence[memoryview]) -> dict[str, Any]:
        at, broke_at = 0, -1
        while True:
            stop = min(at + CHUNK_BYTES, self.size)
            try:
                found = self._put(f"bytes {at}-{stop - 1}/{self.size}", cut_views(views, at, stop))
            except (RefusedError, *FAILURES) as error:
                if isinstance(error, RefusedError) and error.status not in _PASSING:
                    raise self._ended(error) from None
                found = self._asked(error)
                if isinstance(found, int):
                    if found <= broke_at:
                        raise
                    _log.info("an upload broke at byte %d and goes on from %d", at, found)
                    broke_at = at = found
                    continue
            if not isinstance(found, int):
                return found
            if not at < found <= stop:
                msg = f"the service has {found} bytes of an upload after {stop} were sent"
                raise StoreError(msg)
            at = found

    def _put(self, said: str, body: Sequence[memoryview]) -> int | dict[str, Any]:
        """Return how many bytes the service has kept, or the document of the finished object."""
        headers = {"Content-Range": said}
        try:
            with self.gate.send(Call("PUT", self.path, self.query, headers, body)) as answer:
                return resource_of(answer)
        except RefusedError as error:
            if error.status != _GOES_ON:
                raise
            match = _RANGE.fullmatch(error.headers.get("range", ""))
            kept = int(match[1]) + 1 if match else 0
            return kept // _UNIT_BYTES * _UNIT_BYTES

    def _asked(self, error: Exception) -> int | dict[str, Any]:
        """Return how far the upload came; raise `error` if that cannot be learned."""
        try:
            return self._put(f"bytes */{self.size}", ())
        except RefusedError as refused:
            if refused.status in _GONE:
                raise self._ended(refused) from None
            raise error from None
        except FAILURES:
            raise error from None

    @staticmethod
    def _ended(error: RefusedError) -> Exception:
        """Return what a refusal of a chunk means; a session that is gone is no missing object."""
        if error.status not in _GONE:
            return error
        return StoreError(
            f"the service has forgotten the upload before it was finished ({error}); put it again"
        )

    def _forget(self) -> None:
        """Let the service drop what it has; it would do so within a week."""
        try:
            self.gate.send(Call("DELETE", self.path, self.query)).close()
        except Exception as error:  # noqa: BLE001 - refused with a status of its own when done
            _log.debug("an upload was given up: %s", type(error).__name__)
