"""The one place where an `OSError` of a file becomes a typed `StoreError`."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    LastingError,
    ObjectNotFoundError,
    StoreError,
    StreamingError,
)

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["mapped_errors", "store_error"]

_READS = frozenset({"get", "get_ranges", "head", "stream"})
_CLASSES: dict[int, type[StoreError]] = {
    errno.EACCES: AccessDeniedError,
    errno.EPERM: AccessDeniedError,
    errno.EROFS: AccessDeniedError,
    errno.EISDIR: LastingError,
    errno.ELOOP: LastingError,
    errno.ENAMETOOLONG: LastingError,
    errno.ENOTDIR: LastingError,
}
_NO_HINT = "See the chained error"
_NO_LINKS = "a create-only put needs hard links"
_HINTS = {
    errno.EACCES: "Check who owns the folder and its permissions",
    errno.EPERM: f"Check who owns the folder, its permissions and attributes; {_NO_LINKS}",
    errno.ENOTSUP: f"The file system cannot do this; {_NO_LINKS}",
    errno.EOPNOTSUPP: f"The file system cannot do this; {_NO_LINKS}",
    errno.ENOSYS: f"The file system cannot do this; {_NO_LINKS}",
    errno.ENOLCK: "The file system has no locks; choose a folder on a local disk",
    errno.EROFS: "The file system is mounted read-only; choose another folder",
    errno.ENOSPC: "Free space (or inodes) there, or choose another folder",
    errno.EDQUOT: "Raise the quota, free space there, or choose another folder",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f), or make smaller shards",
    errno.EMFILE: "Raise the limit on open files (ulimit -n)",
    errno.ENFILE: "The machine is out of file handles; close some programs",
    errno.EIO: "The device failed; look at the kernel's log",
    errno.ENOTDIR: "A file stands where a folder is needed; remove it or choose another folder",
    errno.EISDIR: "A folder stands where the file should go; remove it or choose another key",
    errno.ENAMETOOLONG: "Choose a shorter folder or key",
    errno.ELOOP: "Symbolic links there point at each other; remove them",
    errno.ENOENT: "The folder or a temporary file in it was removed during the call",
    errno.ESTALE: "The network file system lost the file; mount it again",
}


def store_error(error: OSError, *, url: str, key: str, operation: str) -> StoreError:
    """Return the typed error for `error`, with its `errno` kept; the caller raises it `from` that.

    Example:
        >>> full = OSError(errno.ENOSPC, "No space left on device")
        >>> store_error(full, url="file:///data", key="a", operation="put").errno == errno.ENOSPC
        True
    """
    code = error.errno or errno.EIO  # one raised by hand may carry none
    what = f"{operation} {key!r} in {url}" if key else f"{operation} in {url}"
    if operation in _READS and code in {errno.ENOENT, errno.ENOTDIR}:
        mapped: StoreError = ObjectNotFoundError(
            f"{what}: there is no such object; check the key, and that its writer has finished"
        )
    elif code == errno.EEXIST:
        mapped = AlreadyExistsError(
            f"{what}: the object exists already and was left as it is; delete it first or put "
            "without if_absent"
        )
    else:
        cls = _CLASSES.get(code, StoreError)
        name = errno.errorcode.get(code, f"errno {code}")
        mapped = cls(f"{what}: {os.strerror(code)} ({name}). {_HINTS.get(code, _NO_HINT)}")
    mapped.errno = code
    # The errno slot of an OSError with one argument does not travel through pickle; an entry in
    # the instance's dict does, and is written back into the slot when the error is loaded.
    mapped.__dict__["errno"] = code
    return mapped


@contextmanager
def mapped_errors(url: str, key: str, operation: str) -> Generator[None]:
    """Turn an `OSError` of the block into the typed error; our own errors pass unchanged.

    Example:
        >>> with mapped_errors("file:///data", "a", "get"):
        ...     pass
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, StreamingError):
            raise
        raise store_error(error, url=url, key=key, operation=operation) from error
