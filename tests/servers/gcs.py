"""Google Cloud Storage in this process: gcp-storage-emulator, and moto for who has an HMAC key."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from http.server import ThreadingHTTPServer
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tests.servers.s3 import moto
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tests.servers.s3 import S3Server
    from tests.servers.web import Asked

__all__ = ["HMAC", "Emulator", "KeyedServer", "emulator", "keyed"]

HMAC: Final = {"hmac_key_id": "GOOG1EXAMPLE", "hmac_secret": "an-hmac-secret"}
"""Storage options that `keyed` takes; it looks at signatures."""
_CREDENTIAL: Final = re.compile(
    r"GOOG4-HMAC-SHA256 Credential=(\w+)/(\d{8})/auto/storage/goog4_req"
)
_MOST_SKEW: Final = timedelta(minutes=15)


# --- the emulator ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running gcp-storage-emulator."""

    url: str

    @contextmanager
    def client(self) -> Generator[Any]:
        """Give google-cloud-storage's client for it."""
        nobody = import_module("google.auth.credentials").AnonymousCredentials()
        client = import_module("google.cloud.storage").Client(
            project="test", credentials=nobody, client_options={"api_endpoint": self.url}
        )
        try:
            yield client
        finally:
            client.close()

    def bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        body = f'{{"name": "{name}"}}'
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/storage/v1/b?project=test", body, headers)
        status = connection.getresponse().status
        connection.close()
        assert status == http.HTTPStatus.OK
        return name


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of tests leave in the middle."""


def _storage() -> Any:
    """Return the emulator's memory, for many threads, and without its copy of the index."""
    base: Any = import_module("gcp_storage_emulator.storage").Storage
    guard = threading.RLock()

    class Locked(base):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name.startswith("_") or not callable(value):
                return value

            @wraps(value)
            def alone(*args: Any, **kwargs: Any) -> Any:
                with guard:
                    return value(*args, **kwargs)

            return alone

        def _write_config_to_file(self) -> None:
            """Do nothing: it writes everything anew with each object."""

    return Locked(use_memory_fs=True)


@contextmanager
def emulator() -> Generator[Emulator]:
    """Run gcp-storage-emulator in threads of this process; everybody may do everything."""
    handler = import_module("gcp_storage_emulator.server").RequestHandler
    with _Server(("127.0.0.1", 0), partial(handler, _storage())) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield Emulator(f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join(60)


# --- with an HMAC key -----------------------------------------------------------------------------


class KeyedServer:
    """What stands before moto: Google's dialect of S3, with signatures that are looked at."""

    def __init__(self, behind: S3Server) -> None:
        self._behind = urlsplit(behind.url)
        self.backend = behind
        """Moto, for boto3."""
        self.url = ""
        """Where it is reached."""
        self.ahead = timedelta()
        """How much its clock is ahead."""
        self.seen: list[Mapping[str, str]] = []
        """The headers of all requests."""

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the storage options that lead there."""
        return {"endpoint_url": self.url, **HMAC, **more}

    def answer(self, asked: Asked) -> Said:
        """Judge a request as Google does, and have moto answer it."""
        self.seen.append(asked.headers)
        refused = self._refused(asked)
        if refused is not None:
            return refused
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request"
        }
        for name in ("content-md5", "content-type", "range"):
            if name in asked.headers:
                headers[name] = asked.headers[name]
        if asked.headers.get("x-goog-if-generation-match") == "0":
            headers["If-None-Match"] = "*"
        connection = http.client.HTTPConnection(
            self._behind.hostname or "", self._behind.port, timeout=60
        )
        try:
            connection.request(asked.method, asked.target, asked.body or None, headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        kept = ("content-length", "content-range", "content-type", "etag", "last-modified")
        said = {name: value for name in kept if (value := answer.headers.get(name))}
        if asked.method != "HEAD":
            said.pop("content-length", None)
        return Said(answer.status, body, {**said, "x-goog-generation": "1"})

    def _refused(self, asked: Asked) -> Said | None:
        headers = asked.headers
        if any(name.startswith("x-amz-") for name in headers):
            return _error(400, "ExcessHeaderValues", "Do not mix dialects.")
        match = _CREDENTIAL.match(headers.get("authorization", ""))
        if match is None:
            return _error(403, "AccessDenied", "Access denied.")
        now = datetime.now(UTC) + self.ahead
        moment = datetime.strptime(headers["x-goog-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(now - moment) > _MOST_SKEW:
            date = {"Date": now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
            return _error(403, "RequestTimeTooSkewed", "The clocks differ.", date)
        if match[1] != HMAC["hmac_key_id"] or _authorization(asked) != headers["authorization"]:
            return _error(403, "SignatureDoesNotMatch", "Access denied.")
        return None


def _authorization(asked: Asked) -> str:
    """Return what has to stand in a request's `Authorization`, as botocore canonicalises it."""
    signed = {
        name: value
        for name, value in asked.headers.items()
        if name == "host" or name.startswith("x-goog-")
    }
    parts = urlsplit(asked.target)
    request = import_module("botocore.awsrequest").AWSRequest(
        asked.method, f"http://{signed['host']}{asked.target}", signed
    )
    botos = import_module("botocore.auth").SigV4Auth(None, "storage", "auto")
    headers = botos.headers_to_sign(request)
    names = botos.signed_headers(headers)
    lines = [
        asked.method,
        parts.path,
        botos.canonical_query_string(request),
        botos.canonical_headers(headers) + "\n",
        names,
        "UNSIGNED-PAYLOAD",
    ]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    stamp = signed["x-goog-date"]
    key = b"GOOG4" + HMAC["hmac_secret"].encode()
    for part in (stamp[:8], "auto", "storage", "goog4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    scope = f"{stamp[:8]}/auto/storage/goog4_request"
    text = f"GOOG4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    return (
        f"GOOG4-HMAC-SHA256 Credential={HMAC['hmac_key_id']}/{scope}, SignedHeaders={names}, "
        f"Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"
    )


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Said:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Said(status, body.encode(), {"Content-Type": "application/xml", **(headers or {})})


@contextmanager
def keyed() -> Generator[KeyedServer]:
    """Run moto behind Google's dialect, in threads of this process."""
    with moto() as behind:
        server = KeyedServer(behind)
        with WebServer(answer=server.answer) as web:
            server.url = web.url
            yield server
