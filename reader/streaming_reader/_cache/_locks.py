"""Locks on files: waited for until a deadline, gone with their owner, never taken into a fork."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103, PTH108, PTH116, PTH120, PTH123

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streaming_core.errors import WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

if sys.platform != "win32":
    import fcntl

__all__ = ["FileHandle", "is_free", "lock_file", "lock_if_writable", "lock_now", "try_lock"]

_log = logging.getLogger("streaming_core.reader")
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class _Registry:
    """The descriptors of this process that carry locks.

    A forked child would keep its parent's locks alive past the parent's death, so it closes its
    copies at once. The guard makes sure that none is open and not yet written down at a fork.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.open: set[int] = set()

    def start_fork(self) -> None:
        self.guard.acquire()

    def end_fork(self) -> None:
        self.guard.release()

    def start_child(self) -> None:
        self.guard = threading.Lock()
        for number in self.open:
            with suppress(OSError):
                os.close(number)
        self.open.clear()


_registry = _Registry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_registry.start_fork,
        after_in_parent=_registry.end_fork,
        after_in_child=_registry.start_child,
    )


class FileHandle:
    """An open file that a forked child does not have; close it once, from any thread."""

    __slots__ = ("_owner", "number")

    def __init__(self, path: str, flags: int, mode: int = 0o666) -> None:
        """Open the file; raises `OSError` as `os.open` does."""
        with _registry.guard:
            self.number = os.open(path, flags, mode)
            _registry.open.add(self.number)
        self._owner = os.getpid()

    def close(self) -> None:
        """Close it, and give back the locks it carries; a second time does nothing."""
        with _registry.guard:
            number, self.number = self.number, -1
            if number < 0 or self._owner != os.getpid():
                return
            # Within the guard: a fork in between would leave the child a copy unknown to it.
            _registry.open.discard(number)
            os.close(number)


def try_lock(handle: FileHandle, *, shared: bool = False) -> bool:
    """Take the lock on an open file if it is free, or turn an own one into the other kind.

    Raises `OSError` where the file system has no locks.
    """
    if sys.platform == "win32":
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle.number, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def is_free(path: str) -> bool:
    """Tell whether nobody holds the lock on `path`, shared or not; a missing file is free."""
    try:
        handle = FileHandle(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return True
    try:
        return try_lock(handle)
    except OSError:
        return True  # without locks nobody can hold one
    finally:
        handle.close()


def lock_file(
    path: str, deadline: float, what: str, later: Callable[[], float] | None = None
) -> FileHandle:
    """Return the file `path`, made if it is missing, open for writing and locked.

    Whoever had the lock may have renamed or removed the file: what is returned is the file that has
    the name now. `what` says in an error what the lock is for. At the deadline `later` is asked for
    another one, which there is if whoever holds the lock makes progress.

    Raises:
        WaitTimeoutError: Somebody else held it until `deadline` (of `time.monotonic`).
        OSError: The file cannot be made, or the file system has no locks.
    """
    while True:
        handle = _locked_once(path) or _locked_later(path, deadline, what, later)
        if _has_name(handle, path):
            return handle
        handle.close()


def lock_now(path: str) -> FileHandle | None:
    """Return the file `path`, made if it is missing, open and locked; None if somebody holds it."""
    handle = _locked_once(path)
    if handle is not None and not _has_name(handle, path):
        handle.close()
        return None
    return handle


def _has_name(handle: FileHandle, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.number), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _locked_once(path: str) -> FileHandle | None:
    handle = FileHandle(path, _FLAGS | os.O_CREAT)
    try:
        if try_lock(handle):
            return handle
    except BaseException:
        handle.close()
        raise
    handle.close()
    return None


def _locked_later(
    path: str, deadline: float, what: str, later: Callable[[], float] | None
) -> FileHandle:
    """Return the open file once it has the lock."""
    began = time.monotonic()
    waiter = _Waiter(path)
    threading.Thread(target=waiter.run, name="streaming-lock", daemon=True).start()
    while not waiter.done.wait(max(0.0, deadline - time.monotonic())):
        deadline = deadline if later is None else later()
        if deadline > time.monotonic():
            continue
        if not waiter.leave():
            break
        holder = _holder(path)
        msg = (
            f"waited {time.monotonic() - began:.1f} seconds for {holder or 'another process'}, "
            f"which is {what}; see whether that process still makes progress, or give more time"
        )
        raise WaitTimeoutError(msg)
    return waiter.taken()


class _Waiter:
    """One wait for a lock, in a thread of its own, as the system has no wait with a deadline."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._left = False
        self._result: FileHandle | OSError | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Wait; what comes after the deadline is given back at once."""
        result: FileHandle | OSError
        try:
            result = FileHandle(self._path, _FLAGS | os.O_CREAT)
            try:
                if sys.platform != "win32":
                    fcntl.flock(result.number, fcntl.LOCK_EX)
            except BaseException:
                result.close()
                raise
        except OSError as error:
            result = error
        with self._guard:
            if not self._left:
                self._result = result
                self.done.set()
                return
        if isinstance(result, FileHandle):
            result.close()

    def leave(self) -> bool:
        """Stop waiting; False if the lock came in the last moment."""
        with self._guard:
            self._left = not self.done.is_set()
            return self._left

    def taken(self) -> FileHandle:
        """Return what came, or raise."""
        if isinstance(self._result, FileHandle):
            return self._result
        raise self._result or AssertionError


def _holder(path: str) -> str | None:
    """Return the process that holds the lock on `path`, where the system tells."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                    return f"process {fields[4]}"
    except (OSError, IndexError, ValueError):
        return None
    return None


def lock_if_writable(stack: ExitStack, path: str, seconds: float, what: str) -> None:
    """Let one process at a time do `what` while `stack` stands; not where nothing can be written.

    Raises `WaitTimeoutError` if another has not done it after so many seconds.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lock = lock_file(path, time.monotonic() + seconds, what)
    except OSError as error:
        if isinstance(error, WaitTimeoutError):
            raise
        _log.info("not locking %s: %s", path, error)
        return
    stack.callback(lock.close)
    stack.callback(_unlink, path)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
