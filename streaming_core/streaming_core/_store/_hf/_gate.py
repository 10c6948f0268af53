"""The way to one repository of the hub, and from there to where its large files lie."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from streaming_core._store._hf._place import COMMIT, token_of
from streaming_core._store._http import (
    Answer,
    Call,
    Gate,
    Origin,
    Refusal,
    RefusedError,
    connection_options,
    sent,
)
from streaming_core._store._http._reading import content_range
from streaming_core._store._http._wire import Request, WireError, exchange
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from streaming_core._store._hf._place import Repo
    from streaming_core._store._options import Options

__all__ = ["HfGate", "committing"]

_RESET: Final = re.compile(r";\s*t=(\d+)", re.ASCII)
"""In how many seconds requests are allowed again, in the hub's `RateLimit` header."""
_MOST_HOPS: Final = 6
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_IN_TARGETS: Final = "%/:?#[]@!$&'()*+,;=~"
_SUCCESSES: Final = range(200, 300)
_ERRORS: Final = 400
_ERROR_BYTES: Final = 64 << 10
_PAGE_BYTES: Final = 64 << 20
_KNOWN_SECONDS: Final = 300.0
"""How long a file is asked for where the hub said that it lies; what it signs holds for an hour."""
_MOST_KNOWN: Final = 4096
_OUTDATED: Final = frozenset({400, 401, 403, 404, 410})
"""What a place says whose signature has run out."""

_MEANINGS: Final = {
    "RepoNotFound": (
        "the repository does not exist, or is private and the token may not read it; check its "
        "name, and set HF_TOKEN or the storage option token"
    ),
    "RevisionNotFound": "the repository has no such revision",
    "EntryNotFound": "the repository has no such file at this revision",
    "GatedRepo": (
        "the repository is gated: ask for access on its page, then set HF_TOKEN or the storage "
        "option token"
    ),
}


