"""Locks on files: waited for until a deadline, gone with their owner, never taken into a fork.

A signal handler may raise an exception between any two calls, Ctrl-C's does. So that no lock is
left behind then:

- a descriptor belongs to an object from the system call on (`FileHandle.at`),
- locks are held by `with handle:`, as leaving that block runs no Python code before the file is
  closed. `contextlib`'s context managers and `ExitStack` do, so they must not hold a lock,
- a function that has a handle in a variable closes it before it lets an exception through, which
  keeps the variables of the functions that it passed.
"""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103, PTH108, PTH116, PTH120, PTH123

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
import threading
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final, Self, TypeVar
from weakref import ref

from streaming_core.errors import WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["FileHandle", "is_free", "try_lock", "while_locked"]

_T = TypeVar("_T")
_log = logging.getLogger("streaming_core.reader")
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05


class _Registry:
    """The open files of this process that may carry locks.

    A forked child would keep its parent's locks alive past the parent's death, so it closes its
    copies at once. The guard makes sure that at a fork none is open and not yet in the registry.
    """

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.open: dict[int, tuple[ref[FileHandle], os.stat_result]] = {}
        """By descriptor; those that were closed stay until another file gets theirs."""

    def start_child(self) -> None:
        for number, (of, state) in self.open.items():
            handle = of()
            if handle is None:
                continue
            with suppress(OSError):
                if not handle.closed:
                    handle.close()
                elif os.path.samestat(os.fstat(number), state):
                    os.close(number)  # a thread of the parent was just closing it
        self.open.clear()
        self.guard.release()


_registry = _Registry()
# The methods of the guard themselves, as no signal handler can raise within them.
os.register_at_fork(
    before=_registry.guard.acquire,
    after_in_parent=_registry.guard.release,
    after_in_child=_registry.start_child,
)


class FileHandle(io.FileIO):
    """An open file that a forked child does not have. Closing it gives back the locks it carries.

    Make one with `at`, `locked` or `locked_now`.
    """

    number = property(io.FileIO.fileno)
    """The descriptor."""

    @classmethod
    def at(cls, path: str, flags: int, mode: int = 0o666) -> Self:
        """Open a file; raises `OSError` as `os.open` does."""
        with _registry.guard:
            # One call from the path to the object, so that no exception can come in between.
            (handle,) = map(cls, map(os.open, (path,), (flags,), (mode,)), ("r+",))
            _registry.open[handle.number] = ref(handle), os.fstat(handle.number)
        return handle

    @classmethod
    def locked(
        cls, path: str, deadline: float, what: str, later: Callable[[], float] | None = None
    ) -> Self:
        """Return the file `path`, created if it is missing, open for writing and locked.

        While another process holds the lock, it may rename or remove the file: what is returned is
        the file that has the name now. `what` says in an error what the lock is for. At the
        deadline `later` is asked for another one, which there is if the holder makes progress.

        Raises:
            WaitTimeoutError: The lock was not free until `deadline` (of `time.monotonic`).
            OSError: The file cannot be created, or the file system has no locks.
        """
        began = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            handle = None
            try:
                handle = cls.locked_now(path)
                if handle is not None:
                    return handle
            except BaseException:
                if handle is not None:
                    handle.close()
                raise
            left = deadline - time.monotonic()
            if left <= 0 and later is not None:
                deadline = later()
                left = deadline - time.monotonic()
            if left <= 0:
                msg = (
                    f"waited {time.monotonic() - began:.1f} seconds for "
                    f"{_holder(path) or 'another process'}, which is {what}; see whether that "
                    "process still makes progress, or give more time"
                )
                raise WaitTimeoutError(msg)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    @classmethod
    def locked_now(cls, path: str) -> Self | None:
        """Return the file `path`, created if it is missing, locked; None if it is not free."""
        handle = cls.at(path, _FLAGS)
        try:
            if try_lock(handle) and _has_name(handle, path):
                return handle
        except BaseException:
            handle.close()
            raise
        handle.close()
        return None


def try_lock(handle: FileHandle, *, shared: bool = False) -> bool:
    """Take the lock on an open file if it is free, or turn one's own into the other kind.

    Raises `OSError` where the file system has no locks.
    """
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
        handle = FileHandle.at(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    with handle:
        try:
            return try_lock(handle)
        except OSError:
            return True  # without locks nobody can hold one


def _has_name(handle: FileHandle, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.number), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


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


def while_locked(path: str, seconds: float, what: str, act: Callable[[], _T]) -> _T:
    """Return what `act` returns, called by one process at a time; not where nothing can be written.

    Raises `WaitTimeoutError` if the lock was not free for so many seconds.
    """
    with _locked_if_possible(path, seconds, what) as lock:
        try:
            return act()
        finally:
            if lock is not None:
                with suppress(FileNotFoundError):
                    os.unlink(path)


def _locked_if_possible(
    path: str, seconds: float, what: str
) -> AbstractContextManager[FileHandle | None]:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return FileHandle.locked(path, time.monotonic() + seconds, what)
    except WaitTimeoutError:
        raise
    except OSError as error:
        _log.info("not locking %s: %s", path, error)
        return nullcontext()
