"""The JSON API of Google Cloud Storage as its reference has it, in memory, for one bucket.

It is stricter than the emulator: versions in all answers, conditions, checksums, pages, units of
chunks, ranges outside of objects, tokens.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.servers.web import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.servers.web import Answering, Asked

__all__ = ["GoogleRules"]

_UNIT: Final = 256 << 10
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)
_CHUNK: Final = re.compile(r"bytes (\*|(\d+)-(\d+))/(\d+)", re.ASCII)
_OBJECT: Final = re.compile(r"/storage/v1/b/([^/]+)/o(?:/([^/]+))?")
_UPLOAD: Final = re.compile(r"/upload/storage/v1/b/([^/]+)/o")


@dataclass
class _Session:
    document: dict[str, Any]
    query: Mapping[str, str]
    kept: bytearray = field(default_factory=bytearray)
    done: Said | None = None


class GoogleRules:
    """Answers requests for the bucket `bucket`; to be the `answer` of a `WebServer`."""

    def __init__(self) -> None:
        self.tokens: set[str] | None = None
        """Whose requests are answered; None: everybody's."""
        self.payer = ""
        """The project that requests have to name; empty: none."""
        self.url = ""
        """Where it is reached."""
        self.page_size = 1000
        self.before: Answering | None = None
        """Is asked first, and may answer instead."""
        self.asked: list[Asked] = []
        """All requests so far."""
        self.objects: dict[str, tuple[bytes, int]] = {}
        """Name -> body and generation."""
        self.sessions: dict[str, _Session] = {}
        self._generations = itertools.count(1_700_000_000_000_001)
        self._guard = threading.RLock()

    def answer(self, asked: Asked) -> Said:
        """Return the answer to a request."""
        self.asked.append(asked)
        said = None if self.before is None else self.before(asked)
        return self.served(asked) if said is None else said

    def served(self, asked: Asked) -> Said:
        """Return the answer of the service itself."""
        parts = urlsplit(asked.target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        refused = self._refused(asked, query)
        if refused is not None:
            return refused
        with self._guard:
            if match := _UPLOAD.fullmatch(parts.path):
                return self._in_bucket(match[1], lambda: self._upload(asked, query))
            if match := _OBJECT.fullmatch(parts.path):
                name = None if match[2] is None else unquote(match[2])
                return self._in_bucket(match[1], lambda: self._object(asked, name, query), query)
        return _error(404, "notFound", "Not Found")

    def uploads(self) -> list[Asked]:
        """Return the requests that sent something."""
        return [asked for asked in self.asked if asked.path.startswith("/upload/")]

    # --- who and where ----------------------------------------------------------------------------

    def _refused(self, asked: Asked, query: Mapping[str, str]) -> Said | None:
        shown = asked.headers.get("authorization", "")
        if self.tokens is not None and shown.removeprefix("Bearer ") not in self.tokens:
            if not shown:
                return _error(401, "required", "Anonymous caller does not have storage access.")
            return _error(401, "authError", f"Invalid Credentials ({shown})")
        if self.payer and query.get("userProject") != self.payer:
            return _error(400, "required", "Bucket is a requester pays bucket but no user project")
        return None

    @staticmethod
    def _in_bucket(
        bucket: str, act: Callable[[], Said], query: Mapping[str, str] | None = None
    ) -> Said:
        if bucket == "bucket":
            return act()
        message = "The specified bucket does not exist."
        if query and query.get("alt") == "media":
            return Said(404, message.encode(), {"Content-Type": "text/html; charset=UTF-8"})
        return _error(404, "notFound", message)

    # --- reading ----------------------------------------------------------------------------------

    def _object(self, asked: Asked, name: str | None, query: Mapping[str, str]) -> Said:
        if name is None:
            return self._listed(query) if asked.method == "GET" else Said(405)
        found = self.objects.get(name)
        is_media = query.get("alt") == "media"
        if found is None:
            message = f"No such object: bucket/{name}"
            if is_media:
                return Said(404, message.encode(), {"Content-Type": "text/html; charset=UTF-8"})
            return _error(404, "notFound", message)
        if asked.method == "DELETE":
            del self.objects[name]
            return Said(204)
        if asked.method != "GET":
            return Said(405)
        return self._media(asked, *found) if is_media else _json(self._document(name))

    @staticmethod
    def _media(asked: Asked, body: bytes, generation: int) -> Said:
        headers = {
            "ETag": f'"{base64.b64encode(str(generation).encode()).decode()}"',
            "Last-Modified": "Sat, 01 Aug 2026 00:00:00 GMT",
            "x-goog-generation": str(generation),
            "x-goog-stored-content-encoding": "identity",
        }
        match = _RANGE.fullmatch(asked.headers.get("range", ""))
        if match is None:
            return Said(200, body, headers)
        start = int(match[1]) if match[1] else max(0, len(body) - int(match[2]))
        stop = min(len(body), int(match[2]) + 1) if match[1] and match[2] else len(body)
        if start >= stop:
            return Said(416, b"Requested range not satisfiable", {"Content-Type": "text/html"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        return Said(206, body[start:stop], headers)

    def _listed(self, query: Mapping[str, str]) -> Said:
        names = sorted(self.objects, key=str.encode)
        names = [name for name in names if name.startswith(query.get("prefix", ""))]
        after = query.get("pageToken", "")
        left = [name for name in names if name > after] if after else names
        page: dict[str, Any] = {"kind": "storage#objects"}
        if left:
            page["items"] = [self._document(name) for name in left[: self.page_size]]
        if len(left) > self.page_size:
            page["nextPageToken"] = left[self.page_size - 1]
        return _json(page)

    def _document(self, name: str) -> dict[str, Any]:
        body, generation = self.objects[name]
        return {"name": name, "size": str(len(body)), "generation": str(generation)}

    # --- writing ----------------------------------------------------------------------------------

    def _upload(self, asked: Asked, query: Mapping[str, str]) -> Said:
        if "upload_id" in query:
            return self._session(asked, query["upload_id"])
        kind = query.get("uploadType")
        if asked.method == "POST" and kind == "multipart":
            border = asked.headers["content-type"].partition("boundary=")[2].encode()
            first, _, rest = asked.body.removeprefix(b"--" + border + b"\r\n").partition(
                b"\r\n--" + border + b"\r\n"
            )
            body = rest.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n--" + border + b"--\r\n")
            return self._publish(json.loads(first.partition(b"\r\n\r\n")[2]), body, query)
        if asked.method == "POST" and kind == "resumable":
            document = json.loads(asked.body)
            if query.get("ifGenerationMatch") == "0" and document["name"] in self.objects:
                return _error(412, "conditionNotMet", "At least one precondition did not hold.")
            upload_id = f"session+{len(self.sessions)}/="
            self.sessions[upload_id] = _Session(document, query)
            quoted = upload_id.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
            where = f"http://inner.example{urlsplit(asked.target).path}?uploadType=resumable"
            return Said(200, b"", {"Location": f"{where}&upload_id={quoted}"})
        return _error(400, "badRequest", f"{asked.method} with uploadType {kind}")

    def _session(self, asked: Asked, upload_id: str) -> Said:
        session = self.sessions.get(upload_id)
        if session is None:
            return Said(404, b"Not Found")
        if asked.method == "DELETE":
            del self.sessions[upload_id]
            return Said(499)
        if session.done is not None:
            return session.done
        match = _CHUNK.fullmatch(asked.headers.get("content-range", ""))
        if match is None:
            return _error(400, "badRequest", "Failed to parse Content-Range header.")
        size = int(match[4])
        if match[1] != "*":
            start, stop = int(match[2]), int(match[3]) + 1
            if stop - start != len(asked.body) or start > len(session.kept):
                return _error(400, "badRequest", "Invalid request. The chunk does not fit.")
            if stop != size and len(asked.body) % _UNIT:
                return _error(400, "badRequest", "Chunks are multiples of 262144 bytes.")
            session.kept += asked.body[len(session.kept) - start :]
        if len(session.kept) == size:
            session.done = self._publish(session.document, bytes(session.kept), session.query)
            return session.done
        headers = {"Range": f"bytes=0-{len(session.kept) - 1}"} if session.kept else {}
        return Said(308, b"", headers)

    def _publish(self, document: dict[str, Any], body: bytes, query: Mapping[str, str]) -> Said:
        import google_crc32c

        name = document["name"]
        if query.get("ifGenerationMatch") == "0" and name in self.objects:
            return _error(412, "conditionNotMet", "At least one precondition did not hold.")
        crc = base64.b64encode(google_crc32c.value(body).to_bytes(4, "big")).decode()
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        for key, true in (("crc32c", crc), ("md5Hash", md5)):
            if document.get(key, true) != true:
                message = f"Provided {key} {document[key]!r} doesn't match calculated {true!r}."
                return _error(400, "invalid", message)
        self.objects[name] = body, next(self._generations)
        return _json(self._document(name))


def _json(document: dict[str, Any]) -> Said:
    return Said(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


def _error(status: int, reason: str, message: str) -> Said:
    first = {"domain": "global", "reason": reason, "message": message}
    error = {"code": status, "message": message, "errors": [first]}
    body = json.dumps({"error": error}).encode()
    return Said(status, body, {"Content-Type": "application/json; charset=UTF-8"})
