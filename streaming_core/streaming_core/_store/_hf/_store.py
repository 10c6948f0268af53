"""Files in a repository of the Hugging Face Hub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from streaming_core._names import name_problem
from streaming_core._store._contract import ObjectInfo, byte_views, check_key, check_prefix
from streaming_core._store._hf._commits import Change
from streaming_core._store._hf._gate import HfGate, committing
from streaming_core._store._hf._place import COMMIT, repo_of
from streaming_core._store._http import Call, HttpStore, RefusedError
from streaming_core._store._options import Options
from streaming_core.errors import AccessDeniedError, AlreadyExistsError, SchemaError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming_core._store._contract import Buffer
    from streaming_core._store._options import StorageOptions

__all__ = ["HfStore", "hf_from_url"]

_ENDPOINT: Final = "https://huggingface.co"
_PAGE_BYTES: Final = 64 << 20
_NEXT: Final = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_MISSING: Final = 404


class _Large(msgspec.Struct):
    oid: str
    size: int


class _Entry(msgspec.Struct):
    """A line of a listing."""

    type: str
    path: str
    oid: str = ""
    size: int = 0
    lfs: _Large | None = None


_ENTRIES: Final = msgspec.json.Decoder(list[_Entry])


class HfStore(HttpStore):
    """The files below a folder of a repository, all of one commit.

    That is the commit at which the revision was when the store was first used, so a data set that
    is changed meanwhile is read as it was. Writing makes a commit for each object, and the store
    goes on to read that one.

    Example:
        >>> HfStore.at("hf://datasets/owner/name@v1/train")
        HfStore('hf://datasets/owner/name@v1/train')
    """

    __slots__ = ()

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> HfStore:
        """Return the store at an `hf://` URL; see the guide on storage for the options.

        Raises `SchemaError` for a URL that names no repository, and for options that are none.
        """
        known = Options(
            options,
            known=("allow_http", "anonymous", "ca_file", "endpoint_url", "revision"),
            secret=("token",),
        )
        repo, root, folder = repo_of(url, str(known.get("revision", default="")))
        endpoint = str(known.get("endpoint_url", "HF_ENDPOINT", default=_ENDPOINT))
        try:
            gate = HfGate(endpoint, repo, known)
        except ValueError as error:
            msg = f"the hub's address {endpoint!r} cannot be used: {error}"
            raise SchemaError(msg) from None
        return cls(gate, root, f"{folder}/" if folder else "")

    @property
    def _hf(self) -> HfGate:
        assert isinstance(self._gate, HfGate)  # noqa: S101 - for the type checker
        return self._gate

    def _path(self, key: str) -> str:
        return self._path_at(key, self._hf.commit())

    def _path_at(self, key: str, commit: str) -> str:
        return f"{self._hf.repo.web}/resolve/{commit}/{quote(self._prefix + key)}"

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files; the hub's order is another, so all are asked for before the first."""
        check_prefix(prefix, url=self.url)
        return self._listed(self._prefix + prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        found = [entry for entry in self._entries(prefix) if entry.path.startswith(prefix)]
        for entry in sorted(found, key=lambda entry: entry.path):
            key = entry.path[len(self._prefix) :]
            if entry.type == "file" and name_problem(key) is None:
                large = entry.lfs
                size, etag = (entry.size, entry.oid) if large is None else (large.size, large.oid)
                yield ObjectInfo(key, size, etag)

    def _entries(self, prefix: str) -> Iterator[_Entry]:
        """Yield what is below the folder that `prefix` lies in."""
        folder = prefix.rpartition("/")[0]
        query = {"recursive": "true", "expand": "false"}
        while query:
            with self._errors("", "list"):
                path = f"{self._hf.repo.api}/tree/{self._hf.commit()}"
                if folder:
                    path += f"/{quote(folder)}"
                try:
                    with self._gate.send(Call("GET", path, query)) as answer:
                        page, links = answer.read(_PAGE_BYTES), answer.headers.get("link", "")
                except RefusedError as error:
                    if error.status == _MISSING and error.refusal.code == "EntryNotFound":
                        return
                    raise
                try:
                    entries = _ENTRIES.decode(page)
                except msgspec.DecodeError as error:
                    msg = f"list in {self.url}: the answer is no listing, {error}"
                    raise StoreError(msg) from None
            yield from entries
            more = _NEXT.search(links)
            # Only the query is taken from there, so that the token goes nowhere else.
            query = dict(parse_qsl(urlsplit(more[1]).query)) if more else {}

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Commit the file; see `Store.put`.

        `if_absent` lets the commit follow only the one in which the file was found missing.

        Raises:
            StoreBusyError: Another commit came between; trying again helps.
        """
        check_key(key, url=self.url, operation="put")
        data = b"".join(byte_views(buffers))
        with self._errors(key, "put"):
            self._check_branch(key, "put")
            if if_absent:
                self._check_absent(key, self._hf.newest())
            change = Change(self._hf, self._prefix + key, data)
            with committing():
                parent = self._hf.newest() if if_absent else None
                if parent:
                    self._check_absent(key, parent)
                self._hf.move_to(change.commit(parent=parent))
                info = self.head(key)
        if info.size != len(data):
            msg = f"put {key!r} in {self.url}: {info.size} bytes arrived of {len(data)}"
            raise StoreError(msg)
        return info

    def delete(self, key: str) -> None:
        """Commit the file's removal; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        with self._errors(key, "delete"), committing():
            self._check_branch(key, "delete")
            parent = self._hf.newest()
            if self._is_there(key, parent):
                change = Change(self._hf, self._prefix + key, None)
                parent = change.commit(parent=parent)
            self._hf.move_to(parent)

    def _check_branch(self, key: str, operation: str) -> None:
        if COMMIT.fullmatch(self._hf.repo.revision):
            msg = (
                f"{operation} {key!r} in {self.url}: a commit cannot be changed; "
                "name a branch instead"
            )
            raise AccessDeniedError(msg)

    def _check_absent(self, key: str, commit: str) -> None:
        if self._is_there(key, commit):
            msg = f"put {key!r} in {self.url}: the file exists already and was left as it is"
            raise AlreadyExistsError(msg)

    def _is_there(self, key: str, commit: str) -> bool:
        try:
            self._gate.send(Call("HEAD", self._path_at(key, commit))).close()
        except RefusedError as error:
            if error.status == _MISSING:
                return False
            raise
        return True


def hf_from_url(url: str, options: StorageOptions | None = None) -> HfStore:
    """Return the store that an `hf://` URL names."""
    return HfStore.at(url, options)
