"""Who we are at Oracle: options, or the file that its own tools read."""

from __future__ import annotations

import configparser
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming_core._store._oci._sign import Identity
from streaming_core.errors import AccessDeniedError

if TYPE_CHECKING:
    from streaming_core._store._options import Options

__all__ = ["KNOWN", "SECRET", "Account", "region_of"]

KNOWN: Final = (
    "anonymous",
    "allow_http",
    "ca_file",
    "config_file",
    "endpoint_url",
    "fingerprint",
    "key_file",
    "namespace",
    "profile",
    "region",
    "tenancy",
    "user",
)
SECRET: Final = ("key", "pass_phrase", "security_token")
_FILES: Final = ("OCI_CONFIG_FILE", "OCI_CLI_CONFIG_FILE")
_PROFILES: Final = ("OCI_CONFIG_PROFILE", "OCI_CLI_PROFILE")
_REGIONS: Final = ("OCI_REGION", "OCI_CLI_REGION")
_DEFAULT_FILE: Final = "~/.oci/config"
_DEFAULT: Final = "DEFAULT"


def region_of(options: Options) -> str:
    """Return the region to go to; empty if nobody says."""
    region = options.get("region", *_REGIONS)
    return str(region or _profile(options).get("region", ""))


class Account:
    """The identity that signs requests to one store; read once, and again when it has run out."""

    __slots__ = ("_options", "_read")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read: Identity | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read."""
        return {"_options": self._options, "_read": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def identity(self) -> Identity | None:
        """Return who signs, None if nobody does; `AccessDeniedError` if that cannot be told."""
        if self._options.get("anonymous"):
            return None
        found = self._read
        if found is None:
            found = self._read = self._identity()
        return found

    def renew(self, used: Identity | None) -> bool:
        """Get another than the one `used`; tell whether there is one."""
        if used is None:
            return False
        since = self._options.renewals
        self._read = None
        if self.identity() != used:  # another thread was quicker
            return True
        self._options.renew(since)
        self._read = None
        return self.identity() != used

    def _identity(self) -> Identity:
        options = self._options
        # Either all is given, or all but what is secret anyway comes from the file.
        given = options.get("key") or options.get("key_file")
        file = {} if given else _profile(options)
        named = {name: _text(options, file, name) for name in ("tenancy", "user", "fingerprint")}
        token = _text(options, file, "security_token")
        if not token and file.get("security_token_file"):
            token = _content(file["security_token_file"], "security_token_file").strip()
        key = str(options.get("key", default=""))
        if not key:
            path = str(options.get("key_file", default="") or file.get("key_file", ""))
            key = _content(path, "key_file") if path else ""
        missing = [] if token else [name for name, value in named.items() if not value]
        missing += [] if key else ["key_file"]
        if missing:
            msg = (
                f"nothing says who we are at Oracle: {', '.join(missing)} missing; give storage "
                f"options of these names, or a profile of {_config_file(options)}, or for a "
                "public bucket the storage option anonymous"
            )
            raise AccessDeniedError(msg)
        key_id = f"ST${token}" if token else "/".join(named.values())
        return Identity(key_id, key, _text(options, file, "pass_phrase"))


def _text(options: Options, file: dict[str, str], name: str) -> str:
    return str(options.get(name, default="") or file.get(name, ""))


def _config_file(options: Options) -> str:
    return str(options.get("config_file", *_FILES, default=_DEFAULT_FILE))


def _profile(options: Options) -> dict[str, str]:
    """Return what the profile says, over what the file says of all; nothing if there is none."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(_read(_config_file(options)))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    name = str(options.get("profile", *_PROFILES, default=_DEFAULT))
    if name != _DEFAULT and not parser.has_section(name):
        return {}
    return dict(parser[name])


def _read(path: str) -> str:
    return Path(os.path.expanduser(path)).read_text("utf-8")  # noqa: PTH111 - there may be no home


def _content(path: str, what: str) -> str:
    try:
        return _read(path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the {what} {path!r} of Oracle's configuration cannot be read: {error}"
        raise AccessDeniedError(msg) from None
