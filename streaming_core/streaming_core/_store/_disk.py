"""Publishing a file so that it is there whole or not at all, also after a power loss."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH102, PTH105, PTH108, PTH112, PTH118, PTH120

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from streaming_core._store._temp import temp_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["make_folders", "open_to_read", "publish", "read_at", "read_into", "sync_folder"]

_MAX_CALL_BYTES = 1 << 30  # one call moves less than 2 GiB on Linux and refuses more on macOS
_MAX_VIEWS = 1024  # IOV_MAX of Linux and macOS; POSIX systems with less are not in use
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def publish(
    path: str, views: Iterable[memoryview], *, durable: bool, if_absent: bool
) -> os.stat_result:
    """Write `views` to a file that appears at `path` in one step; on any failure nothing is left.

    The views must be flat bytes. They are not copied, and the interpreter is free for other
    threads while they are written. With `durable` the file survives a power loss once this
    returns. With `if_absent` an existing file raises `FileExistsError`.
    """
    if if_absent and os.path.lexists(path):  # spares writing what the link would refuse
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    folder, basename = os.path.split(path)
    temp = os.path.join(folder, temp_name(basename))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    handle = os.open(temp, flags, 0o666)  # the umask decides, as for any other new file
    try:
        written = _fill(handle, views, durable=durable)
        if not if_absent:
            os.replace(temp, path)
        else:
            os.link(temp, path)
            os.unlink(temp)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp)
        raise
    if durable:
        sync_folder(folder)
    return written


def _fill(handle: int, views: Iterable[memoryview], *, durable: bool) -> os.stat_result:
    """Write, check the length, flush and close; return the file's state."""
    try:
        expected = _write_all(handle, views)
        written = os.fstat(handle)
        _check_length(written.st_size, expected)
        if durable:
            _sync_file(handle)
    except BaseException:
        with suppress(OSError):
            os.close(handle)
        raise
    os.close(
        handle
    )  # network file systems report a full disk only here, so it must be able to fail
    return written


def _check_length(size: int, expected: int) -> None:
    if size != expected:
        raise OSError(errno.EIO, f"wrote {expected} bytes, but the file has {size}")


def _write_all(handle: int, views: Iterable[memoryview]) -> int:
    """Write every byte, however few the system takes at a time; return their number."""
    pending = deque(views)
    total = 0
    while pending:
        written = _write_some(handle, _next_batch(pending))
        if written <= 0:
            raise OSError(errno.EIO, "the system took no bytes")
        total += written
        while written:
            head = pending.popleft()
            if len(head) > written:
                pending.appendleft(head[written:])
                break
            written -= len(head)
    return total


def _next_batch(pending: deque[memoryview]) -> list[memoryview]:
    """Return what one call can write: bounded in views and in bytes."""
    batch: list[memoryview] = []
    room = _MAX_CALL_BYTES
    for view in islice(pending, _MAX_VIEWS):
        batch.append(view[:room])
        room -= len(batch[-1])
        if not room:
            break
    return batch


def _write_some(handle: int, batch: list[memoryview]) -> int:
    # Repeats a call that a signal interrupted, and lets go of the interpreter meanwhile.
    return os.writev(handle, batch)


def _sync_file(handle: int) -> None:
    """Force the file's bytes onto the medium."""
    if sys.platform == "darwin":
        # There fsync() stops at the drive's cache; some file systems know nothing stronger.
        with suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def sync_folder(folder: str) -> None:
    """Force the folder's entries onto the medium, where the file system can do that."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def make_folders(folder: str, *, durable: bool) -> None:
    """Make `folder` and the parents it lacks; with `durable` each survives a power loss."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path) from None
        # Also where another made it meanwhile: its own flush may come after our return.
        if durable:
            sync_folder(os.path.dirname(path))


def open_to_read(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file and return its descriptor, which the caller closes, and its state."""
    # Without O_NONBLOCK, a named pipe in the place of a file would hang the open.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", path)
    return handle, state


def read_at(handle: int, start: int, count: int) -> bytes:
    """Return exactly `count` bytes from `start`; raise `OSError` if the file ends before."""
    parts: list[bytes] = []
    missing = count
    while missing:
        part = os.pread(handle, min(missing, _MAX_CALL_BYTES), start + count - missing)
        if not part:
            msg = f"the file ends {missing} bytes early; it was cut while it was read"
            raise OSError(errno.EIO, msg)
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_into(handle: int, start: int, view: memoryview) -> None:
    """Fill `view` with the bytes from `start` on; raise `OSError` if the file ends before."""
    missing = len(view)
    while missing:
        at = len(view) - missing
        count = _read_some_into(handle, start + at, view[at : at + _MAX_CALL_BYTES])
        if not count:
            msg = f"the file ends {missing} bytes early; it was cut while it was read"
            raise OSError(errno.EIO, msg)
        missing -= count


def _read_some_into(handle: int, start: int, view: memoryview) -> int:
    if not hasattr(os, "preadv"):  # macOS before 11
        part = os.pread(handle, len(view), start)
        view[: len(part)] = part
        return len(part)
    return os.preadv(handle, [view], start)
