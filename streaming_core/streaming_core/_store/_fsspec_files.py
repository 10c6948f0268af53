"""What fsspec's file systems have in common, and how they differ in publishing a file."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from streaming_core._extras import require
from streaming_core._store._temp import temp_name
from streaming_core.errors import (
    AccessDeniedError,
    MissingExtraError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["MISSING", "etag_of", "knows", "publish", "typed_error"]

_VERSIONS: Final = (
    "ETag",
    "etag",
    "Etag",
    "generation",
    "version_id",
    "checksum",
    "md5",
    "md5Hash",
    "Content-MD5",
    "crc32c",
    "sha256",
    "blob_id",
)
"""What stores call that which names a version."""
_TIMES: Final = (
    "mtime",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "modified",
    "updated",
    "modify",
    "created",
)
"""What they call the moment at which it was written."""
MISSING: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""What file systems raise where there is no file."""
_READS: Final = frozenset({"get", "get_ranges", "head", "stream"})
_GONE: Final = frozenset({404, 410})
_DENIED: Final = frozenset({401, 403})
_BUSY: Final = frozenset({429, 503})
_RENAMING: Final = frozenset({"arrow_hdfs", "file", "ftp", "hdfs", "local", "sftp", "ssh"})
"""Where a file is there while it is written, and renaming puts it in the place of another."""


def knows(scheme: str) -> bool:
    """Tell whether an installed fsspec has a file system for a scheme."""
    try:
        fsspec = require("fsspec", extra="fsspec", purpose="a file system of fsspec")
    except MissingExtraError:
        return False
    return scheme in {*fsspec.available_protocols(), *fsspec.registry}


def etag_of(info: Mapping[str, Any]) -> str:
    """Return a text for the version that an entry is of; empty if the file system says nothing.

    Example:
        >>> etag_of({"ETag": '"1f"', "size": 4}), etag_of({"mtime": 2.5, "size": 4}), etag_of({})
        ('"1f"', '2.5-4', '')
    """
    for name in _VERSIONS:
        if info.get(name):
            return str(info[name])
    for name in _TIMES:
        moment = info.get(name)
        if moment:
            parts = [moment.timestamp() if isinstance(moment, datetime) else moment]
            parts += [info[name] for name in ("ino", "size") if info.get(name) is not None]
            return "-".join(map(str, parts))
    return ""


class _Creating:
    """Lets one thread of a process create only at a time: some file systems look, then write."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.lock = threading.Lock()


_creating = _Creating()
os.register_at_fork(after_in_child=_creating.start)


def publish(
    files: Any,  # noqa: ANN401 - fsspec has no types
    path: str,
    views: Sequence[memoryview],
    *,
    if_absent: bool,
) -> None:
    """Write a file, in one step where the file system can do that.

    Raises `FileExistsError` with `if_absent` if there is one.
    """
    if not if_absent:
        _written(files, path, views, files.mv)
        return
    with _creating.lock:
        if files.exists(path):
            raise FileExistsError(path)
        _written(files, path, views, getattr(files, "link", None), if_absent=True)


def _written(
    files: Any,  # noqa: ANN401 - fsspec's
    path: str,
    views: Sequence[memoryview],
    settle: Callable[[str, str], object] | None,
    *,
    if_absent: bool = False,
) -> None:
    if not _is_renaming(files):
        mode = {"mode": "create"} if if_absent else {}
        files.pipe_file(path, b"".join(views), **mode)
        return
    folder, _, name = path.rpartition("/")
    temp = f"{folder}/{temp_name(name)}"
    files.makedirs(folder, exist_ok=True)
    try:
        with files.open(temp, "wb") as file:
            for view in views:
                file.write(view)
        (settle or files.mv)(temp, path)
        if settle is not None and if_absent:
            files.rm_file(temp)
    except BaseException:
        with suppress(Exception):  # the first error is the one that matters
            files.rm_file(temp)
        raise


def _is_renaming(files: Any) -> bool:  # noqa: ANN401 - fsspec's
    while type(files).__name__ == "DirFileSystem":
        files = files.fs
    names = files.protocol
    return not _RENAMING.isdisjoint({names} if isinstance(names, str) else set(names))


def typed_error(error: Exception, what: str, operation: str) -> StoreError:
    """Return the typed error for what a file system raised, whose own text may hold secrets.

    Example:
        >>> typed_error(FileNotFoundError("x"), "head 'x' in ftp://host", "head").kind
        'not-found'
    """
    error = _told(error)
    status = getattr(error, "status", None)
    if (isinstance(error, MISSING) or status in _GONE) and operation in _READS:
        return ObjectNotFoundError(
            f"{what}: there is no such object; check the key, and that its writer has finished"
        )
    said = f"{what}: {type(error).__name__}"
    if isinstance(error, OSError) and error.strerror:
        said += f", {error.strerror}"
    if isinstance(error, PermissionError) or status in _DENIED:
        return AccessDeniedError(
            f"{said}; check the credentials in storage_options and what they may do there"
        )
    if status in _BUSY:
        headers: Any = getattr(error, "headers", None) or {}
        seconds = str(headers.get("Retry-After", ""))
        return StoreBusyError(
            f"{said}: the server is busy ({status})",
            retry_after=float(seconds) if seconds.isascii() and seconds.isdigit() else None,
        )
    return StoreError(f"{said}; the chained error says more")


def _told(error: Exception) -> Exception:
    """Return what really happened: some file systems call it missing whenever they got no answer.

    Example:
        >>> broken = FileNotFoundError("x")
        >>> broken.__cause__ = ConnectionResetError()
        >>> _told(broken)
        ConnectionResetError()
    """
    cause = error.__cause__
    if isinstance(error, MISSING) and isinstance(cause, Exception):
        is_web = type(cause).__module__.partition(".")[0] == "aiohttp"
        if is_web or isinstance(cause, (OSError, TimeoutError)) or hasattr(cause, "status"):
            return cause
    return error
