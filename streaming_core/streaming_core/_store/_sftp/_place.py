"""What a URL and the options say: which server, who we are there, whom to trust."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import SplitResult, quote, unquote, urlsplit

from streaming_core._store._options import Options
from streaming_core._store._resolve import public_url
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    from streaming_core._store._options import StorageOptions

__all__ = ["Login", "Place", "Says"]

_PORT: Final = 22


class Login(NamedTuple):
    """With what to log in, as it is when a connection is made."""

    user: str
    password: str | None
    key_file: str | None
    passphrase: str | None
    known_hosts_file: str | None
    host_key_check: bool

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class Place(NamedTuple):
    """A server, and a folder there.

    Example:
        >>> Place.of("sftp://me:secret@example.org:2222/data/my%20set").url
        'sftp://me@example.org:2222/data/my%20set'
    """

    host: str
    port: int
    user: str
    """Empty for that of this process."""
    folder: str
    """Absolute, without a slash at its end."""

    @classmethod
    def of(cls, url: str) -> Self:
        """Return what a URL names; raises `SchemaError` if it is none for SFTP."""
        parts = _parts(url)
        shown = f"sftp://{parts.netloc.rpartition('@')[2]}{parts.path}"
        try:
            port = parts.port or _PORT
        except ValueError:
            port = 0
        folder = unquote(parts.path)
        if not parts.hostname or not port or not folder.startswith("/") or "\0" in folder:
            msg = (
                f"{shown!r} names no folder on a server; write "
                "sftp://user@host:port/absolute/path, with / alone for the server's root"
            )
            raise SchemaError(msg)
        return cls(parts.hostname, port, unquote(parts.username or ""), folder.rstrip("/"))

    @property
    def origin(self) -> str:
        """The beginning of its URLs, without a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        return f"sftp://{user}{host}" + ("" if self.port == _PORT else f":{self.port}")

    @property
    def url(self) -> str:
        """The folder as a URL, without a password."""
        return self.origin + (quote(self.folder) or "/")

    @property
    def server(self) -> str:
        """The server as messages name it."""
        return f"{self.host}:{self.port}"


class Says:
    """What URL and options say of logging in; secrets stay in the process."""

    __slots__ = ("_options", "_url", "user")

    def __init__(self, url: str, options: StorageOptions | None) -> None:
        """Raises `SchemaError` for options that are none."""
        parts = _parts(url)
        secrets = {} if parts.password is None else {"password": unquote(parts.password)}
        self._url = Options(secrets, known=(), secret={"password"})
        self._options = Options(
            options,
            known={"host_key_check", "key_file", "known_hosts_file"},
            secret={"passphrase", "password"},
        )
        self.user = unquote(parts.username or "")

    def login(self) -> Login:
        """Return with what to log in now."""
        get = self._options.get
        check = get("host_key_check", default=True)
        if not isinstance(check, bool):
            msg = f"the storage option 'host_key_check' must be True or False; came {check!r}"
            raise SchemaError(msg)
        return Login(
            self.user or getpass.getuser(),
            get("password") or self._url.get("password"),
            get("key_file", "COMPOSER_SFTP_KEY_FILE"),
            get("passphrase"),
            get("known_hosts_file", "COMPOSER_SFTP_KNOWN_HOSTS_FILE"),
            check,
        )

    @property
    def renewals(self) -> int:
        """How often other options were asked for."""
        return self._options.renewals

    def renew(self, since: int) -> bool:
        """Ask for other options than those of `since`; tell whether there are any."""
        return self._options.renew(since)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url.replace("?", "%3F").replace("#", "%23"))
    except ValueError:  # brackets that are no IPv6 address; what is said of them has the password
        msg = (
            f"{public_url(url)!r} is no URL: the host is malformed; write sftp://host/folder, an "
            "IPv6 address in brackets as in sftp://[::1]:22/folder"
        )
        raise SchemaError(msg) from None
