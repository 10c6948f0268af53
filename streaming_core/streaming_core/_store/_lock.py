"""A lock on a folder that leaves nothing behind and dies with its owner."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH108, PTH116, PTH118

from __future__ import annotations

import errno
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from streaming_core._store._os_errors import mapped_errors
from streaming_core.errors import OutputBusyError

if TYPE_CHECKING:
    from types import TracebackType

if sys.platform != "win32":
    import fcntl

__all__ = ["LOCK_NAME", "FolderLock", "is_locked_here"]

LOCK_NAME = ".lock"
"""The file that stands in where a folder itself cannot be locked."""

# What network and user-space file systems answer when asked to lock a folder.
_NO_FOLDER_LOCKS = frozenset(
    {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
)
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class _Claim(Protocol):
    """What is held at the operating system while a folder is locked."""

    def release(self) -> None: ...

    def forget(self) -> None: ...


class FolderLock:
    """The sole right to write in a folder, from `acquire` (or `with`) to `release`.

    Taken at once or refused with `OutputBusyError`; nothing waits. Held by the process, not by the
    thread; a second lock on the same folder is refused in the same process too. A forked child
    does not hold it. The system drops it when the process ends, however it ends.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, FolderLock(folder):
        ...     is_locked_here(folder)
        True
    """

    __slots__ = ("_claim", "_folder", "_identity")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._identity: tuple[int, int] | None = None
        self._claim: _Claim | None = None

    def __repr__(self) -> str:
        return f"FolderLock({self._folder!r})"

    def acquire(self) -> None:
        """Take the lock on the existing folder; `OutputBusyError` if anyone holds it."""
        with mapped_errors(f"the folder {self._folder}", "", "lock"), _registry.guard:
            identity = _identity(self._folder)
            if identity in _registry.held:
                raise _busy(self._folder)
            self._claim = _claim_folder(self._folder)
            self._identity = identity
            _registry.held[identity] = self

    def release(self) -> None:
        """Give the lock back; without effect if it is not held by this process."""
        with _registry.guard:
            if self._identity is None or _registry.held.get(self._identity) is not self:
                return
            del _registry.held[self._identity]
            claim, self._claim, self._identity = self._claim, None, None
            if claim is not None:
                claim.release()

    def forget(self) -> None:
        """Drop this process's copy of a lock that its parent holds; only for a forked child."""
        claim, self._claim, self._identity = self._claim, None, None
        if claim is not None:
            claim.forget()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_locked_here(folder: str) -> bool:
    """Tell whether this process holds the lock on `folder`.

    Example:
        >>> is_locked_here("/no/such/folder")
        False
    """
    try:
        identity = _identity(folder)
    except OSError:
        return False
    with _registry.guard:
        return identity in _registry.held


class _Registry:
    """The locks of this process: the system lets a process lock twice where it emulates locks."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.held: dict[tuple[int, int], FolderLock] = {}

    def start_child(self) -> None:
        """Let go of the parent's locks: an open copy in a child would keep them past its death."""
        self.guard = threading.Lock()
        for lock in self.held.values():
            lock.forget()
        self.held.clear()


_registry = _Registry()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_registry.start_child)


class _FolderClaim:
    """A descriptor of the folder that carries the lock."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        os.close(self._handle)

    # Closing one copy of a descriptor leaves the lock to the others: the parent keeps it.
    forget = release


class _FileClaim:
    """A locked file inside the folder, where the folder itself cannot be locked."""

    def __init__(self, folder: str) -> None:
        # Loaded here because few file systems need it and it is slow to import.
        from filelock import FileLock, Timeout  # noqa: PLC0415

        self._path = os.path.join(folder, LOCK_NAME)
        self._lock = FileLock(self._path, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise _busy(folder) from error

    def release(self) -> None:
        if sys.platform == "win32":  # no open file can be removed there
            self._lock.release()
            with suppress(OSError):
                os.unlink(self._path)
            return
        # Removed while it is still locked: whoever opened it meanwhile sees, once it gets the lock,
        # that the file has no name any more, and starts over with a new one.
        with suppress(OSError):
            os.unlink(self._path)
        self._lock.release()

    def forget(self) -> None:
        """Do nothing: the library looks after its descriptors at a fork."""


def _claim_folder(folder: str) -> _Claim:
    if sys.platform == "win32":
        return _FileClaim(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(handle), os.stat(folder)):
            raise _busy(folder)  # somebody replaced the folder between the two calls
    except OSError as error:
        os.close(handle)
        if error.errno in _NO_FOLDER_LOCKS:
            return _FileClaim(folder)
        if error.errno in _BUSY:
            raise _busy(folder) from error
        raise
    return _FolderClaim(handle)


def _identity(folder: str) -> tuple[int, int]:
    state = os.stat(folder)
    return state.st_dev, state.st_ino


def _busy(folder: str) -> OutputBusyError:
    return OutputBusyError(
        f"{folder}: another writer, in this or another process, holds the lock on this folder; "
        "wait until it has finished, stop it, or write to another folder"
    )
