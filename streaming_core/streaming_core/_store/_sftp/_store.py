"""Files below a folder of a server that speaks SFTP."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from streaming_core._names import name_problem
from streaming_core._store._abilities import Pieces
from streaming_core._store._contract import (
    PIECE_BYTES,
    ObjectInfo,
    Parts,
    byte_views,
    check_key,
    check_prefix,
    check_ranges,
    check_size,
    check_start,
    resolve_ranges,
)
from streaming_core._store._sftp._connect import STALL_SECONDS, RefusedError, failures
from streaming_core._store._sftp._folders import entries, sweep
from streaming_core._store._sftp._packets import Status, StatusError
from streaming_core._store._sftp._place import Place, Says
from streaming_core._store._sftp._server import Server
from streaming_core._store._sftp._transfer import (
    CHUNK_BYTES,
    ChangedError,
    NoFileError,
    TakenError,
    opened,
    publish,
)
from streaming_core._store._temp import is_temp
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ObjectNotFoundError,
    StoreError,
    StreamingError,
    UnsafeKeyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from streaming_core._store._contract import Buffer, ByteRange
    from streaming_core._store._options import StorageOptions
    from streaming_core._store._sftp._packets import Attributes
    from streaming_core._store._sftp._transfer import OpenFile

__all__ = ["SftpStore", "sftp_from_url"]

_READS: Final = frozenset({"get", "get_ranges", "head", "stream"})
_FULL_ENOUGH_SECONDS: Final = 0.5
"""A piece that is not full after this long is handed over as it is, so that slowness is seen."""


class SftpStore:
    """The files below a folder of a server.

    A file is written under another name and gets its own in one step. The protocol knows times in
    whole seconds only: the etag of a file that is replaced always changes, but one that is deleted
    and put anew within a second, with as many bytes, may keep it. Links are followed, and may lead
    out of the folder: the server says how far. The URL keeps the user, never a password.

    Example:
        >>> SftpStore.at("sftp://me:secret@example.org/data/set")
        SftpStore('sftp://me@example.org/data/set')
    """

    __slots__ = ("_folder", "_server", "_stall")

    def __init__(self, server: Server, folder: str, stall: float = STALL_SECONDS) -> None:
        self._server = server
        self._folder = folder
        self._stall = stall

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> SftpStore:
        """Return the store at an `sftp://` URL.

        Options: `key_file` and `known_hosts_file` (else `COMPOSER_SFTP_KEY_FILE` and
        `COMPOSER_SFTP_KNOWN_HOSTS_FILE`, else what lies in `~/.ssh` and the agent's keys),
        `password`, `passphrase` of the key, and `host_key_check`, True unless any machine may pose
        as the server.
        """
        place = Place.of(url)
        return cls(Server(place, Says(url, options)), place.folder)

    @property
    def url(self) -> str:
        """The folder as an `sftp://` URL, percent-encoded, without a password."""
        return self._server.place.origin + (quote(self._folder) or "/")

    def __repr__(self) -> str:
        return f"SftpStore({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return self.url == other.url if isinstance(other, SftpStore) else NotImplemented

    def __hash__(self) -> int:
        return hash((SftpStore, self.url))

    def __reduce__(self) -> tuple[type[SftpStore], tuple[Server, str, float]]:
        return SftpStore, (self._server, self._folder, self._stall)

    def child(self, prefix: str) -> SftpStore:
        """Return the store of the folder `prefix` below this one, which need not exist."""
        check_key(prefix, url=self.url, operation="child")
        return SftpStore(self._server, f"{self._folder}/{prefix}", self._stall)

    def with_timeout(self, seconds: float) -> SftpStore:
        """Return the same store, whose requests fail when nothing comes for so long."""
        return SftpStore(self._server, self._folder, seconds)

    # --- reading ----------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole file; see `Store.get`."""
        with self._errors(key, "get"), self._opened(key, "get") as file:
            check_size(file.size, max_bytes, url=self.url, key=key)
            data = b"".join(file.chunks([(0, file.size)]))
            file.check_unchanged()
            return data

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges, all asked for at once; see `Store.get_ranges`.

        Ranges with both ends take two round trips, others three.
        """
        check_ranges(ranges, url=self.url, key=key)
        with self._errors(key, "get_ranges"), self._opened(key, "get_ranges") as file:
            plain = [(start, stop) for start, stop in ranges if start >= 0 and stop is not None]
            try:
                if len(plain) < len(ranges):
                    plain = resolve_ranges(ranges, file.size, url=self.url, key=key)
                chunks = file.chunks(plain)
                parts = [_joined(chunks, stop - start) for start, stop in plain]
            except (ChangedError, StatusError):
                # Asked for before it was known that there is such a range, or a file at all.
                resolve_ranges(ranges, file.size, url=self.url, key=key)
                raise
            resolve_ranges(ranges, file.size, url=self.url, key=key)
            file.check_unchanged()
            return Parts(parts, file.attributes.etag)

    def stream(self, key: str, *, start: int = 0, max_bytes: int | None = None) -> Pieces:
        """Yield the file from `start` on, through one buffer; see `Store.stream`."""
        return Pieces(lambda note: self._pieces(key, start, max_bytes, note))

    def _pieces(
        self, key: str, start: int, max_bytes: int | None, note: Callable[[str], None]
    ) -> Generator[memoryview]:
        with self._errors(key, "stream"), self._opened(key, "stream") as file:
            note(file.attributes.etag)
            check_size(file.size, max_bytes, url=self.url, key=key)
            check_start(start, file.size, url=self.url, key=key)
            buffer = memoryview(bytearray(min(PIECE_BYTES, file.size - start)))
            shown = buffer.toreadonly()
            filled, began = 0, time.monotonic()
            for chunk in file.chunks([(start, file.size)]):
                buffer[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
                is_full = filled + CHUNK_BYTES > PIECE_BYTES
                if is_full or time.monotonic() - began > _FULL_ENOUGH_SECONDS:
                    yield shown[:filled]
                    filled, began = 0, time.monotonic()
            if filled:
                yield shown[:filled]
            file.check_unchanged()

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the file; see `Store.head`."""
        path = self._path(key, "head")
        with self._errors(key, "head"), self._server.session(self._stall) as session:
            found = session.stat(path)
            if found is None or not found.is_file:
                raise NoFileError
            return _info(key, found)

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files whose key starts with `prefix`, in key order; see `Store.list`.

        Files in the making and names that are no safe keys are left out, links to folders are not
        walked. What dead writers left in the folders on the way is removed.
        """
        check_prefix(prefix, url=self.url)
        return self._walk(prefix[: prefix.rfind("/") + 1], prefix)

    def _walk(self, top: str, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the files below the folder `top` (empty, or ending in a slash)."""
        folder = f"{self._folder}/{top}".rstrip("/").encode()
        with self._errors(top, "list"), self._server.session(self._stall) as session:
            found = entries(session, folder)
            sweep(session, folder, found)
        named = [(_listing_key(top, *entry), entry[1]) for entry in found]
        for key, attributes in sorted(named, key=itemgetter(0)):
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if key.endswith("/"):
                if name_problem(key[:-1]) is None:
                    yield from self._walk(key, prefix)
            elif (
                key.startswith(prefix)
                and attributes.is_file
                and name_problem(key) is None
                and not is_temp(key.rpartition("/")[2])
            ):
                yield _info(key, attributes)

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish a file, with many packets under way; see `Store.put`."""
        path = self._path(key, "put")
        views = byte_views(buffers)
        with self._errors(key, "put"), self._server.session(self._stall) as session:
            folder = path.rpartition(b"/")[0]
            if folder not in self._server.swept:
                sweep(session, folder, entries(session, folder))
                self._server.swept.add(folder)
            return _info(key, publish(session, path, views, if_absent=if_absent))

    def delete(self, key: str) -> None:
        """Remove the file; a missing one is fine, and empty folders stay."""
        path = self._path(key, "delete")
        with self._errors(key, "delete"), self._server.session(self._stall) as session:
            try:
                session.remove(path)
            except StatusError as error:
                if error.code == Status.MISSING:
                    return
                there = session.stat(path)
                if there is None or there.is_folder:  # a folder is no object
                    return
                raise

    # --- within -----------------------------------------------------------------------------------

    def _path(self, key: str, operation: str) -> bytes:
        check_key(key, url=self.url, operation=operation)
        if is_temp(key.rpartition("/")[2]):
            msg = (
                f"{operation} in {self.url}: {key!r} is a name for temporary files; choose another"
            )
            raise UnsafeKeyError(msg)
        return f"{self._folder}/{key}".encode()

    @contextmanager
    def _opened(self, key: str, operation: str) -> Generator[OpenFile]:
        path = self._path(key, operation)
        with self._server.session(self._stall) as session, opened(session, path) as file:
            yield file

    @contextmanager
    def _errors(self, key: str, operation: str) -> Generator[None]:
        """Turn whatever went wrong on the way into a typed error."""
        what = f"{operation} {key!r} in {self.url}" if key else f"{operation} in {self.url}"
        try:
            yield
        except StreamingError:
            raise
        except NoFileError as error:
            raise _missing(what) from error
        except TakenError as error:
            raise _taken(what, error) from error
        except RefusedError as error:
            msg = f"{what}: {error}"
            raise AccessDeniedError(msg) from error
        except StatusError as error:
            raise _refused(error, what, operation) from error
        except socket.gaierror as error:
            msg = f"{what}: no machine of that name is known ({error.strerror})"
            raise StoreError(msg) from error
        except TimeoutError as error:
            msg = f"{what}: the server went silent; nothing came or could be sent any more"
            raise StoreError(msg) from error
        except failures() as error:
            msg = f"{what}: {type(error).__name__}: {str(error) or 'the connection broke'}"
            raise StoreError(msg) from error


def sftp_from_url(url: str, options: StorageOptions | None = None) -> SftpStore:
    """Return the store that an `sftp://` URL names; see `SftpStore.at`."""
    return SftpStore.at(url, options)


def _info(key: str, attributes: Attributes) -> ObjectInfo:
    return ObjectInfo(key, attributes.size or 0, attributes.etag)


def _listing_key(top: str, name: bytes, attributes: Attributes) -> str:
    """Return the key of a file, or what the keys below a folder start with, slash included."""
    # Names that are no UTF-8 become no safe keys, and are left out.
    return f"{top}{name.decode(errors='surrogateescape')}{'/' if attributes.is_folder else ''}"


def _joined(chunks: Iterator[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        parts.append(next(chunks))
        size -= len(parts[-1])
    return b"".join(parts)


def _missing(what: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"{what}: there is no such object; check the key, and that its writer has finished"
    )


def _taken(what: str, error: TakenError) -> StoreError:
    if error.args:
        return StoreError(f"{what}: {error}")
    return AlreadyExistsError(
        f"{what}: the object exists already and was left as it is; delete it first or put without "
        "if_absent"
    )


def _refused(error: StatusError, what: str, operation: str) -> StoreError:
    if error.code == Status.MISSING and operation in _READS:
        return _missing(what)
    if error.code == Status.DENIED:
        return AccessDeniedError(f"{what}: {error}; check what the user may do there")
    return StoreError(f"{what}: the server answered: {error}")
