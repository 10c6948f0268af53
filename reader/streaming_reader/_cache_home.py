"""Where data is kept for which no folder was named."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from streaming_core._store import LocalStore, open_store
from streaming_core.errors import SchemaError

__all__ = ["cache_home", "is_url", "user_cache"]

_CACHE_VARIABLE: Final = "STREAMING_CACHE_DIR"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def user_cache(remote: str) -> Path:
    """Return the folder that stands for a place of data in the user's cache."""
    name = hashlib.blake2s(_absolute(remote).encode(), digest_size=16).hexdigest()
    return cache_home() / name


def cache_home() -> Path:
    """Return the user's cache; without a home, a folder in the system's one for temporary files.

    Raises `SchemaError` if somebody else has made that.
    """
    home = os.environ.get(_CACHE_VARIABLE)
    if home is not None:
        return Path(home)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streaming-core")
    except RuntimeError:  # as in containers: neither HOME nor an entry in the list of users
        folder = Path(tempfile.gettempdir(), f"streaming-core-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077 or not folder.is_dir():
            msg = (
                f"{folder} is not a folder that only this user can read and write, and there is "
                f"no home folder to keep data in; say local=, or set {_CACHE_VARIABLE}"
            )
            raise SchemaError(msg) from None
        return folder


def is_url(remote: str) -> bool:
    """Tell whether a place is not a folder or file of this machine."""
    scheme = _SCHEME.match(remote)
    return scheme is not None and scheme[1].lower() != "file"


def _absolute(remote: str) -> str:
    """Return the same text for the same place: paths in full, URLs without trailing slashes."""
    scheme = _SCHEME.match(remote)
    if scheme is None:
        # Unlike those of `Path`, these take links that form a loop, and `~` without a home.
        return os.path.realpath(os.path.expanduser(remote))  # noqa: PTH111 - see above
    store = open_store(remote) if scheme[1].lower() == "file" else None
    if isinstance(store, LocalStore):
        return os.path.realpath(store.path)
    return remote.rstrip("/")
