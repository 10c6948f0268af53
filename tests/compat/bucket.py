"""A server that speaks enough S3 to serve a folder, so that URLs are the same everywhere."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.web import Asked

__all__ = ["BUCKET", "Bucket"]

BUCKET: Final = "compat"
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_WRITTEN: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_WRITTEN_XML: Final = "2026-01-01T00:00:00.000Z"


class Bucket:
    """Serves the files of a folder as the bucket `s3://compat` while the `with` block runs.

    ETags are the MD5 of the content, as on S3, so they are the same on every machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where the objects lie."""
        self.stalled: dict[str, int] = {}
        """Keys of which only so many bytes are sent; the connection then stays open."""
        self._web = WebServer(answer=self._answer)

    def __enter__(self) -> Self:
        self._web.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._web.__exit__()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that lead clients here."""
        return {
            "AWS_ENDPOINT_URL": self._web.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._web.url

    def read_keys(self) -> set[str]:
        """Return the keys whose content was requested so far."""
        start = f"/{BUCKET}/"
        return {
            entry.path.removeprefix(start)
            for entry in [*self._web.log]
            if entry.method == "GET" and entry.path.startswith(start) and entry.path != start
        }

    def num_listings(self) -> int:
        """Return how many requests listed keys so far."""
        return sum(self._web.count("GET", path) for path in (f"/{BUCKET}", f"/{BUCKET}/"))

    def forget(self) -> None:
        """Clear the record of requests."""
        self._web.log.clear()

    def _answer(self, asked: Asked) -> Said:
        bucket, _, key = asked.path.removeprefix("/").partition("/")
        if bucket != BUCKET or asked.method not in {"GET", "HEAD", "PUT"}:
            return _error(403, "AccessDenied")
        if not key:
            return self._listing(parse_qs(urlsplit(asked.target).query, keep_blank_values=True))
        path = self.folder / key
        if asked.method == "PUT":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(asked.body)
            return Said(200, b"", {"ETag": f'"{_etag(path)}"'})
        return self._object(asked, key, path)

    def _object(self, asked: Asked, key: str, path: Path) -> Said:
        if not path.is_file():
            return _error(404, "NoSuchKey")
        data = path.read_bytes()
        headers = {"ETag": f'"{_etag(path)}"', "Last-Modified": _WRITTEN, "Accept-Ranges": "bytes"}
        start, stop, status = 0, len(data), 200
        match = _RANGE.fullmatch(asked.headers.get("range", ""))
        if match is not None:
            if match[1]:
                start = int(match[1])
                stop = min(stop, int(match[2]) + 1) if match[2] else stop
            else:
                start = max(0, stop - int(match[2]))
            if start >= stop:
                return _error(416, "InvalidRange")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            status = 206
        if asked.method == "HEAD":
            return Said(status, b"", headers, length=stop - start)
        sent = min(stop, max(start, self.stalled.get(key, stop)))
        return Said(status, data[start:sent], headers, length=stop - start)

    def _listing(self, query: dict[str, list[str]]) -> Said:
        prefix = query.get("prefix", [""])[0]
        delimiter = query.get("delimiter", [""])[0]
        after = query.get("start-after", [""])[0]
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        keys = sorted(path.relative_to(self.folder).as_posix() for path in paths)
        found: list[str] = []
        folders: set[str] = set()
        for key in keys:
            if not key.startswith(prefix) or key <= after:
                continue
            head, mark, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if mark:
                folders.add(f"{prefix}{head}{mark}")
                continue
            path = self.folder / key
            found.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{_WRITTEN_XML}</LastModified>"
                f'<ETag>"{_etag(path)}"</ETag><Size>{path.stat().st_size}</Size>'
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found) + len(folders)}</KeyCount><MaxKeys>100000</MaxKeys>"
            f"<IsTruncated>false</IsTruncated>{''.join(found)}{common}</ListBucketResult>"
        )
        return Said(200, body.encode(), {"Content-Type": "application/xml"})


def _etag(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _error(status: int, code: str) -> Said:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code></Error>'
    return Said(status, body.encode(), {"Content-Type": "application/xml"})
