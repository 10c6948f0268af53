"""How a connection to an SFTP server is made, and whom we trust to be one."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._store._sftp._packets import StatusError
from streaming_core._store._sftp._session import Session
from streaming_core._store._sftp._transfer import WINDOW_BYTES

if TYPE_CHECKING:
    from streaming_core._store._sftp._place import Login, Place

__all__ = ["STALL_SECONDS", "Link", "RefusedError", "connected", "failures"]

_LOG: Final = "streaming_core.store.sftp"
_CONNECT_SECONDS: Final = 10.0
_LOGIN_SECONDS: Final = 30.0
STALL_SECONDS: Final = 30.0
"""How long nothing may come or go; how long all takes is nobody's business."""
_ALIVE_SECONDS: Final = 30
"""So often an idle connection says a word, lest firewalls forget it."""
_PROBE_SECONDS: Final = 10.0

# Without it, what paramiko logs would be printed where nobody has asked for logs.
logging.getLogger(_LOG).addHandler(logging.NullHandler())


class RefusedError(Exception):
    """The server does not let us in, or we do not trust it; its text has no secret."""


def failures() -> tuple[type[Exception], ...]:
    """Return all that a connection raises when it breaks."""
    return (OSError, EOFError, _paramiko().SSHException)


class Link:
    """A connection to a server, and the conversation over it; one process's own."""

    __slots__ = ("_channel", "_client", "_socket", "session", "used")

    def __init__(self, client: Any, line: socket.socket) -> None:  # noqa: ANN401 - paramiko's
        self._client = client
        self._socket = line
        self._channel = channel = client.get_transport().open_session(
            window_size=WINDOW_BYTES, timeout=_LOGIN_SECONDS
        )
        channel.settimeout(STALL_SECONDS)
        channel.invoke_subsystem("sftp")
        self.session = Session(channel)
        self.used = time.monotonic()
        """When it was used last."""

    @property
    def is_usable(self) -> bool:
        """Whether the next request may go over it."""
        transport = self._client.get_transport()
        return (
            transport is not None
            and transport.is_active()
            and not self._channel.closed
            and not self._channel.eof_received
            and self.session.is_quiet
        )

    def answers(self) -> bool:
        """Ask something small; tell whether the server answers soon."""
        self.wait(_PROBE_SECONDS)
        try:
            self.session.stat(b"/")
        except StatusError:
            return True
        except failures():
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Let requests from now on fail when nothing comes or goes for so long."""
        self._channel.settimeout(seconds)

    def close(self) -> None:
        """Hang up."""
        self._client.close()
        self._socket.close()

    def disown(self) -> None:
        """Let go, in a forked child, of what is the parent's: not a byte may be sent over it."""
        # Locks may have been held by threads that the child does not have.
        self._channel.lock = threading.Lock()
        self._channel.closed = True
        self._socket.close()


def connected(place: Place, login: Login) -> Link:
    """Return a connection to a server.

    Raises:
        RefusedError: Asking again with the same login cannot help.
        Exception: One of `failures`; asking again may help.
    """
    paramiko = _paramiko()
    key = _key(login)
    client = paramiko.SSHClient()
    client.set_log_channel(_LOG)
    _trust(client, place, login)
    line = socket.create_connection((place.host, place.port), _CONNECT_SECONDS)
    # Where a login is given, no other is tried: servers count the tries.
    is_given = key is not None or login.password is not None
    try:
        client.connect(
            place.host,
            place.port,
            login.user,
            login.password,
            pkey=key,
            sock=line,
            timeout=_LOGIN_SECONDS,
            banner_timeout=_LOGIN_SECONDS,
            auth_timeout=_LOGIN_SECONDS,
            channel_timeout=_LOGIN_SECONDS,
            allow_agent=not is_given,
            look_for_keys=not is_given,
        )
        client.get_transport().set_keepalive(_ALIVE_SECONDS)
        return Link(client, line)
    except BaseException as error:
        client.close()
        line.close()
        reason = _reason(error, place, login)
        if reason is not None:
            raise RefusedError(reason) from error
        raise


def _reason(error: Any, place: Place, login: Login) -> str | None:  # noqa: ANN401 - paramiko's
    """Return why we are not let in, or do not want to be; None if something broke."""
    paramiko = _paramiko()
    if isinstance(error, paramiko.BadHostKeyException):
        return (
            f"{place.server} shows the host key {_fingerprint(error.key)}, not the one in "
            f"{_hosts_name(login)}, {_fingerprint(error.expected_key)}: another machine may be "
            "answering. If its owner has changed the key, correct that file"
        )
    if isinstance(error, paramiko.AuthenticationException):
        return (
            f"{place.server} does not let the user {login.user!r} in with {_means(login)}; check "
            "user, password, key_file and passphrase"
        )
    return None


def _paramiko() -> Any:  # noqa: ANN401 - it has no types
    return require("paramiko", extra="sftp", purpose="the scheme sftp://")


def _key(login: Login) -> Any:  # noqa: ANN401 - paramiko's
    if not login.key_file:
        return None
    path = Path(os.path.expanduser(login.key_file))  # noqa: PTH111 - there may be no home
    secret = login.passphrase.encode() if login.passphrase else None
    try:
        return _paramiko().PKey.from_path(path, secret)
    except OSError as error:
        msg = f"the key file {str(path)!r} cannot be read: {os.strerror(error.errno or 0)}"
        raise RefusedError(msg) from error
    except Exception as error:
        # Many libraries take part in reading keys, each with errors of its own.
        how = "with the passphrase given" if secret else "without a passphrase"
        msg = (
            f"the key file {str(path)!r} cannot be used {how} ({type(error).__name__}); it must "
            "be a private key, with its passphrase in the storage option 'passphrase' if it has one"
        )
        raise RefusedError(msg) from error


def _trust(client: Any, place: Place, login: Login) -> None:  # noqa: ANN401 - paramiko's
    if not login.host_key_check:
        client.set_missing_host_key_policy(_Anyone())
        return
    client.set_missing_host_key_policy(_OnlyKnown(place, login))
    if login.known_hosts_file is None:
        client.load_system_host_keys()
        return
    path = Path(os.path.expanduser(login.known_hosts_file))  # noqa: PTH111 - there may be no home
    try:
        client.load_system_host_keys(str(path))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        msg = f"the file of known hosts {str(path)!r} cannot be read: {reason}"
        raise RefusedError(msg) from error


class _Anyone:
    """Takes a server whose key nobody knows."""

    def missing_host_key(self, client: object, hostname: str, key: object) -> None:
        """Take it."""


class _OnlyKnown:
    """Refuses a server whose key nobody knows."""

    def __init__(self, place: Place, login: Login) -> None:
        self._place = place
        self._login = login

    def missing_host_key(self, client: object, hostname: str, key: Any) -> None:  # noqa: ANN401
        """Refuse it, and say how it becomes known."""
        del client, hostname
        place, file = self._place, _hosts_name(self._login)
        msg = (
            f"the host key of {place.server}, {_fingerprint(key)}, is not in {file}. If that is "
            f"the key its owner names, add it: ssh-keyscan -p {place.port} {place.host} >> {file}; "
            "or name another file in the storage option 'known_hosts_file'"
        )
        raise RefusedError(msg)


def _hosts_name(login: Login) -> str:
    return login.known_hosts_file or "~/.ssh/known_hosts"


def _fingerprint(key: Any) -> str:  # noqa: ANN401 - paramiko's
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"


def _means(login: Login) -> str:
    if login.key_file:
        return f"the key in {login.key_file!r}"
    return "the password given" if login.password else "the keys of this machine"
