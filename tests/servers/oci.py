"""An object storage of Oracle's kind in this process, which verifies every signature."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import threading
import time
from email.utils import formatdate, mktime_tz, parsedate_tz
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from tests.servers.ranged import ranged, said_json
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from tests.servers.web import Asked

__all__ = ["ObjectStorage"]

_PAGE: Final = 3
_SKEW_SECONDS: Final = 300
_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')
_PATH: Final = re.compile(r"/n/([^/]+)/b/([^/]+)/(o|u)(?:/(.*))?", re.DOTALL)
_PUT_NAMES: Final = ["date", "(request-target)", "host"]
_POST_NAMES: Final = [*_PUT_NAMES, "content-length", "content-type", "x-content-sha256"]


class _Object(NamedTuple):
    data: bytes
    etag: str


class ObjectStorage:
    """Answers as the service does while the `with` block runs; it has one bucket.

    Requests are to be signed with `key`, a PEM document, under `key_id`.
    """

    tenancy, user = "ocid1.tenancy.oc1..t", "ocid1.user.oc1..u"

    def __init__(self, *, bucket: str = "bucket", namespace: str = "space") -> None:
        self._private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.fingerprint = ":".join(secrets.token_hex(1) for _ in range(16))
        self.key_id = f"{self.tenancy}/{self.user}/{self.fingerprint}"
        self.public = False
        """Whether reading needs no signature."""
        self.ahead = 0.0
        """How many seconds the server's clock is ahead."""
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, dict[int, _Object]] = {}
        self.failing: list[Said] = []
        """Answers to give first, to whatever is signed rightly."""
        self._place = (namespace, bucket)
        self._guard = threading.RLock()
        self.web = WebServer(answer=self._answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.web.__exit__()

    @property
    def url(self) -> str:
        """The service's address."""
        return self.web.url

    def key(self, pass_phrase: str = "") -> str:
        """Return the private key, locked if there is a pass phrase."""
        lock = BestAvailableEncryption(pass_phrase.encode()) if pass_phrase else NoEncryption()
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock).decode()

    # --- signatures -------------------------------------------------------------------------------

    def _why_refused(self, asked: Asked) -> str:
        said = asked.headers.get("authorization", "")
        if not said and self.public and asked.method in {"GET", "HEAD"}:
            return ""
        fields = dict(_FIELD.findall(said))
        if not said.startswith("Signature ") or fields.get("algorithm") != "rsa-sha256":
            return "no signature"
        if fields["keyId"] != self.key_id:
            return "unknown key"
        names = fields["headers"].split()
        if names != (_POST_NAMES if asked.method == "POST" else _PUT_NAMES):
            return f"signed were {names}"
        moment = parsedate_tz(asked.headers["date"])
        if moment is None or abs(mktime_tz(moment) - time.time() - self.ahead) > _SKEW_SECONDS:
            return "the clock is skewed"
        if asked.method == "POST":
            digest = base64.b64encode(hashlib.sha256(asked.body).digest()).decode()
            if asked.headers["x-content-sha256"] != digest:
                return "another body"
        values = {
            **asked.headers,
            "(request-target)": f"{asked.method.lower()} {asked.target}",
            "host": urlsplit(self.url).netloc,
        }
        text = "\n".join(f"{name}: {values[name]}" for name in names)
        signature = base64.b64decode(fields["signature"])
        try:
            self._private.public_key().verify(
                signature, text.encode(), padding.PKCS1v15(), SHA256()
            )
        except InvalidSignature:
            return "another signature"
        return ""

    # --- requests ---------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> Said:
        with self._guard:
            why = self._why_refused(asked)
            if why:
                date = formatdate(time.time() + self.ahead, usegmt=True)
                return _error(401, "NotAuthenticated", why, Date=date)
            if self.failing:
                return self.failing.pop(0)
            match = _PATH.fullmatch(unquote(urlsplit(asked.target).path))
            if match is None:
                return _error(404, "NotFound", "no such call")
            if (match[1], match[2]) != self._place:
                return _error(404, "BucketNotFound", f"the bucket {match[2]} does not exist")
            sent = asked.headers.get("content-md5")
            digest = hashlib.md5(asked.body, usedforsecurity=False).digest()
            if sent and base64.b64decode(sent) != digest:
                return _error(400, "UnmatchedContentMD5", "the body is another")
            if match[3] == "u":
                return self._upload(asked, match[4] or "")
            return self._object(asked, match[4]) if match[4] else self._list(asked)

    def _list(self, asked: Asked) -> Said:
        query = _query(asked)
        names = sorted(name for name in self.objects if name.startswith(query.get("prefix", "")))
        names = [name for name in names if name >= query.get("start", "")]
        fields = query["fields"].split(",")
        page: dict[str, Any] = {"objects": [], "prefixes": []}
        for name in names[:_PAGE]:
            found = self.objects[name]
            known = {"name": name, "size": len(found.data), "etag": found.etag}
            page["objects"].append({field: known[field] for field in fields})
        if len(names) > _PAGE:
            page["nextStartWith"] = names[_PAGE]
        return said_json(page)

    def _object(self, asked: Asked, name: str) -> Said:
        if asked.method == "PUT":
            return self._publish(asked, name, asked.body)
        found = self.objects.get(name)
        if found is None:
            return _error(404, "ObjectNotFound", f"the object {name} was not found")
        if asked.method == "DELETE":
            del self.objects[name]
            return Said(204)
        return ranged(asked, found.data, {"ETag": found.etag})

    def _publish(self, asked: Asked, name: str, data: bytes) -> Said:
        if asked.headers.get("if-none-match") == "*" and name in self.objects:
            return _error(412, "IfNoneMatchFailed", "the object exists")
        self.objects[name] = _Object(data, secrets.token_hex(16))
        return Said(200, b"", {"ETag": self.objects[name].etag})

    def _upload(self, asked: Asked, name: str) -> Said:
        query = _query(asked)
        if "uploadId" not in query:
            upload = secrets.token_hex(8)
            self.uploads[upload] = {}
            return said_json({"uploadId": upload, "object": json.loads(asked.body)["object"]})
        parts = self.uploads.get(query["uploadId"])
        if parts is None:
            return _error(404, "NoSuchUpload", "no such upload")
        if asked.method == "PUT":
            part = _Object(asked.body, secrets.token_hex(16))
            parts[int(query["uploadPartNum"])] = part
            return Said(200, b"", {"ETag": part.etag})
        if asked.method == "DELETE":
            del self.uploads[query["uploadId"]]
            return Said(204)
        wanted = json.loads(asked.body)["partsToCommit"]
        if any(parts[part["partNum"]].etag != part["etag"] for part in wanted):
            return _error(400, "InvalidUploadPart", "no such part")
        said = self._publish(asked, name, b"".join(parts[part["partNum"]].data for part in wanted))
        if said.status == 200:
            del self.uploads[query["uploadId"]]
        return said


def _query(asked: Asked) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(urlsplit(asked.target).query).items()}


def _error(status: int, code: str, message: str, **headers: str) -> Said:
    return said_json({"code": code, "message": message}, status, **headers)
