"""Where access tokens come from: options, a service account, or the chain of Google's own tools."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import threading
import time
from contextlib import contextmanager
from datetime import UTC
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from streaming_core._extras import require
from streaming_core._store._gcs._transport import ask
from streaming_core.errors import AccessDeniedError, SchemaError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from streaming_core._store._options import Options

__all__ = ["Token", "Tokens"]

_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
_EARLY_SECONDS: Final = (120.0, 200.0)
"""Tokens are renewed so long before they end. Each process draws its own moment, as the children of
one parent would otherwise all ask at once. It has to be less than 225, before which Google's own
library does not look for another one."""
_QUIET_SECONDS: Final = 10.0
"""After the chain gave no better token than the one there is, it is left alone for so long."""
_WAIT_SECONDS: Final = 180.0
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")


class Token(NamedTuple):
    """What proves an identity for a while; an empty text stands for nobody."""

    text: str
    ends: float = float("inf")
    """When, as `time.time` counts."""

    def __repr__(self) -> str:
        return "Token(...)"


class _Identity:
    """One identity in this process: its token, and who may ask for another one."""

    def __init__(self) -> None:
        self.token: Token | None = None
        self.start()

    def start(self) -> None:
        """Begin, also in a forked child: with the token that is known, and nothing else.

        Locks, here and in Google's library, may be held by threads that the child does not have.
        """
        self.lock = threading.Lock()
        self.source: Any = None
        self.early = random.uniform(*_EARLY_SECONDS)  # noqa: S311 - spreads load, guards nothing
        self.quiet_until = 0.0

    def get(self, make: Callable[[], Any]) -> Token:
        """Return the token to use now; `make` gives Google's object for this identity."""
        known = self.token
        if known is not None and self._holds(known):
            return known
        with self.alone():
            known = self.token
            if known is not None and self._holds(known):  # another thread was quicker
                return known
            try:
                self.token = self._asked(make)
            except StoreError:
                # It was asked for early, so that a service that is busy now is no harm yet.
                if known is None or known.ends < time.time():
                    raise
                self.quiet_until = time.monotonic() + _QUIET_SECONDS
                return known
            else:
                return self.token

    def renew(self, used: str, make: Callable[[], Any]) -> bool:
        """Get another token than the one `used`; tell whether there is one."""
        with self.alone():
            if self.token is None or self.token.text == used:
                self.token = self._asked(make)
            return self.token.text not in {used, ""}

    @contextmanager
    def alone(self) -> Generator[None]:
        """Let one thread of this process in at a time; `StoreError` where that takes too long."""
        # A fork may put another lock in its place.
        lock = self.lock
        if not lock.acquire(timeout=_WAIT_SECONDS):
            msg = (
                f"waited {_WAIT_SECONDS:.0f} s for another thread of this process that asks for an "
                "access token; check that Google's token service can be reached"
            )
            raise StoreError(msg)
        try:
            yield
        finally:
            lock.release()

    def _holds(self, token: Token) -> bool:
        now = time.time()
        early = 0.0 if time.monotonic() < self.quiet_until else self.early
        return now < token.ends - early

    def _asked(self, make: Callable[[], Any]) -> Token:
        if self.source is None:
            self.source = make()
        if self.source is NOBODY:
            return Token("")
        token = _refreshed(self.source)
        if token.ends - self.early < time.time():
            self.quiet_until = time.monotonic() + _QUIET_SECONDS
        return token


NOBODY: Final = object()
"""Google's object where its chain finds no identity."""

_identities: dict[str, _Identity] = {}


def _start_anew() -> None:
    for identity in list(_identities.values()):
        identity.start()


os.register_at_fork(after_in_child=_start_anew)


