"""Which workspace is meant, and what proves who we are there."""

from __future__ import annotations

import configparser
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_core._extras import require
from streaming_core.errors import AccessDeniedError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._options import Options

__all__ = ["KNOWN", "SECRET", "Account", "workspace_of"]

KNOWN: Final = ("allow_http", "ca_file", "host", "profile")
SECRET: Final = ("token",)
_DEFAULT: Final = "DEFAULT"


class _Sdk:
    """What Databricks' own package knows in this process, by workspace and profile."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew in a forked child; locks in there may be held by threads it does not have."""
        self.lock = threading.Lock()
        self.configs: dict[tuple[str, str], Any] = {}

    def headers(self, host: str, profile: str) -> Mapping[str, str]:
        """Return what it would send; it renews tokens that are about to run out."""
        with self.lock:
            config = self.configs.get((host, profile))
            if config is None:
                core = require(
                    "databricks.sdk.core",
                    extra="databricks",
                    purpose="signing in to Databricks without a token (DATABRICKS_TOKEN)",
                )
                try:
                    config = core.Config(host=host, profile=profile or None)
                except ValueError as error:
                    msg = (
                        f"nothing says who we are at {host}: set DATABRICKS_TOKEN, give the "
                        "storage option token, or set up one of the ways that databricks-sdk knows"
                    )
                    raise AccessDeniedError(msg) from error
                self.configs[host, profile] = config
            found: Mapping[str, str] = config.authenticate()
            return found

    def forget(self, host: str, profile: str) -> None:
        """Sign in anew the next time."""
        with self.lock:
            self.configs.pop((host, profile), None)


_sdk = _Sdk()
os.register_at_fork(after_in_child=_sdk.start)


class _Login(NamedTuple):
    """What a file says of a workspace."""

    host: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"_Login({self.host!r}, ...)"


def workspace_of(options: Options) -> str:
    """Return the workspace's URL; `SchemaError` if nobody says which one is meant."""
    host = options.get("host")
    if not host and not options.get("profile"):
        host = os.environ.get("DATABRICKS_HOST")
    host = str(host or _login(_profile(options)).host).strip()
    if not host:
        msg = (
            "dbfs:/… needs a workspace: set DATABRICKS_HOST, give the storage option host, or name "
            "a profile of ~/.databrickscfg with the storage option profile"
        )
        raise SchemaError(msg)
    scheme, slashes, rest = host.rpartition("://")
    return f"{scheme or 'https'}{slashes or '://'}{rest.partition('/')[0].partition('?')[0]}"


class Account:
    """What goes with requests to one workspace."""

    __slots__ = ("_host", "_options")

    def __init__(self, host: str, options: Options) -> None:
        self._host = host
        self._options = options

    def headers(self) -> Mapping[str, str]:
        """Return the headers that say who we are."""
        token = self._token()
        if token:
            return {"Authorization": f"Bearer {token}"}
        return _sdk.headers(self._host, _profile(self._options))

    def renew(self, used: Mapping[str, str]) -> bool:
        """Get others than those `used`; tell whether there are any."""
        since = self._options.renewals
        if self.headers() != used or self._options.renew(since):
            return True
        if self._token():
            return False
        _sdk.forget(self._host, _profile(self._options))
        return self.headers() != used

    def _token(self) -> str:
        options = self._options
        named = options.get("profile")
        token = options.get("token", *(() if named else ("DATABRICKS_TOKEN",)))
        if token:
            return str(token)
        login = _login(_profile(options))
        # A token in a file is for the workspace that stands beside it.
        same = login.host and _bare(login.host) == _bare(self._host)
        return login.token if same else ""


def _profile(options: Options) -> str:
    return str(options.get("profile", "DATABRICKS_CONFIG_PROFILE", default=""))


def _bare(host: str) -> str:
    return host.rpartition("://")[2].partition("/")[0].lower()


def _login(profile: str) -> _Login:
    """Return what a profile of the configuration file says; without one the default's."""
    named = os.environ.get("DATABRICKS_CONFIG_FILE") or "~/.databrickscfg"
    path = Path(os.path.expanduser(named))  # noqa: PTH111 - there may be no home
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return _Login()
    name = profile or _DEFAULT
    if name != _DEFAULT and not parser.has_section(name):
        return _Login()
    section = parser[name]
    return _Login(section.get("host", ""), section.get("token", ""))