class _Guard:
    """What threads of one process do one at a time."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.asking = threading.Lock()
        self.committing = threading.Lock()


_guard = _Guard()
os.register_at_fork(after_in_child=_guard.start)


@contextmanager
def committing() -> Generator[None]:
    """Let one thread of this process commit at a time: the hub takes no more anyway."""
    with _guard.committing:
        yield


class _File(NamedTuple):
    """What the hub says of a file that lies elsewhere; empty for others."""

    etag: str = ""
    size: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> _File:
        return cls(headers.get("x-linked-etag", ""), headers.get("x-linked-size", ""))

    def named(self, answer: Answer) -> Answer:
        """Return an answer with the file's version in the form that listings have.

        Raises `WireError` if it is of a file of another size.
        """
        found = content_range(answer.headers.get("content-range", ""))
        size = answer.length if found is None else found[2]
        if self.size.isdigit() and size is not None and size != int(self.size):
            answer.close()
            msg = f"the file has {size} bytes where it lies, the hub says {self.size}"
            raise WireError(msg)
        etag = (self.etag or answer.headers.get("etag", "")).removeprefix("W/").strip('"')
        if etag:
            answer.headers["etag"] = etag
        return answer


class _Place(NamedTuple):
    """Where a large file lies."""

    origin: Origin
    target: str
    file: _File
    until: float


class _Pin:
    """A commit, empty as long as nobody asked; the gates of one store share it."""

    __slots__ = ("commit",)

    def __init__(self, commit: str) -> None:
        self.commit = commit


class _Revision(msgspec.Struct):
    sha: str


_REVISION: Final = msgspec.json.Decoder(_Revision)


class HfGate(Gate):
    """One repository, under one identity, seen at one commit.

    Which commit that is, is asked once; copies in other processes begin with the answer.
    """

    def __init__(self, endpoint: str, repo: Repo, options: Options) -> None:
        super().__init__(endpoint, **connection_options(options))
        self.repo = repo
        self._options = options
        self._pin = _Pin(repo.revision if COMMIT.fullmatch(repo.revision) else "")
        self._places: dict[str, _Place] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is signed or secret."""
        return self.__dict__ | {"_places": {}}

    # --- the commit -------------------------------------------------------------------------------

    def commit(self) -> str:
        """Return the commit that is read."""
        if not self._pin.commit:
            with _guard.asking:
                if not self._pin.commit:
                    self._pin.commit = self.newest()
        return self._pin.commit

    def newest(self) -> str:
        """Ask which commit the revision names now."""
        path = f"{self.repo.api}/revision/{quote(self.repo.revision, safe='')}"
        with self.send(Call("GET", path, {"expand": "sha"})) as answer:
            text = answer.read(_PAGE_BYTES)
        try:
            found = _REVISION.decode(text).sha
        except msgspec.DecodeError:
            found = ""
        if not COMMIT.fullmatch(found):
            msg = f"{self.origin.text} does not say at which commit {self.repo.name} is"
            raise StoreError(msg)
        return found

    def move_to(self, commit: str) -> None:
        """Read that commit from now on, which is one of our own."""
        self._pin.commit = commit

    # --- identity ---------------------------------------------------------------------------------

    def token(self) -> str:
        """Return the token; empty if there is none."""
        return token_of(self._options)

    def signed(self, call: Call) -> Call:
        """Add the token, if there is one."""
        sent.proof = token = self.token()
        if not token:
            return call
        return call._replace(headers={**call.headers, "Authorization": f"Bearer {token}"})

    def renew(self) -> bool:
        """Look for another token."""
        since = self._options.renewals
        return self.token() != sent.proof or self._options.renew(since)

    def explain(self, headers: Mapping[str, str], body: bytes) -> Refusal:
        """Return what the hub's own header says; bodies are pages as often as not."""
        del body
        code = headers.get("x-error-code", "")
        return Refusal(code, _MEANINGS.get(code) or headers.get("x-error-message", ""))

    # --- sending ----------------------------------------------------------------------------------

    def _sent(self, call: Call) -> Answer:
        """Send a call as the base does, but keep what the hub says of a file when it sends us on.

        The file's version is in the redirection only, and each range would cost two requests if
        the place were forgotten.
        """
        place = self._places.get(call.path) if call.method == "GET" else None
        if place is not None and time.monotonic() < place.until:
            answer = self._asked(place.origin, place.target, call, call.headers)
            if answer.status not in _OUTDATED:
                return self._judged(answer, call, place.file)
            answer.close()
            self._places.pop(call.path, None)
        return self._followed(call)

    def _followed(self, call: Call) -> Answer:
        signed = self.signed(call)
        origin, target, headers, file = self.origin, signed.target, signed.headers, _File()
        for _ in range(_MOST_HOPS):
            answer = self._asked(origin, target, call, headers)
            file = file if file.etag else _File.of(answer.headers)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location:
                if origin != self.origin and call.method == "GET" and answer.status < _ERRORS:
                    self._remember(call.path, origin, target, file)
                return self._judged(answer, call, file)
            with answer:
                answer.read(_ERROR_BYTES)
                there, target = _joined(origin, target, location)
            self.check_redirect(origin, there)
            if there != origin:  # the token is for the hub alone
                headers = call.headers
                if call.method == "HEAD" and file.etag and file.size:
                    answer.headers["content-length"] = file.size
                    return file.named(answer)
            origin = there
        raise RefusedError(_ERRORS, {}, Refusal("", f"redirected more than {_MOST_HOPS} times"))

    def _asked(self, origin: Origin, target: str, call: Call, headers: Mapping[str, str]) -> Answer:
        return exchange(
            Request(
                call.method,
                origin,
                target,
                headers,
                call.body,
                call.once,
                self.timeouts,
                self.ca_file,
                self.allow_http,
            )
        )

    def _judged(self, answer: Answer, call: Call, file: _File) -> Answer:
        """Return the answer if it is what was asked for, or raise what it says."""
        if answer.status in _SUCCESSES:
            return file.named(answer)
        reset = _RESET.search(answer.headers.get("ratelimit", ""))
        if reset is not None:
            answer.headers.setdefault("retry-after", reset[1])
        with answer:
            raise self._refused(answer, call.method)

    def _remember(self, path: str, origin: Origin, target: str, file: _File) -> None:
        if len(self._places) >= _MOST_KNOWN:
            self._places.clear()
        self._places[path] = _Place(origin, target, file, time.monotonic() + _KNOWN_SECONDS)


def _joined(origin: Origin, target: str, location: str) -> tuple[Origin, str]:
    """Return where a redirection leads."""
    # Headers come as Latin-1, whatever the server meant.
    location = quote(location.strip().encode("latin-1", "replace"), safe=_IN_TARGETS)
    try:
        url = urljoin(origin.text + target, location)
        parts = urlsplit(url)
        return Origin.of(url), (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    except ValueError:
        msg = "redirected to what is no http:// or https:// URL"
        raise RefusedError(_ERRORS, {}, Refusal("", msg)) from None
