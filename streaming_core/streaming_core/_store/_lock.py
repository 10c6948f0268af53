"""A lock on a folder that leaves nothing behind and dies with its owner."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH108, PTH116, PTH118

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from weakref import ref

from streaming_core._store._os_errors import mapped_errors
from streaming_core.errors import OutputBusyError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["LOCK_NAME", "FolderLock", "is_locked_here", "release_all"]

LOCK_NAME = ".lock"
"""The file that stands in where a folder itself cannot be locked."""

# What network and user-space file systems answer when asked to lock a folder.
_NO_FOLDER_LOCKS = frozenset(
    {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
)
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


class FolderLock:
    """The sole right to write in a folder, from `acquire` (or `with`) to `release`.

    Taken at once or refused with `OutputBusyError`; nothing waits. Held by the process, not by the
    thread; a second lock on the same folder is refused in the same process too. A forked child
    does not hold it. The system drops it when the process ends, however it ends.

    An exception that a signal handler raises while it is taken leaves it free. `release` may be
    called again where such an exception broke it off.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, FolderLock(folder):
        ...     is_locked_here(folder)
        True
    """

    __slots__ = ("__weakref__", "_descriptors", "_file", "_folder")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._descriptors: list[int] = []
        """The one that carries the lock, while it is held."""
        self._file: str | None = None
        """The locked file, where the folder itself cannot be locked."""

    def __repr__(self) -> str:
        return f"FolderLock({self._folder!r})"

    @property
    def is_held(self) -> bool:
        """Whether this process holds it."""
        return bool(self._descriptors)

    def acquire(self) -> None:
        """Take the lock on the existing folder; `OutputBusyError` if anyone holds it."""
        with mapped_errors(f"the folder {self._folder}", "", "lock"), _registry.guard:
            identity = _identity(self._folder)
            if _registry.is_held(identity):
                raise _busy(self._folder)
            self._file = None
            try:
                if not self._claim(self._folder, os.O_RDONLY | os.O_DIRECTORY):
                    self._claim_file()
                _registry.add(identity, self)
            except BaseException:
                self.close()
                raise

    def release(self) -> None:
        """Give the lock back; without effect if it is not held by this process."""
        with _registry.guard:
            try:
                if self._file is not None and self._descriptors:
                    # Removed while it is still locked: whoever opened it meanwhile sees, once it
                    # gets the lock, that the file has no name any more.
                    with suppress(FileNotFoundError):
                        os.unlink(self._file)
            finally:
                self.close()

    def close(self) -> None:
        """Close the descriptor; the parent of a forked child keeps the lock by its own copy."""
        if self._descriptors:
            # One call from the list to the system, so that no exception can come in between.
            list(map(os.close, map(self._descriptors.pop, (0,))))

    def __del__(self) -> None:
        with suppress(AttributeError):  # an exception of a signal handler ended `__init__`
            self.close()

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

    def _claim(self, path: str, flags: int) -> bool:
        """Lock what has the name `path`; False where that cannot be locked."""
        # One call from the system to the list, so that no exception can come in between.
        self._descriptors.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,), (0o666,)))
        try:
            fcntl.flock(self._descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(self._descriptors[0]), os.stat(path))
        except FileNotFoundError:
            same = False
        except OSError as error:
            if error.errno in _BUSY:
                raise _busy(self._folder) from error
            if self._file is not None or error.errno not in _NO_FOLDER_LOCKS:
                raise
            self.close()
            return False
        if not same:  # another process has just replaced or removed it
            raise _busy(self._folder)
        return True

    def _claim_file(self) -> None:
        self._file = os.path.join(self._folder, LOCK_NAME)
        self._claim(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def release_all(locks: Sequence[FolderLock]) -> None:
    """Give locks back.

    Where an exception of a signal handler may break that off, call it a second time in a `finally`.
    """
    for lock in locks:
        lock.release()


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
        return _registry.is_held(identity)


class _Registry:
    """The locks of this process: the system lets a process lock twice where it emulates locks."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self._held: dict[tuple[int, int], ref[FolderLock]] = {}

    def add(self, identity: tuple[int, int], lock: FolderLock) -> None:
        """Note that a folder is locked; guard held."""
        self._held = {key: of for key, of in self._held.items() if self.is_held(key)}
        self._held[identity] = ref(lock)

    def is_held(self, identity: tuple[int, int]) -> bool:
        """Tell whether a lock of this process is on the folder; guard held."""
        of = self._held.get(identity)
        lock = of() if of else None
        return lock is not None and lock.is_held

    def start_child(self) -> None:
        """Let go of the parent's locks: an open copy in a child would keep them past its death."""
        for lock in [of() for of in self._held.values()]:
            if lock is not None:
                lock.close()
        self._held.clear()
        self.guard.release()


_registry = _Registry()
# The methods of the guard themselves, as no signal handler can raise within them.
os.register_at_fork(
    before=_registry.guard.acquire,
    after_in_parent=_registry.guard.release,
    after_in_child=_registry.start_child,
)


def _identity(folder: str) -> tuple[int, int]:
    state = os.stat(folder)
    return state.st_dev, state.st_ino


def _busy(folder: str) -> OutputBusyError:
    return OutputBusyError(
        f"{folder}: another writer, in this or another process, holds the lock on this folder; "
        "wait until it has finished, stop it, or write to another folder"
    )
