"""Where a cache keeps what: shards where the index says, all else in one control folder."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH116, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from typing import Final, NamedTuple

from streaming_core._index import ROLES
from streaming_reader._cache._locks import FileHandle

__all__ = ["CONTROL", "SOURCE", "Places", "Stamp", "file_stamp", "same_folder"]

CONTROL: Final = ".streaming"
"""The folder for all that is not a file of the data set; beside the shards, so that a rename into
place never crosses file systems."""
SOURCE: Final = "source"
"""The name, in there, of what says where the files come from."""

_BAD: Final = "bad"
_LOCK: Final = "lock"
_MAX_BAD_FILES: Final = 8
_MAX_NAME_BYTES: Final = 240
_HEAD_CHARS: Final = 40


class Stamp(NamedTuple):
    """What a glance at a file tells."""

    size: int
    """Bytes."""
    changed: int
    """When it was last written, in nanoseconds."""


def file_stamp(path: str) -> Stamp | None:
    """Return what is known of the file without reading it, None if there is no such file."""
    try:
        state = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    return Stamp(state.st_size, state.st_mtime_ns) if stat.S_ISREG(state.st_mode) else None


def same_folder(one: str, other: str) -> bool:
    """Tell whether two paths lead to one folder."""
    return os.path.realpath(one) == os.path.realpath(other)


class Places:
    """The paths below one folder, and the moves between them."""

    __slots__ = ("folder",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def control(self) -> str:
        """The control folder."""
        return os.path.join(self.folder, CONTROL)

    @property
    def ledger(self) -> str:
        """The ledger's file."""
        return os.path.join(self.control, "ledger")

    @property
    def source(self) -> str:
        """The file that says where the files come from."""
        return os.path.join(self.control, SOURCE)

    @property
    def parts(self) -> str:
        """The folder of files in the making, and of a few that were wrong."""
        return os.path.join(self.control, "parts")

    def file(self, basename: str) -> str:
        """Return where a file of the data set lies."""
        return os.path.join(self.folder, basename)

    def lock(self, basename: str) -> str:
        """Return the file that is locked by whoever makes the shard with this data file.

        A file of its own: the part becomes the data file, whose lock says that it is in use.
        """
        return self.part(basename, _LOCK)

    def part(self, basename: str, kind: str) -> str:
        """Return where a file of the shard is made, before it is renamed into place."""
        return os.path.join(self.parts, f"{_flat_name(basename)}.{kind}")

    def last_write(self, basename: str) -> float | None:
        """Return when bytes were last written to a part of the shard, of `time.time`; or None."""
        stamps = [file_stamp(self.part(basename, role)) for role in ROLES]
        return max((stamp.changed / 1e9 for stamp in stamps if stamp and stamp.size), default=None)

    def publish(self, part: str, basename: str) -> None:
        """Let a finished part appear as the file."""
        path = self.file(basename)
        try:
            os.replace(part, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(part, path)

    def set_aside(self, path: str, basename: str) -> None:
        """Keep a wrong file of the shard to be looked at, instead of an earlier one.

        It is removed if enough of other shards are kept.
        """
        kept = set(filter(_is_bad, self._part_names()))
        target = self.part(basename, _BAD)
        with suppress(FileNotFoundError):
            if len(kept - {os.path.basename(target)}) < _MAX_BAD_FILES:
                os.replace(path, target)
            else:
                os.unlink(path)

    def remove(self, basename: str) -> None:
        """Remove a file of the data set, if it is there."""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self.file(basename))

    def clear(self, basename: str) -> None:
        """Remove what is left of the shard's parts, the lock last; the caller holds it."""
        for kind in (*ROLES, _LOCK):
            with suppress(FileNotFoundError):
                os.unlink(self.part(basename, kind))

    def sweep(self) -> None:
        """Remove parts that nobody works on: their makers died."""
        stems = {name.rpartition(".")[0] for name in self._part_names() if not _is_bad(name)}
        for stem in stems:
            lock = os.path.join(self.parts, f"{stem}.{_LOCK}")
            with suppress(OSError):
                handle = FileHandle.locked_now(lock)
                if handle is None:
                    continue
                with handle:
                    for kind in (*ROLES, _LOCK):
                        with suppress(FileNotFoundError):
                            os.unlink(os.path.join(self.parts, f"{stem}.{kind}"))

    def leave(self) -> None:
        """Remove the control folder if nothing is in it."""
        with suppress(OSError):
            os.rmdir(self.parts)
            os.rmdir(self.control)

    def _part_names(self) -> list[str]:
        try:
            return os.listdir(self.parts)
        except OSError:
            return []


def _is_bad(name: str) -> bool:
    return name.endswith(f".{_BAD}")


def _flat_name(basename: str) -> str:
    """Return one name for a relative path; different ones for different paths."""
    flat = basename.replace("%", "%25").replace("/", "%2F")
    if len(flat.encode()) <= _MAX_NAME_BYTES:
        return flat
    digest = hashlib.blake2b(basename.encode(), digest_size=16).hexdigest()
    return f"{basename.replace('/', '_').replace('%', '_')[:_HEAD_CHARS]}%{digest}"
