"""Reading and writing files with many requests under way: no byte waits for a round trip."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from streaming_core._store._sftp._packets import Attributes, Kind, Status, StatusError, text
from streaming_core._store._sftp._session import CREATE, READ
from streaming_core._store._temp import temp_name

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from streaming_core._store._sftp._session import Session

__all__ = [
    "CHUNK_BYTES",
    "WINDOW_BYTES",
    "ChangedError",
    "NoFileError",
    "OpenFile",
    "TakenError",
    "opened",
    "publish",
]

CHUNK_BYTES: Final = 32 << 10
"""What every server gives and takes in one packet."""
WINDOW_BYTES: Final = 4 << 20
"""How much may be under way, and so be held here, for one file."""
_MOST_UNDER_WAY: Final = WINDOW_BYTES // CHUNK_BYTES
_RENAME: Final = b"posix-rename@openssh.com"
_LINK: Final = b"hardlink@openssh.com"
_SYNC: Final = b"fsync@openssh.com"


class ChangedError(OSError):
    """A file ended early, or was written to while it was read."""


class NoFileError(FileNotFoundError):
    """There is no regular file of that name."""


class TakenError(FileExistsError):
    """The name is taken."""


# --- reading --------------------------------------------------------------------------------------


class OpenFile:
    """An open file and what it was like when it was opened."""

    __slots__ = ("_attributes", "_first", "_handle", "_later", "_session")

    def __init__(self, session: Session, handle: bytes) -> None:
        self._session = session
        self._handle = handle
        self._first = session.ask_fstat(handle)
        self._later: int | None = None
        self._attributes: Attributes | None = None

    @property
    def attributes(self) -> Attributes:
        """What the file was like; raises `NoFileError` if it is none.

        Who asks for chunks first, waits for both at once.
        """
        if self._attributes is None:
            self._attributes = self._session.attributes(self._first)
        if not self._attributes.is_file:
            raise NoFileError
        return self._attributes

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.attributes.size or 0

    def chunks(self, spans: Iterable[tuple[int, int]]) -> Generator[bytes]:
        """Yield the bytes of spans (start, stop) in their order, a chunk at a time."""
        session, handle = self._session, self._handle
        wanted = (
            (at, min(CHUNK_BYTES, stop - at))
            for start, stop in spans
            for at in range(start, stop, CHUNK_BYTES)
        )
        asked: deque[tuple[int, int, int]] = deque()
        while True:
            while len(asked) < _MOST_UNDER_WAY and (chunk := next(wanted, None)) is not None:
                asked.append((session.ask_read(handle, *chunk), *chunk))
            if self._later is None and len(asked) < _MOST_UNDER_WAY:
                # Servers answer in order, so this tells of a time when all had been read.
                self._later = session.ask_fstat(handle)
            if not asked:
                return
            number, at, count = asked.popleft()
            data = session.data(number)
            while len(data) < count:
                at_end = at + len(data)
                more = session.data(session.ask_read(handle, at_end, count - len(data)))
                if not more:
                    msg = f"the file ended at byte {at_end}, before its {self.size} bytes"
                    raise ChangedError(msg)
                data += more
            yield data

    def check_unchanged(self) -> None:
        """Raise `ChangedError` if somebody wrote into the file instead of putting a new one."""
        number, self._later = self._later, None
        if number is None:
            number = self._session.ask_fstat(self._handle)
        after = self._session.attributes(number)
        if (after.size, after.modified) != (self.attributes.size, self.attributes.modified):
            msg = "the file was changed while it was read"
            raise ChangedError(msg)


@contextmanager
def opened(session: Session, path: bytes) -> Generator[OpenFile]:
    """Open a regular file to read it, or raise `NoFileError`."""
    try:
        handle = session.open(path, READ)
    except StatusError as error:
        if error.code == Status.MISSING:
            raise NoFileError from error
        if error.code == Status.FAILURE:  # as some servers say of folders
            found = session.stat(path)
            if found is None or not found.is_file:
                raise NoFileError from error
        raise
    try:
        yield OpenFile(session, handle)
    finally:
        session.close(handle)


# --- writing --------------------------------------------------------------------------------------


def publish(
    session: Session, path: bytes, views: Sequence[memoryview], *, if_absent: bool
) -> Attributes:
    """Write a file under another name, then give it its own in one step; return what it is like.

    Raises `TakenError` with `if_absent` if there is one.
    """
    asked = session.ask(Kind.STAT, text(path))
    folder, _, name = path.rpartition(b"/")
    temp = folder + b"/" + temp_name(name.decode(errors="replace")).encode()
    handle = _created(session, temp)
    try:
        before = session.found(asked)
        if if_absent:
            _check_free(before)
        attributes = _distinct(session, handle, before, _written(session, handle, views))
        if _SYNC in session.extensions:
            session.extended(_SYNC, handle)
        session.done(session.ask(Kind.CLOSE, text(handle)))
        if if_absent:
            _create(session, temp, path)
        else:
            _replace(session, temp, path)
    except BaseException as error:
        session.close(handle)
        with suppress(OSError, EOFError, StatusError):
            removing = session.ask(Kind.REMOVE, text(temp))
            if isinstance(error, (StatusError, TakenError)):
                session.done(removing)
            else:  # the connection may be what failed
                session.forget(removing)
        raise
    return attributes


def _created(session: Session, path: bytes) -> bytes:
    """Return a handle on a new file, whose folders are made if need be."""
    try:
        return session.open(path, CREATE)
    except StatusError as error:
        if error.code not in {Status.MISSING, Status.FAILURE}:
            raise
    _make_folders(session, path.rpartition(b"/")[0])
    return session.open(path, CREATE)


def _make_folders(session: Session, folder: bytes) -> None:
    missing: list[bytes] = []
    while folder and session.stat(folder) is None:
        missing.append(folder)
        folder = folder.rpartition(b"/")[0]
    for folder in reversed(missing):
        try:
            session.make_folder(folder)
        except StatusError:
            if session.stat(folder) is None:  # otherwise somebody else was faster
                raise


def _check_free(before: Attributes | None) -> None:
    if before is not None:
        raise TakenError


def _written(session: Session, handle: bytes, views: Iterable[memoryview]) -> Attributes:
    """Write all bytes and return what the file is like then."""
    asked: deque[int] = deque()
    at = 0
    for piece in _joined(views):
        asked.append(session.ask_write(handle, at, piece))
        at += len(piece)
        if len(asked) >= _MOST_UNDER_WAY:
            session.done(asked.popleft())
    for number in asked:
        session.done(number)
    attributes = session.attributes(session.ask_fstat(handle))
    if attributes.size != at:
        msg = f"{at} bytes were sent, and the server has {attributes.size}"
        raise ChangedError(msg)
    return attributes


def _joined(views: Iterable[memoryview]) -> Generator[memoryview]:
    """Yield what the views make up in chunks; small views are put together."""
    held = bytearray()
    for view in views:
        at = 0
        if held or len(view) < CHUNK_BYTES:
            at = min(len(view), CHUNK_BYTES - len(held))
            held += view[:at]
            if len(held) < CHUNK_BYTES:
                continue
            yield memoryview(bytes(held))
            held.clear()
        while len(view) - at >= CHUNK_BYTES:
            yield view[at : at + CHUNK_BYTES]
            at += CHUNK_BYTES
        held += view[at:]
    if held:
        yield memoryview(bytes(held))


def _distinct(
    session: Session, handle: bytes, before: Attributes | None, now: Attributes
) -> Attributes:
    """Give a file another time than the one it replaces: times are in seconds, writers are not."""
    if before is None or before.modified is None or now.modified is None:
        return now
    if now.modified > before.modified:
        return now
    try:
        session.set_modified(handle, before.modified + 1)
    except StatusError:  # it cannot; then the size alone has to tell
        return now
    return session.attributes(session.ask_fstat(handle))


def _replace(session: Session, temp: bytes, path: bytes) -> None:
    if _RENAME in session.extensions:
        session.extended(_RENAME, temp, path)
        return
    try:
        session.rename(temp, path)
    except StatusError as error:
        if session.stat(path) is None:
            raise
        msg = (
            "the server cannot replace a file in one step (it lacks posix-rename@openssh.com); "
            "delete the old one first"
        )
        raise TakenError(msg) from error


def _create(session: Session, temp: bytes, path: bytes) -> None:
    """Give the file its name unless it is taken; the server decides, so there is one winner."""
    if _LINK in session.extensions:
        try:
            session.extended(_LINK, temp, path)
        except StatusError as error:
            if session.stat(path) is not None:
                raise TakenError from error
        else:
            session.remove(temp)
            return
    # By the standard, this refuses a name that is taken.
    try:
        session.rename(temp, path)
    except StatusError as error:
        if session.stat(path) is not None:
            raise TakenError from error
        raise
