"""A hub of one process: repositories with commits, and a second host where large files lie."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.servers.ranged import ranged, said_json
from tests.servers.web import Said, WebServer

if TYPE_CHECKING:
    from tests.servers.web import Asked

__all__ = ["Hub"]

LARGE_BYTES: Final = 100_000
_PAGE: Final = 3
_KINDS: Final = ("datasets", "spaces", "models")

Tree = dict[str, bytes]


class Hub:
    """Answers as the Hugging Face Hub does while the `with` block runs.

    `repos` are those that exist, as `kind/owner/name`. Files of `LARGE_BYTES` or more are answered
    with a redirection to a second server, whose addresses are signed and hold until `expire`.
    With a `token`, requests without it see no repository.
    """

    def __init__(self, *repos: str, token: str = "") -> None:
        self.token = token
        self.gated = False
        self.cached = False
        """Whether small files are answered with a redirection on the same host."""
        self.revisions: dict[str, dict[str, str]] = {}
        self.trees: dict[str, Tree] = {}
        self.failing: list[Said] = []
        """Answers to give first, to whatever comes."""
        self.between: str = ""
        """A repository to which another commit is added before the next one arrives."""
        self._signature = secrets.token_hex(8)
        self._guard = threading.RLock()
        self.strangers: list[str] = []
        """Authorisations that came to the second host; there should be none."""
        for repo in repos:
            self.revisions[repo] = {}
            self.commit(repo, {})
        self.web = WebServer(answer=self._answer)
        self.cdn = WebServer(answer=self._cdn_answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        self.cdn.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.cdn.__exit__()
        self.web.__exit__()

    @property
    def url(self) -> str:
        """What `HF_ENDPOINT` is to be."""
        return self.web.url

    def commit(self, repo: str, changes: dict[str, bytes | None], branch: str = "main") -> str:
        """Add a commit, None removes a file, and return its name."""
        with self._guard:
            tree = dict(self.trees.get(self.revisions[repo].get(branch, ""), {}))
            for path, data in changes.items():
                if data is None:
                    tree.pop(path, None)
                else:
                    tree[path] = data
            name = hashlib.sha1(secrets.token_bytes(20)).hexdigest()  # noqa: S324 - as git names
            self.trees[name] = tree
            self.revisions[repo][branch] = name
            return name

    def expire(self) -> None:
        """Let the addresses on the second host be good no longer."""
        self._signature = secrets.token_hex(8)

    # --- the second host --------------------------------------------------------------------------

    def _cdn_answer(self, asked: Asked) -> Said:
        if "authorization" in asked.headers:
            self.strangers.append(asked.headers["authorization"])
        parts = urlsplit(asked.target)
        if parse_qs(parts.query).get("Signature") != [self._signature]:
            return Said(403, b"<Error><Code>AccessDenied</Code></Error>")
        commit, _, path = unquote(parts.path).removeprefix("/").partition("/")
        data = self.trees[commit][path]
        return ranged(asked, data, {"ETag": '"of-the-cdn"'})

    # --- the hub ----------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> Said:
        with self._guard:
            if self.failing:
                return self.failing.pop(0)
            parts = [unquote(part) for part in urlsplit(asked.target).path.split("/")[1:]]
            if parts[0] == "api" and parts[1] in _KINDS:
                return self._api(asked, "/".join(parts[1:4]), parts[4:])
            if parts[:2] == ["api", "resolve-cache"]:
                repo, commit = "/".join(parts[2:5]), parts[5]
                path = "/".join(parts[6:])
                return self._refused(asked, repo) or self._resolve(asked, repo, commit, path)
            kind = parts.pop(0) if parts[0] in _KINDS else "models"
            if len(parts) > 4 and parts[2] == "resolve":
                repo = "/".join([kind, *parts[:2]])
                return self._refused(asked, repo) or self._resolve(
                    asked, repo, parts[3], "/".join(parts[4:])
                )
            return _missing("")

    def _refused(self, asked: Asked, repo: str) -> Said | None:
        known = not self.token or asked.headers.get("authorization") == f"Bearer {self.token}"
        if repo not in self.revisions or not known:
            said = "Invalid username or password." if not known else "Repository not found"
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": said}
            return Said(404 if known else 401, b"{}", headers)
        if self.gated:
            return Said(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Restricted"})
        return None

    def _commit_of(self, repo: str, revision: str) -> str | None:
        found = self.revisions[repo].get(revision)
        return found or (revision if revision in self.trees else None)

    def _resolve(self, asked: Asked, repo: str, revision: str, path: str) -> Said:
        commit = self._commit_of(repo, revision)
        if commit is None:
            return _missing("RevisionNotFound")
        data = self.trees[commit].get(path)
        if data is None:
            return _missing("EntryNotFound")
        headers = {"X-Repo-Commit": commit}
        if len(data) < LARGE_BYTES and self.cached and "/resolve-cache/" not in asked.path:
            place = f"/api/resolve-cache/{repo}/{commit}/{path}"
            return Said(307, b"Temporary Redirect", {**headers, "Location": place})
        if len(data) < LARGE_BYTES:
            return ranged(asked, data, {**headers, "ETag": f'"{_blob(data)}"'})
        headers |= {
            "X-Linked-Size": str(len(data)),
            "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "Location": f"{self.cdn.url}/{commit}/{quote(path)}?Signature={self._signature}",
        }
        return Said(302, b"Found. Redirecting", headers)

    def _api(self, asked: Asked, repo: str, rest: list[str]) -> Said:
        refused = self._refused(asked, repo)
        if refused is not None:
            return refused
        query = {k: v[0] for k, v in parse_qs(urlsplit(asked.target).query).items()}
        verb, revision = (rest[0], rest[1]) if len(rest) > 1 else ("revision", "main")
        commit = self._commit_of(repo, revision)
        if commit is None:
            return _missing("RevisionNotFound")
        if verb == "revision":
            name = repo.partition("/")[2]
            return said_json({"id": name, "sha": commit, "siblings": [], "private": False})
        if verb == "tree":
            return self._tree(asked, commit, "/".join(rest[2:]), query)
        if verb == "preupload":
            files = json.loads(asked.body)["files"]
            return said_json({"files": [self._mode(file["path"], commit) for file in files]})
        if verb == "paths-info":
            wanted = set(json.loads(asked.body)["paths"])
            return said_json([_entry(p, d) for p, d in self.trees[commit].items() if p in wanted])
        if verb == "commit":
            return self._committed(asked, repo, revision)
        return _missing("")

    def _mode(self, path: str, commit: str) -> dict[str, Any]:
        there = self.trees[commit].get(path)
        found = {"path": path, "uploadMode": "regular", "shouldIgnore": False}
        return found if there is None else {**found, "oid": _blob(there)}

    def _tree(self, asked: Asked, commit: str, folder: str, query: dict[str, str]) -> Said:
        prefix = f"{folder}/" if folder else ""
        tree = {path: data for path, data in self.trees[commit].items() if path.startswith(prefix)}
        if folder and not tree:
            return _missing("EntryNotFound")
        entries: dict[str, Any] = {}
        deep = query.get("recursive", "").lower() in {"true", "1"}
        for path, data in tree.items():
            names = path.removeprefix(prefix).split("/")
            if deep or len(names) == 1:
                entries[path] = _entry(path, data)
            for depth in range(1, len(names)):
                above = prefix + "/".join(names[:depth])
                if depth == 1 or deep:
                    oid = hashlib.sha1(above.encode()).hexdigest()  # noqa: S324 - as git names
                    entries[above] = {"type": "directory", "path": above, "oid": oid, "size": 0}
        # Folders first, in no order that one could rely on.
        found = sorted(entries.values(), key=lambda entry: (entry["type"], entry["path"][::-1]))
        at = int(query.get("cursor", "0"))
        link = ""
        if at + _PAGE < len(found):
            here = urlsplit(asked.target).path
            more = f"recursive={query.get('recursive', 'false')}&cursor={at + _PAGE}"
            link = f'<{self.url}{here}?{more}>; rel="next"'
        return said_json(found[at : at + _PAGE], Link=link)

    def _committed(self, asked: Asked, repo: str, branch: str) -> Said:
        lines = [json.loads(line) for line in asked.body.splitlines()]
        if self.between == repo:
            self.between = ""
            self.commit(repo, {"other": b"between"}, branch)
        parent = lines[0]["value"].get("parentCommit")
        if parent not in {None, self.revisions[repo][branch]}:
            said = "A commit has happened since. Please refresh and try again."
            return said_json({"error": said}, 412, X_Error_Message=said)
        changes: dict[str, bytes | None] = {}
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                if value["path"] not in self.trees[self.revisions[repo][branch]]:
                    return _missing("EntryNotFound")
                changes[value["path"]] = None
        name = self.commit(repo, changes, branch)
        url = f"{self.url}/{repo}/commit/{name}"
        return said_json({"success": True, "commitOid": name, "commitUrl": url, "hookOutput": ""})


def _missing(code: str) -> Said:
    headers = {"X-Error-Code": code, "X-Error-Message": f"{code} here"} if code else {}
    return Said(404, b"<html>not here</html>", headers)


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - as git names


def _entry(path: str, data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
    if len(data) >= LARGE_BYTES:
        oid = hashlib.sha256(data).hexdigest()
        found["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 134}
    return found
