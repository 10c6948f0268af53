"""A Databricks workspace of one process: files of volumes, files of DBFS, and signing in."""

from __future__ import annotations

import base64
import itertools
import json
import secrets
import threading
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.ranged import ranged, said_json
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from tests.servers.web import Asked

__all__ = ["Workspace"]

_FILES: Final = "/api/2.0/fs/files"
_FOLDERS: Final = "/api/2.0/fs/directories"
_DBFS: Final = "/api/2.0/dbfs/"
_MEBIBYTE: Final = 1 << 20
_PAGE: Final = 3


class _File(NamedTuple):
    data: bytes
    changed: int
    """In milliseconds."""


class Workspace:
    """Answers as a workspace does while the `with` block runs.

    Requests need `token`, or one that was given for the client secret `secret`. Files in volumes
    need a folder that exists; files of DBFS make theirs.
    """

    def __init__(self, *, token: str = "") -> None:
        self.token = token or secrets.token_hex(8)
        self.secret = secrets.token_hex(8)
        self.files: dict[str, _File] = {}
        self.folders: set[str] = {"/", "/Volumes/main/default/data"}
        self.failing: list[Said] = []
        """Answers to give first, to whatever comes."""
        self.signed_in = 0
        """How often a client secret was shown."""
        self._handles: dict[int, tuple[str, bytearray]] = {}
        self._numbers = itertools.count(1)
        self._guard = threading.RLock()
        self.web = WebServer(answer=self._answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.web.__exit__()

    @property
    def url(self) -> str:
        """What `DATABRICKS_HOST` is to be."""
        return self.web.url

    def put(self, path: str, data: bytes) -> None:
        """Store a file, and all folders above it."""
        with self._guard:
            self._mkdirs(path.rpartition("/")[0])
            self.files[path] = _File(data, time.time_ns() // 1_000_000)

    # --- requests ---------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> Said:
        with self._guard:
            if "/oidc/" in asked.path:
                return self._sign_in(asked)
            if asked.path == "/.well-known/databricks-config":
                return said_json({"oidc_endpoint": f"{self.url}/oidc", "workspace_id": "1"})
            if asked.headers.get("authorization") != f"Bearer {self.token}":
                return _error(401, "UNAUTHENTICATED", "Credential was not sent or was wrong.")
            if self.failing:
                return self.failing.pop(0)
            if asked.path.startswith(_DBFS):
                return self._dbfs(asked, asked.path.removeprefix(_DBFS))
            path = unquote(urlsplit(asked.target).path)
            if path.startswith(_FILES):
                said = self._volume_file(asked, path.removeprefix(_FILES))
            elif path.startswith(_FOLDERS):
                said = self._volume_folder(asked, path.removeprefix(_FOLDERS).rstrip("/"))
            else:
                said = _error(404, "ENDPOINT_NOT_FOUND", "No API found")
            return said

    def _sign_in(self, asked: Asked) -> Said:
        if ".well-known" in asked.path:
            ends = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
            return said_json({name: f"{self.url}/oidc/v1/{end}" for name, end in ends.items()})
        shown = asked.headers.get("authorization", "").removeprefix("Basic ")
        if base64.b64decode(shown).decode().partition(":")[2] != self.secret:
            return said_json({"error": "invalid_client"}, 401)
        self.signed_in += 1
        return said_json({"access_token": self.token, "token_type": "Bearer", "expires_in": 3600})

    # --- volumes ----------------------------------------------------------------------------------

    def _volume_file(self, asked: Asked, path: str) -> Said:
        file = self.files.get(path)
        query = _query(asked)
        if asked.method == "PUT":
            if path in self.folders or path.rpartition("/")[0] not in self.folders:
                return _error(404, "NOT_FOUND", "The directory being accessed is not found.")
            if file is not None and query.get("overwrite", "true") == "false":
                return _error(409, "ALREADY_EXISTS", "The file being created already exists.")
            self.put(path, asked.body)
            return Said(204)
        if file is None:
            return _error(404, "NOT_FOUND", "The file being accessed is not found.")
        if asked.method == "DELETE":
            del self.files[path]
            return Said(204)
        times = {
            "Last-Modified": formatdate(file.changed // 1000, usegmt=True),
            "Date": formatdate(usegmt=True),
        }
        if asked.headers.get("range", "").startswith("bytes=-"):
            return _error(400, "INVALID_PARAMETER_VALUE", "Suffix ranges are not supported.")
        return ranged(asked, file.data, {"Content-Type": "application/octet-stream", **times})

    def _volume_folder(self, asked: Asked, path: str) -> Said:
        if asked.method == "PUT":
            self._mkdirs(path)
            return Said(204)
        if path not in self.folders:
            return _error(404, "NOT_FOUND", "The directory being accessed is not found.")
        if asked.method != "GET":
            return Said(204)
        found = [
            {
                "path": f"{entry['path']}/" if entry["is_dir"] else entry["path"],
                "name": entry["path"].rpartition("/")[2],
                "is_directory": entry["is_dir"],
                "file_size": entry["file_size"],
                "last_modified": entry["modification_time"],
            }
            for entry in self._listed(path)
        ]
        at = int(_query(asked).get("page_token", "0"))
        page: dict[str, Any] = {"contents": found[at : at + _PAGE]}
        if at + _PAGE < len(found):
            page["next_page_token"] = str(at + _PAGE)
        return said_json(page)

    # --- DBFS -------------------------------------------------------------------------------------

    def _dbfs(self, asked: Asked, verb: str) -> Said:
        given: dict[str, Any] = {**_query(asked)}
        if asked.method == "POST":
            given = json.loads(asked.body)
        act = getattr(self, "_dbfs_" + verb.replace("-", "_"))
        said: Said = act(given)
        return said

    def _dbfs_get_status(self, given: dict[str, Any]) -> Said:
        path = given["path"]
        if path in self.folders:
            return said_json({"path": path, "is_dir": True, "file_size": 0})
        return said_json(self._status(path)) if path in self.files else _absent(path)

    def _dbfs_list(self, given: dict[str, Any]) -> Said:
        path = given["path"].rstrip("/") or "/"
        if path in self.files:
            return said_json({"files": [self._status(path)]})
        if path not in self.folders:
            return _absent(path)
        found = self._listed(path)
        return said_json({"files": found} if found else {})

    def _dbfs_read(self, given: dict[str, Any]) -> Said:
        file = self.files.get(given["path"])
        offset, length = int(given["offset"]), int(given["length"])
        if file is None:
            return _absent(given["path"])
        if length > _MEBIBYTE:
            return _error(400, "MAX_READ_SIZE_EXCEEDED", "The read length exceeds 1 MB.")
        data = file.data[offset : offset + length]
        return said_json({"bytes_read": len(data), "data": base64.b64encode(data).decode()})

    def _dbfs_put(self, given: dict[str, Any]) -> Said:
        if len(given["contents"]) > _MEBIBYTE:
            return _error(400, "MAX_BLOCK_SIZE_EXCEEDED", "The contents exceed 1 MB.")
        return self._taken(given) or self._stored(
            given["path"], base64.b64decode(given["contents"])
        )

    def _dbfs_create(self, given: dict[str, Any]) -> Said:
        taken = self._taken(given)
        if taken is not None:
            return taken
        handle = next(self._numbers)
        self._handles[handle] = (given["path"], bytearray())
        self.put(given["path"], b"")
        return said_json({"handle": handle})

    def _dbfs_add_block(self, given: dict[str, Any]) -> Said:
        path, data = self._handles[given["handle"]]
        block = base64.b64decode(given["data"])
        if len(block) > _MEBIBYTE:
            return _error(400, "MAX_BLOCK_SIZE_EXCEEDED", "The block exceeds 1 MB.")
        data += block
        return self._stored(path, bytes(data))

    def _dbfs_close(self, given: dict[str, Any]) -> Said:
        del self._handles[given["handle"]]
        return said_json({})

    def _dbfs_move(self, given: dict[str, Any]) -> Said:
        source, target = given["source_path"], given["destination_path"]
        if source not in self.files:
            return _absent(source)
        taken = self._taken({"path": target})
        if taken is not None:
            return taken
        self.files[target] = self.files.pop(source)
        return said_json({})

    def _dbfs_mkdirs(self, given: dict[str, Any]) -> Said:
        self._mkdirs(given["path"])
        return said_json({})

    def _dbfs_delete(self, given: dict[str, Any]) -> Said:
        path = given["path"]
        if path in self.folders:
            if self._listed(path):
                return _error(500, "IO_ERROR", "The directory is not empty.")
            self.folders.discard(path)
        elif self.files.pop(path, None) is None:
            return _absent(path)
        return said_json({})

    # --- files ------------------------------------------------------------------------------------

    def _taken(self, given: dict[str, Any]) -> Said | None:
        path = given["path"]
        if path in self.folders or (path in self.files and not given.get("overwrite")):
            return _error(400, "RESOURCE_ALREADY_EXISTS", f"A file exists at {path}.")
        return None

    def _stored(self, path: str, data: bytes) -> Said:
        self.put(path, data)
        return said_json({})

    def _mkdirs(self, path: str) -> None:
        while path and path not in self.folders:
            self.folders.add(path)
            path = path.rpartition("/")[0]

    def _status(self, path: str) -> dict[str, Any]:
        file = self.files[path]
        return {
            "path": path,
            "is_dir": False,
            "file_size": len(file.data),
            "modification_time": file.changed,
        }

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        above = "" if folder == "/" else folder
        found = [self._status(p) for p in self.files if p.rpartition("/")[0] == above]
        found += [
            {"path": path, "is_dir": True, "file_size": 0, "modification_time": 0}
            for path in self.folders
            if path.rpartition("/")[0] == above and path != "/"
        ]
        return sorted(found, key=lambda entry: str(entry["path"])[::-1])


def _query(asked: Asked) -> dict[str, str]:
    return {k: v[0] for k, v in parse_qs(urlsplit(asked.target).query).items()}


def _error(status: int, code: str, message: str) -> Said:
    return said_json({"error_code": code, "message": message}, status)


def _absent(path: str) -> Said:
    return _error(404, "RESOURCE_DOES_NOT_EXIST", f"No file or directory exists on path {path}.")
