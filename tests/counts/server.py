"""A server that counts requests and bytes, and answers as a web server and as S3 do."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs, urlsplit

from tests.servers.ranged import ranged
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.web import Asked

__all__ = ["BUCKET", "REREAD", "START", "CountingServer"]

BUCKET: Final = "bucket"
START: Final = "/start-counting"
"""A request for it sets all figures to zero."""
REREAD: Final = "GET requests of the journal"
"""The writer makes these as time passes, so their number varies; their bytes are not counted."""
_JOURNAL: Final = "/.writing/"
"""In the path of every object of the writer's journal."""
_VARIABLE: Final = frozenset({"host", "user-agent"})
"""Headers with the port of this run or the version of the package."""
_LINE: Final = len("GET  HTTP/1.1\r\n")
_HEADER: Final = len(": \r\n")


class CountingServer:
    """Serves objects from memory, with the MD5 of the body as the ETag.

    `url` is that of a web server. Its first folder, `BUCKET`, is also a bucket of S3 with `url` as
    the endpoint, so it can be listed and written to.
    """

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        """Serve `objects` by path without a leading slash."""
        self._objects = {name: (data, _etag(data)) for name, data in objects.items()}
        self._web = WebServer(answer=self._answer)
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._web.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._web.__exit__(*error)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._web.url

    @property
    def figures(self) -> dict[str, int]:
        """Requests and bytes since the start of counting."""
        with self._guard:
            return {name: count for name, count in self._counts.items() if count}

    def _answer(self, asked: Asked) -> Said:
        with self._guard:
            if asked.path == START:
                self._counts.clear()
                return Said()
            said = self._said(asked)
            verb = _verb(asked)
            self._counts[verb] += 1
            if verb == REREAD:
                return said
            self._counts["bytes of request headers"] += _header_bytes(asked)
            self._counts["bytes of request bodies"] += len(asked.body)
            if asked.method != "HEAD" and isinstance(said.body, bytes):
                self._counts["bytes of response bodies"] += len(said.body)
            return said

    def _said(self, asked: Asked) -> Said:
        query = parse_qs(urlsplit(asked.target).query)
        if "list-type" in query:
            return self._listing(query.get("prefix", [""])[0])
        if query:
            return Said(400, b"only objects that fit one request are supported")
        name = asked.path.removeprefix("/")
        found = self._objects.get(name)
        if asked.method in {"GET", "HEAD"}:
            if found is None:
                return Said(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return ranged(asked, found[0], {"ETag": found[1]})
        if asked.method == "PUT":
            if found is not None and asked.headers.get("if-none-match") == "*":
                return Said(412)
            self._objects[name] = asked.body, _etag(asked.body)
            return Said(200, b"", {"ETag": self._objects[name][1]})
        if asked.method == "DELETE":
            self._objects.pop(name, None)
            return Said(204)
        return Said(405)

    def _listing(self, prefix: str) -> Said:
        inside = f"{BUCKET}/"
        entries = [
            f"<Contents><Key>{name.removeprefix(inside)}</Key><Size>{len(data)}</Size>"
            f"<ETag>{etag}</ETag></Contents>"
            for name, (data, etag) in sorted(self._objects.items())
            if name.startswith(inside + prefix)
        ]
        body = f"<ListBucketResult>{''.join(entries)}</ListBucketResult>"
        return Said(200, body.encode(), {"Content-Type": "application/xml"})


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _verb(asked: Asked) -> str:
    """Return what kind of request it is; the writer rereads its journal as time passes."""
    if "list-type" in asked.target:
        return "LIST requests"
    if asked.method == "GET" and _JOURNAL in asked.path:
        return REREAD
    if asked.method == "GET" and "range" in asked.headers:
        return "GET requests with a range"
    return f"{asked.method} requests"


def _header_bytes(asked: Asked) -> int:
    lines = sum(
        len(name) + len(value) + _HEADER
        for name, value in asked.headers.items()
        if name not in _VARIABLE
    )
    return len(asked.method) - len("GET") + len(asked.target) + _LINE + lines