class Tokens:
    """The tokens for one store, asked for once in this process and its forked children.

    A worker process that `multiprocessing` starts anew is given the token as well.
    """

    __slots__ = ("_is_emulator", "_options")

    def __init__(self, options: Options, *, is_emulator: bool) -> None:
        self._options = options
        self._is_emulator = is_emulator

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"options": self._options, "is_emulator": self._is_emulator}
        if get_spawning_popen() is not None and self._is_asked_for:
            name, _ = self._source()
            identity = _identities.get(name)
            if identity is not None and identity.token is not None:
                state |= {"name": name, "token": tuple(identity.token)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = state["options"]
        self._is_emulator = state["is_emulator"]
        if "token" in state:
            identity = _identities.setdefault(state["name"], _Identity())
            identity.token = identity.token or Token(*state["token"])

    def text(self) -> str:
        """Return the token to use now; empty for requests without one.

        Raises:
            AccessDeniedError: Google's token service refused the identity.
            MissingExtraError: google-auth is needed and not installed.
            SchemaError: What was given is no token, or no service account.
        """
        if not self._is_asked_for:
            return self._given()
        name, make = self._source()
        return _identities.setdefault(name, _Identity()).get(make).text

    def renew(self, used: str) -> bool:
        """Get another token than the one `used`; tell whether there is one."""
        if not used:
            return False
        with _identities.setdefault("options", _Identity()).alone():
            since = self._options.renewals
            if self.text() != used:  # another thread was quicker
                return True
            if self._options.renew(since) and self.text() != used:
                return True
        if not self._is_asked_for:
            return False
        name, make = self._source()
        return _identities.setdefault(name, _Identity()).renew(used, make)

    @property
    def is_chosen(self) -> bool:
        """Whether somebody said that requests go without a token."""
        return bool(self._options.get("anonymous")) or self._is_emulator

    @property
    def _is_asked_for(self) -> bool:
        options = self._options
        if options.get("anonymous") or options.get("token") is not None:
            return False
        accounts = ("service_account_file", "service_account_info")
        return not self._is_emulator or any(options.get(name) for name in accounts)

    def _given(self) -> str:
        if self._options.get("anonymous"):
            return ""
        text = str(self._options.get("token", default="")).strip()
        if text and _PRINTABLE.fullmatch(text) is None:
            msg = "the storage option token has characters that no access token has"
            raise SchemaError(msg)
        return text

    def _source(self) -> tuple[str, Callable[[], Any]]:
        """Return a name that stands for the identity, and what makes Google's object of it."""
        info, file = (self._options.get(f"service_account_{kind}") for kind in ("info", "file"))
        if info:
            found = _document(info)
            digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
            return f"info:{digest}", lambda: _account(found, "the storage option")
        if file:
            return f"file:{file}", lambda: _account_of_file(str(file))
        named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
        return f"chain:{named}", lambda: _chain(named)


def _document(info: object) -> dict[str, Any]:
    try:
        found: dict[str, Any] | object = json.loads(info) if isinstance(info, str | bytes) else info
    except ValueError:
        found = None
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    msg = (
        "the storage option service_account_info must be the document of a service account's key, "
        "as a mapping or as JSON"
    )
    raise SchemaError(msg)


def _account_of_file(path: str) -> Any:  # noqa: ANN401 - of a package without types
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as the user wrote it
            found = json.load(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON document"
        msg = f"the service account's key {path!r} cannot be read: {reason}"
        raise AccessDeniedError(msg) from None
    return _account(found, repr(path))


def _account(info: object, where: str) -> Any:  # noqa: ANN401 - of a package without types
    module = require("google.oauth2.service_account", extra="gcs", purpose="a service account")
    try:
        return module.Credentials.from_service_account_info(info, scopes=[_SCOPE])
    except Exception as error:  # noqa: BLE001 - of many kinds, with parts of the key in their texts
        msg = (
            f"{where} has no usable key of a service account ({type(error).__name__}); give the "
            "JSON document that Google's console makes for one"
        )
        raise SchemaError(msg) from None


def _chain(named: str) -> Any:  # noqa: ANN401 - of a package without types
    """Return what Google's own tools would use, `NOBODY` if they find nothing."""
    purpose = "Google's credentials (storage option anonymous=True reads public data without)"
    auth = require("google.auth", extra="gcs", purpose=purpose)
    errors = require("google.auth.exceptions", extra="gcs", purpose=purpose)
    try:
        found, _ = auth.default(scopes=[_SCOPE], request=ask)
    except errors.DefaultCredentialsError as error:
        if not named:
            return NOBODY
        msg = f"GOOGLE_APPLICATION_CREDENTIALS names {named!r}, which cannot be used: {error}"
        raise AccessDeniedError(msg) from None
    except errors.GoogleAuthError as error:
        raise _failed(error) from None
    return found


def _refreshed(source: Any) -> Token:  # noqa: ANN401 - of a package without types
    errors = require("google.auth.exceptions", extra="gcs", purpose="Google's credentials")
    try:
        source.refresh(ask)
    except errors.GoogleAuthError as error:
        raise _failed(error) from None
    ends = source.expiry
    # Google's library counts in UTC without saying so.
    return Token(
        source.token, float("inf") if ends is None else ends.replace(tzinfo=UTC).timestamp()
    )


def _failed(error: Exception) -> StoreError:
    """Return a refusal as final, anything else as what may pass."""
    reason = f"{type(error).__name__}: {str(error.args[0]) if error.args else ''}"[:300]
    if type(error).__name__ == "RefreshError" and not getattr(error, "retryable", False):
        return AccessDeniedError(
            f"Google's token service refused the credentials: {reason}; sign in again, or check "
            "the service account and its key"
        )
    return StoreError(f"Google's token service gave no access token: {reason}")
