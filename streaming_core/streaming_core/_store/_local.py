"""A folder as a store."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH100, PTH106, PTH108, PTH112, PTH114, PTH116, PTH118, PTH120

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from streaming_core._store._contract import (
    PIECE_BYTES,
    Buffer,
    ByteRange,
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
from streaming_core._store._disk import (
    make_folders,
    open_to_read,
    publish,
    read_at,
    read_into,
    sync_folder,
)
from streaming_core._store._local_walk import (
    entries_of,
    file_info,
    folder_entries,
    is_inside,
    is_reserved,
)
from streaming_core._store._lock import FolderLock, is_locked_here
from streaming_core._store._options import Options
from streaming_core._store._os_errors import mapped_errors
from streaming_core._store._temp import is_temp, owner_is_gone
from streaming_core.errors import SchemaError, UnsafeKeyError, WriterStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from streaming_core._store._local_walk import Entry
    from streaming_core._store._options import StorageOptions

__all__ = ["LocalStore", "local_from_url"]


class LocalStore:
    """The files below a folder as a store; the folder is made by the first `put`.

    A file appears by rename, complete, and with `durable` it and its folders survive a power loss
    once `put` returns. Keys and links that lead out of the folder are refused. Linked files inside
    it are listed and read, linked folders are read but not walked by `list`. With `links`, links
    may lead anywhere, and linked folders are walked too: for data that somebody put there to be
    read. A relative path is made absolute at once.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = LocalStore(folder)
        ...     _ = store.put("part/a", [b"head", b"body"])
        ...     store.get("part/a"), [info.key for info in store.list()]
        (b'headbody', ['part/a'])
    """

    __slots__ = ("_durable", "_links", "_root", "_url")

    def __init__(
        self,
        path: str | os.PathLike[str],
        durable: bool = True,  # noqa: FBT001, FBT002 - the contract's signature
        links: bool = False,  # noqa: FBT001, FBT002 - as that
    ) -> None:
        self._root: str = os.path.abspath(os.fspath(path))
        self._durable = durable
        self._links = links
        self._url = Path(self._root).as_uri()

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return Path(self._root)

    @property
    def url(self) -> str:
        """The folder as a `file://` URL, percent-encoded."""
        return self._url

    @property
    def durable(self) -> bool:
        """Whether a finished `put` survives a power loss."""
        return self._durable

    def __repr__(self) -> str:
        durable = "" if self._durable else ", durable=False"
        return f"LocalStore({self._root!r}{durable}{', links=True' if self._links else ''})"

    def __eq__(self, other: object) -> bool:
        return self._root == other._root if isinstance(other, LocalStore) else NotImplemented

    def __hash__(self) -> int:
        return hash((LocalStore, self._root))

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str, bool, bool]]:
        return LocalStore, (self._root, self._durable, self._links)

    # --- the verbs of every store -----------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole file; see `Store.get`."""
        path = self._locate(key, "get")
        with mapped_errors(self.url, key, "get"):
            handle, state = open_to_read(path)
            try:
                check_size(state.st_size, max_bytes, url=self.url, key=key)
                return read_at(handle, 0, state.st_size)
            finally:
                os.close(handle)

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges, all of one version of the file; see `Store.get_ranges`."""
        path = self._locate(key, "get_ranges")
        url = self.url
        check_ranges(ranges, url=url, key=key)
        with mapped_errors(url, key, "get_ranges"):
            handle, state = open_to_read(path)
            try:
                resolved = resolve_ranges(ranges, state.st_size, url=url, key=key)
                found = [read_at(handle, start, stop - start) for start, stop in resolved]
                return Parts(found, file_info(key, state).etag)
            finally:
                os.close(handle)

    def stream(
        self, key: str, *, start: int = 0, max_bytes: int | None = None
    ) -> Generator[memoryview]:
        """Yield the file from `start` on; see `Store.stream`. One buffer serves all pieces."""
        path = self._locate(key, "stream")
        with mapped_errors(self.url, key, "stream"):
            handle, state = open_to_read(path)
        try:
            check_size(state.st_size, max_bytes, url=self.url, key=key)
            check_start(start, state.st_size, url=self.url, key=key)
            buffer = memoryview(bytearray(min(PIECE_BYTES, state.st_size - start)))
            for at in range(start, state.st_size, PIECE_BYTES):
                piece = buffer[: state.st_size - at]
                with mapped_errors(self.url, key, "stream"):
                    read_into(handle, at, piece)
                yield piece.toreadonly()
            with mapped_errors(self.url, key, "stream"):
                _check_unchanged(state, os.fstat(handle))
        finally:
            os.close(handle)

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the file; see `Store.head`."""
        path = self._locate(key, "head")
        with mapped_errors(self.url, key, "head"):
            state = os.stat(path)
            if not stat.S_ISREG(state.st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a regular file", path)
            return file_info(key, state)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files whose key starts with `prefix`, in key order; see `Store.list`.

        Files in the making, names that are no safe keys, and links out of the folder are left out.
        """
        return (entry.info for entry in self.entries(prefix) if entry.info is not None)

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish a file; see `Store.put`. The buffers are written without a copy."""
        path = self._locate(key, "put")
        with mapped_errors(self.url, key, "put"):
            make_folders(os.path.dirname(path), durable=self._durable)
            views = byte_views(buffers)
            return file_info(key, publish(path, views, durable=self._durable, if_absent=if_absent))

    def delete(self, key: str) -> None:
        """Remove the file; a missing one is fine, and empty folders stay."""
        path = self._locate(key, "delete", follow=False)
        with mapped_errors(self.url, key, "delete"):
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            except (IsADirectoryError, PermissionError):
                # A folder is no object, so there is nothing to delete; macOS calls that EPERM.
                if os.path.isdir(path) and not os.path.islink(path):
                    return
                raise
            if self._durable:
                sync_folder(os.path.dirname(path))

    def child(self, prefix: str) -> LocalStore:
        """Return the store of the folder `prefix` below this one, which need not exist."""
        return LocalStore(self._locate(prefix, "child"), self._durable, self._links)

    # --- what only a folder can do ----------------------------------------------------------------

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Yield what `list` lists, and what has a file's place but cannot be read, with the reason.

        In order of the keys. See `entries_of`.
        """
        check_prefix(prefix, url=self.url)
        return entries_of(self._root, self._url, prefix, follow=self._links)

    def exists(self) -> bool:
        """Tell whether the folder is there."""
        return os.path.isdir(self._root)

    def empty(self) -> bool:
        """Tell whether the folder is missing, or holds nothing but files in the making."""
        with mapped_errors(self.url, "", "list"):
            return all(is_reserved(entry.name) for entry in folder_entries(self._root))

    def remove_empty(self, prefix: str) -> None:
        """Remove the folder `prefix` if it is there and has nothing in it."""
        path = self._locate(prefix, "remove_empty", follow=False)
        with mapped_errors(self.url, prefix, "remove_empty"):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                    raise
                return
            if self._durable:
                sync_folder(os.path.dirname(path))

    def lock(self) -> FolderLock:
        """Return the lock on this folder, to be used with `with`; makes the folder at once.

        Raises `OutputBusyError` on entering if anyone, this process included, holds it.
        """
        with mapped_errors(self.url, "", "lock"):
            make_folders(self._root, durable=self._durable)
        return FolderLock(self._root)

    def sweep(self, *, all: bool = False, recursive: bool = False) -> int:  # noqa: A002 - reads well
        """Remove temporary files that writers of this machine left when they died; return how many.

        `all` removes those of other machines and of living processes too, and needs the `lock` of
        this folder held by this process; with `recursive`, that lock must stand for the folders
        below as well.

        Raises:
            WriterStateError: `all` was given without holding the lock.
        """
        if all and not is_locked_here(self._root):
            msg = f"{self._root}: sweep(all=True) could remove what others are writing; hold lock()"
            raise WriterStateError(msg)
        with mapped_errors(self.url, "", "sweep"):
            return _sweep(self._root, is_temp if all else owner_is_gone, recursive=recursive)

    # --- within -----------------------------------------------------------------------------------

    def _locate(self, key: str, operation: str, *, follow: bool = True) -> str:
        """Return the path of `key`, which is safe, not reserved, and not linked to the outside."""
        check_key(key, url=self.url, operation=operation)
        *parents, name = key.split("/")
        if is_reserved(name):
            msg = (
                f"{operation} in {self.url}: {key!r} is a name for temporary files; choose another"
            )
            raise UnsafeKeyError(msg)
        path, has_links = self._root, False
        for part in parents:
            path = os.path.join(path, part)
            has_links = has_links or (not self._links and os.path.islink(path))
        folder, path = path, os.path.join(path, name)
        # A safe key leaves the folder through a link only, so the rest is spared the slow look.
        if not self._links and (has_links or (follow and os.path.islink(path))):
            real = os.path.realpath(path if follow else folder)
            if not is_inside(real, os.path.realpath(self._root)):
                msg = (
                    f"{operation} {key!r} in {self.url}: a symbolic link leads to {real}, out of "
                    "the folder; copy the data into it, or open the folder that the link leads to"
                )
                raise UnsafeKeyError(msg)
        return path


def local_from_url(url: str, options: StorageOptions | None = None) -> LocalStore:
    """Return the store that a `file:` URL names; percent escapes are decoded. There are no options.

    Example:
        >>> local_from_url("file:///data/my%20set")
        LocalStore('/data/my set')
    """
    Options(options, known=())
    host = urlsplit(url).netloc
    path = unquote(url.split(":", 1)[1].removeprefix(f"//{host}"), errors="surrogateescape")
    if host not in {"", "localhost"} or not path.startswith("/"):
        msg = f"{url!r} names no folder of this machine; write file:///absolute/path, or the path"
        raise SchemaError(msg)
    return LocalStore(path)


def _check_unchanged(before: os.stat_result, after: os.stat_result) -> None:
    """Raise `OSError` if somebody wrote into the open file, instead of putting a new one there."""
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise OSError(errno.ESTALE, "the file was changed while it was read")


def _sweep(folder: str, is_litter: Callable[[str], bool], *, recursive: bool) -> int:
    removed = 0
    for entry in folder_entries(folder):
        if entry.is_dir(follow_symlinks=False):
            removed += _sweep(entry.path, is_litter, recursive=True) if recursive else 0
        elif is_litter(entry.name):
            with suppress(FileNotFoundError):  # another sweeper was faster
                os.unlink(entry.path)
                removed += 1
    return removed
