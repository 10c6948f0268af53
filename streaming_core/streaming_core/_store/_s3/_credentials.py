"""Where keys come from: options, environment, or the chain that Amazon's own tools follow."""

from __future__ import annotations

import os
import threading
import time
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_core._extras import require
from streaming_core._store._s3._sign import Keys
from streaming_core.errors import AccessDeniedError, MissingExtraError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._options import Options

__all__ = ["Credentials"]

_EARLY_SECONDS: Final = 120.0
"""Keys are renewed so long before they run out."""
_FRESH_SECONDS: Final = 1.0
"""Whoever finds keys refused so soon after they were asked for gets no others."""
_NONE_SECONDS: Final = 30.0
"""Where no keys were found, a refusal makes us look again so much later at the earliest."""
_NEVER: Final = float("inf")
_OF_KEYS: Final = ("access_key_id", "secret_access_key", "session_token")


class _Known(NamedTuple):
    """What the chain has said."""

    keys: Keys | None
    asked: float
    """When, by `time.time`; it counts in other processes as well."""
    ends: float
    """When they run out."""

    @property
    def due(self) -> float:
        """When to ask again: in time, but keys with a short life must not be asked for always."""
        return max(self.ends - _EARLY_SECONDS, min(self.ends, self.asked + _FRESH_SECONDS))


class _Chain:
    """The keys that Amazon's chain gives this process, by profile."""

    def __init__(self) -> None:
        self.known: dict[str, _Known] = {}
        self.start()

    def start(self) -> None:
        """Begin again in a forked child: with the keys that are known, and an own lock.

        The sessions' locks may be held by threads that the child does not have.
        """
        self.lock = threading.Lock()
        self.sessions: dict[str, Any] = {}

    def keys(self, profile: str) -> Keys | None:
        """Return the keys of a profile, None if there are none."""
        known, now = self.known.get(profile), time.time()
        if known is not None and now < known.due:
            return known.keys
        # Those that still hold serve while one thread gets the next.
        must = known is None or now >= known.ends
        if not self.lock.acquire(blocking=must):
            return known.keys if known is not None else None
        try:
            known = self.known.get(profile)
            if known is None or time.time() >= known.due:
                known = self.known[profile] = self._asked(profile, known)
            return known.keys
        finally:
            self.lock.release()

    def replace(self, profile: str, used: Keys | None) -> bool:
        """Ask for other keys than those that were refused; tell whether there are any."""
        with self.lock:
            known, now = self.known.get(profile), time.time()
            if known is None or known.keys == used:
                if known and now < known.asked + (_FRESH_SECONDS if used else _NONE_SECONDS):
                    return False
                self.sessions.pop(profile, None)
                known = self.known[profile] = self._ask(profile)
            return known.keys is not None and known.keys != used

    def learn(self, told: Mapping[str, _Known]) -> None:
        """Take what the process that started this one knows."""
        for profile, known in told.items():
            self.known.setdefault(profile, known)

    def _asked(self, profile: str, before: _Known | None) -> _Known:
        try:
            return self._ask(profile)
        except StoreError:
            if before is None or time.time() >= before.ends:
                raise
            return before._replace(asked=time.time())

    def _ask(self, profile: str) -> _Known:
        now = time.time()
        try:
            botocore = require("botocore.session", extra="s3", purpose=f"the profile {profile!r}")
            problems = require("botocore.exceptions", extra="s3", purpose="the credentials")
        except MissingExtraError:
            if profile:
                raise
            return _Known(None, now, _NEVER)
        try:
            session = self.sessions.get(profile)
            if session is None:
                session = self.sessions[profile] = botocore.Session(profile=profile or None)
            found = session.get_credentials()
            if found is None:
                return _Known(None, now, _NEVER)
            frozen = found.get_frozen_credentials()
        except problems.ProfileNotFound as error:
            msg = f"credentials: there is no profile {profile!r} in the configuration of AWS"
            raise AccessDeniedError(msg) from error
        except (problems.BotoCoreError, OSError, ValueError) as error:
            msg = (
                f"credentials: those of {'profile ' + repr(profile) if profile else 'AWS'} could "
                f"not be got, {type(error).__name__}; check with: aws sts get-caller-identity"
            )
            raise StoreError(msg) from error
        ends = getattr(found, "_expiry_time", None)
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token or "")
        return _Known(keys, now, _NEVER if ends is None else ends.timestamp())


_chain = _Chain()
os.register_at_fork(after_in_child=_chain.start)


class Credentials:
    """The keys for one store.

    Those in the options come first, then those in the environment, then Amazon's chain, which needs
    botocore. With the option `profile` only that profile counts.
    """

    __slots__ = ("_options",)

    def __init__(self, options: Options) -> None:
        self._options = options

    def __getstate__(self) -> tuple[Options, dict[str, _Known]]:
        """Tell a worker process that is being started what is known, so that it need not ask."""
        return self._options, {} if get_spawning_popen() is None else dict(_chain.known)

    def __setstate__(self, state: tuple[Options, dict[str, _Known]]) -> None:
        self._options, told = state
        _chain.learn(told)

    def keys(self) -> Keys | None:
        """Return the keys to sign with now; None for requests without a signature.

        Raises:
            AccessDeniedError: An access key comes without its secret, or secrets did not travel.
            StoreError: The chain failed; it may do better the next time.
            MissingExtraError: A profile is asked for, and botocore is not installed.
        """
        if self._options.get("anonymous"):
            return None
        given = self._given()
        profile = self._options.get("profile", default="")
        if given is not None or profile:
            return given or _chain.keys(profile)
        return self._of_environment() or _chain.keys("")

    def renew(self, used: Keys | None) -> bool:
        """Get other keys than those `used`; tell whether there are any."""
        if self._options.get("anonymous"):
            return False
        since = self._options.renewals
        if self.keys() != used:  # another thread was quicker
            return True
        if self._options.renew(since) and self.keys() != used:
            return True
        profile = self._options.get("profile", default="")
        if self._given() or (not profile and self._of_environment()):
            return False
        return _chain.replace(profile, used)

    def absence(self) -> str:
        """Return why requests are not signed, and what to do about it; empty if they are."""
        if self._options.get("anonymous"):
            return "the request was not signed, as the option anonymous wants it"
        if self.keys() is not None:
            return ""
        where = "none of storage_options and environment (AWS_ACCESS_KEY_ID) has credentials"
        try:
            require("botocore.session", extra="s3", purpose="the credentials")
        except MissingExtraError:
            return (
                f"the request was not signed: {where}, and boto3, which would look in profiles, "
                "roles and metadata services, is not installed: pip install 'streaming-core[s3]'"
            )
        return f"the request was not signed: {where}, nor have profiles and metadata services"

    def _given(self) -> Keys | None:
        access, secret, token = self._options.together(*_OF_KEYS)
        if not access and not secret:
            return None
        return _paired(access, secret, token, "the storage options")

    @staticmethod
    def _of_environment() -> Keys | None:
        access, secret, token = (
            os.environ.get(f"AWS_{name}")
            for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
        )
        return _paired(access, secret, token, "the environment") if access else None


def _paired(access: str | None, secret: str | None, token: str | None, where: str) -> Keys:
    if not access or not secret:
        name = "secret access key" if access else "access key id"
        msg = f"credentials: {where} lack the {name}; give both, or neither"
        raise AccessDeniedError(msg)
    return Keys(access, secret, token or "")
