"""What is in a folder and the folders below: files, and what looks like one but cannot be read."""

# Plain calls on text instead of path objects, as in the store itself.
# ruff: noqa: PTH118

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_core._names import name_problem
from streaming_core._store._contract import ObjectInfo
from streaming_core._store._lock import LOCK_NAME
from streaming_core._store._os_errors import mapped_errors
from streaming_core._store._temp import is_temp
from streaming_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Entry", "entries_of", "file_info", "folder_entries", "is_inside", "is_reserved"]

_MOST_NESTED: Final = 4
"""Through so many linked folders one way may lead: folders with links to each other make more ways
than can be walked."""


class Entry(NamedTuple):
    """Something in a folder that has a file's place."""

    key: str
    """Its name below the root; may be none that a store takes."""
    info: ObjectInfo | None
    """None if it cannot be read."""
    problem: str = ""
    """Why it cannot be read."""
    real: str = ""
    """Where it truly lies, if linked folders lead to it."""


def entries_of(root: str, url: str, prefix: str, *, follow: bool) -> Iterator[Entry]:
    """Yield what is below `root` and begins with `prefix`, in order of the keys.

    Files in the making, sockets and such are none of it. With `follow`, links are followed wherever
    they lead, but for a folder within itself; without, linked folders are not entered, and what
    links lead to outside has a problem.
    """
    top = prefix[: prefix.rfind("/") + 1]
    walk = _Walk(root, url, prefix, follow=follow)
    real = os.path.realpath(os.path.join(root, top))
    if top and not follow and not is_inside(real, walk.real_root):
        return
    yield from walk.below(top, real, frozenset(), links=int(not is_inside(real, walk.real_root)))


class _Walk:
    """One listing."""

    def __init__(self, root: str, url: str, prefix: str, *, follow: bool) -> None:
        self._root = root
        self._url = url
        self._prefix = prefix
        self._follow = follow
        self.real_root = os.path.realpath(root)

    def below(self, top: str, real: str, above: frozenset[str], *, links: int) -> Iterator[Entry]:
        """Yield what is in the folder `top` (empty, or ending in a slash), which lies at `real`.

        So many `links` led there from the first folder, through the folders `above`.
        """
        prefix = self._prefix
        within = above | {real}
        with mapped_errors(self._url, top, "list"):
            named = [(self._key(top, entry), entry) for entry in folder_entries(self._path(top))]
        for key, entry in sorted(named, key=itemgetter(0)):
            if not (key.startswith(prefix) or prefix.startswith(key)) or is_reserved(entry.name):
                continue
            if not key.endswith("/"):
                if key.startswith(prefix):
                    yield from self._file(key, entry, real if links else "")
                continue
            is_link = entry.is_symlink()
            deeper = os.path.realpath(entry.path) if is_link else os.path.join(real, entry.name)
            if deeper in within:
                continue  # round and round; all of it is listed where it lies
            if links + is_link > _MOST_NESTED:
                msg = (
                    f"list in {self._url}: {key!r} is reached through more than {_MOST_NESTED} "
                    "linked folders; name the folder that is meant"
                )
                raise StoreError(msg)
            yield from self.below(key, deeper, within, links=links + is_link)

    def _path(self, top: str) -> str:
        return os.path.join(self._root, top)

    def _key(self, top: str, entry: os.DirEntry[str]) -> str:
        """Return the key of a file, or what the keys below a folder begin with, slash included."""
        is_folder = False
        with suppress(OSError):  # of links that lead to each other
            is_folder = entry.is_dir(follow_symlinks=self._follow)
        return f"{top}{entry.name}{'/' if is_folder else ''}"

    def _file(self, key: str, entry: os.DirEntry[str], folder: str) -> Iterator[Entry]:
        """Yield the entry of what is no folder to be entered, if it has a file's place."""
        real = os.path.join(folder, entry.name) if folder else ""
        is_link = entry.is_symlink()
        if is_link and not self._follow:
            leads = os.path.realpath(entry.path)
            if not is_inside(leads, self.real_root):
                yield Entry(key, None, f"a link leads to {leads}, out of the folder", real)
                return
        try:
            with mapped_errors(self._url, key, "list"), suppress(FileNotFoundError):
                state = os.stat(entry.path)  # noqa: PTH116 - see above
                if stat.S_ISREG(state.st_mode):
                    bad = name_problem(key)
                    info = None if bad else file_info(key, state)
                    yield Entry(key, info, f"as a name {bad}" if bad else "", real)
                return
        except StoreError as error:
            if not is_link or error.errno != errno.ELOOP:
                raise
        if is_link:  # else it is gone meanwhile
            yield Entry(key, None, f"a link leads to {os.readlink(entry.path)}, which is not there")  # noqa: PTH115 - see above


def file_info(key: str, state: os.stat_result) -> ObjectInfo:
    """Return what a store says of a file."""
    version = f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}"
    return ObjectInfo(key, state.st_size, version)


def folder_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in the folder; nothing if there is none."""
    while True:
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except InterruptedError:  # unlike other calls, this one is not repeated by Python
            continue
        except (FileNotFoundError, NotADirectoryError):
            return []


def is_inside(real: str, real_root: str) -> bool:
    """Tell whether a path, free of links as the other, is that or below it."""
    return real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep)


def is_reserved(basename: str) -> bool:
    """Tell whether a name is one of files in the making, or of the lock."""
    return basename == LOCK_NAME or is_temp(basename)
