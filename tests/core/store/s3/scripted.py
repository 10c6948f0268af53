"""A server that a test scripts, for what real ones do only on bad days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.servers.web import Asked, Said, WebServer

from streaming_core._store._s3 import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ETAG", "Scripted", "error"]

ETAG = {"ETag": '"e"'}


def error(status: int, code: str, more: str = "", **headers: str) -> Said:
    """Return an error as S3 says it; `_` in the names of headers stands for `-`."""
    body = f"<Error><Code>{code}</Code><Message>It is so.</Message>{more}</Error>"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said(status, body.encode(), named)


class Scripted:
    """A server of objects that refuses some requests, and what it was asked."""

    def __init__(self, server: WebServer) -> None:
        self.server = server
        self.asked: list[Asked] = []
        self.refuse: Callable[[Asked], Said | None] = lambda _: None
        server.answer = self._answer
        server.files.put("data/a", b"body")

    def _answer(self, asked: Asked) -> Said | None:
        self.asked.append(asked)
        said = self.refuse(asked)
        if said is not None and asked.method == "HEAD":
            return Said(said.status, b"", said.headers)
        return said

    def store(self, **options: Any) -> S3Store:
        """Return the bucket as a store."""
        return S3Store.at("s3://data", {"endpoint_url": self.server.url, **options})

    def header(self, name: str) -> list[str]:
        """Return this header of all requests, empty where it was missing."""
        return [asked.headers.get(name, "") for asked in self.asked]
