"""Who we are: keys, shared access signatures and tokens, given or found."""

from __future__ import annotations

import base64
import binascii
import os
import threading
import time
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from streaming_core._store._azure._place import environment, environment_names, texts_of
from streaming_core.errors import SchemaError, StoreError

if TYPE_CHECKING:
    from streaming_core._store._options import Options

__all__ = ["Credentials", "Proof", "SharedKey", "Signature", "Token"]

_SCOPE: Final = "https://storage.azure.com/.default"
_EARLY_SECONDS: Final = 300.0
"""Tokens are renewed so long before they end, but not in the first half of their life."""
_AGAIN_SECONDS: Final = 60.0
"""Where no token was found, the first request that is made so much later looks again."""
_KEYS: Final = ("AZURE_ACCOUNT_ACCESS_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
_SIGNATURE: Final = "AZURE_STORAGE_SAS_TOKEN"


class SharedKey(NamedTuple):
    """One of the two keys of an account."""

    key: bytes

    def __repr__(self) -> str:
        return "SharedKey(...)"


class Signature(NamedTuple):
    """A shared access signature: what every query has to have."""

    pairs: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return "Signature(...)"


class Token(NamedTuple):
    """A bearer token."""

    text: str

    def __repr__(self) -> str:
        return "Token(...)"


Proof: TypeAlias = SharedKey | Signature | Token | None
"""What proves an identity; None stands for requests of nobody in particular."""


class _Found(NamedTuple):
    """What Azure's own chain gave."""

    token: Token | None = None
    until: float = 0.0
    """When to ask again."""
    ends: float = 0.0
    """When the token is worth nothing."""


class _Identity:
    """The token that the chain gives this process: one for all stores."""

    def __init__(self) -> None:
        self.found = _Found()
        self.start()

    def start(self) -> None:
        """Begin in a forked child: with the parent's token, and a lock that no thread holds."""
        self.lock = threading.Lock()

    def token(self) -> Token | None:
        """Return the token, None if the chain finds none; asked for by one thread at a time."""
        found = self.found
        if time.time() < found.until:
            return found.token
        with self.lock:
            if time.time() >= self.found.until:
                self.found = _asked(self.found)
            return self.found.token

    def forget(self, used: Token) -> bool:
        """Drop a token that was refused; tell whether another came instead."""
        with self.lock:
            if self.found.token == used:
                self.found = _asked(self.found._replace(ends=0.0))
            return self.found.token not in {used, None}

    def take(self, found: _Found) -> None:
        """Begin with the token of the process that started this one."""
        with self.lock:
            if self.found.token is None:
                self.found = found


_identity = _Identity()
os.register_at_fork(after_in_child=_identity.start)


def _asked(before: _Found) -> _Found:
    """Ask the chain, which is made anew each time: it keeps tokens, threads and locks.

    Raises `StoreError` if it gives none now and the one that it gave `before` has ended.
    """
    try:
        from azure.core.exceptions import AzureError, ClientAuthenticationError  # noqa: PLC0415
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an extra, and slow
    except ImportError:
        return _Found(None, float("inf"))
    now = time.time()
    try:
        with DefaultAzureCredential() as chain:
            given = chain.get_token(_SCOPE)
    except AzureError as error:
        again = now + _AGAIN_SECONDS
        if now < before.ends:
            return before._replace(until=min(again, before.ends))
        if before.token is None and isinstance(error, ClientAuthenticationError):
            return _Found(None, again)  # there is nobody to be found
        msg = (
            f"a token for Azure storage could not be had: {type(error).__name__}; see the log of "
            "azure.identity, and check that its sources answer"
        )
        raise StoreError(msg) from None
    early = min(_EARLY_SECONDS, max(0.0, given.expires_on - now) / 2)
    return _Found(Token(given.token), given.expires_on - early, given.expires_on)


class Credentials:
    """What proves who we are to one account.

    The first of these that there is: the options `anonymous`, `account_key`, `sas_token`, `token`
    and `connection_string`; the same in the environment, unless that names another account; the
    token of Azure's chain; nothing. A token of the chain travels with a pickle only on the way to a
    worker process that `multiprocessing` is starting.
    """

    __slots__ = ("_account", "_options")

    def __init__(self, account: str, options: Options) -> None:
        self._account = account
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"account": self._account, "options": self._options}
        if get_spawning_popen() is not None:
            state["identity"] = _identity.found
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._account, self._options = state["account"], state["options"]
        _identity.take(state.get("identity", _Found()))

    def proof(self) -> Proof:
        """Return what to prove it with now."""
        options = self._options
        if options.get("anonymous"):
            return None
        return self._given() or self._surrounding() or _identity.token()

    def renew(self, used: Proof) -> bool:
        """Get another proof than the one `used`; tell whether there is any."""
        since = self._options.renewals
        # Another thread may have been quicker.
        if self.proof() != used or (self._options.renew(since) and self.proof() != used):
            return True
        is_chain = isinstance(used, Token) and used == _identity.found.token
        return is_chain and isinstance(used, Token) and _identity.forget(used)

    def _given(self) -> Proof:
        options = self._options
        if key := options.get("account_key"):
            return _shared_key(key)
        if signature := options.get("sas_token"):
            return _signature(signature)
        if token := options.get("token"):
            return Token(str(token))
        return self._connection() if options.get("connection_string") else None

    def _surrounding(self) -> Proof:
        if found := self._connection():
            return found
        if not environment_names(self._account):
            return None
        if signature := environment(_SIGNATURE):
            return _signature(signature)
        key = environment(*_KEYS)
        return _shared_key(key) if key else None

    def _connection(self) -> Proof:
        texts = texts_of(self._options, self._account)
        if key := texts.get("accountkey"):
            return _shared_key(key)
        signature = texts.get("sharedaccesssignature")
        return _signature(signature) if signature else None


def _shared_key(text: object) -> SharedKey:
    try:
        return SharedKey(base64.b64decode(str(text).strip(), validate=True))
    except (binascii.Error, ValueError):
        msg = (
            "the account key of Azure storage is not base64; copy it whole from 'Access keys' of "
            "the storage account (it is not shown here because it is secret)"
        )
        raise SchemaError(msg) from None


def _signature(text: object) -> Signature:
    pairs = tuple(parse_qsl(str(text).strip().lstrip("?"), keep_blank_values=True))
    if "sig" not in dict(pairs):
        msg = (
            "the SAS token of Azure storage has no 'sig='; give the whole query of a signed URL "
            "(it is not shown here because it is secret)"
        )
        raise SchemaError(msg)
    return Signature(pairs)
