"""Files that a web server of tests gives out: in memory, or in a folder."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self

if TYPE_CHECKING:
    import socket

__all__ = ["File", "Files", "FolderFiles", "MemoryFiles"]

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


class File:
    """A file that is being given out, or a range of it."""

    def __init__(self, source: bytes | BinaryIO, size: int, etag: str) -> None:
        self._source = source
        self.size = size
        """Of the whole file."""
        self.etag = etag
        self.status = 200
        self._start, self._stop = 0, size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def length(self) -> int:
        """How many bytes are to be sent."""
        return self._stop - self._start

    @property
    def headers(self) -> dict[str, str]:
        """What is said of it."""
        said = {"ETag": self.etag, "Accept-Ranges": "bytes"}
        if self.status == 206:
            said["Content-Range"] = f"bytes {self._start}-{self._stop - 1}/{self.size}"
        return said

    def narrow(self, wanted: str) -> bool:
        """Keep what a `Range` header names; False if nothing of it is in the file."""
        match = _RANGE.fullmatch(wanted.strip())
        if match is None or not (match[1] or match[2]):
            return True  # none, or several: the whole file is a right answer
        if match[1]:
            start, stop = int(match[1]), int(match[2]) + 1 if match[2] else self.size
        else:
            start, stop = max(0, self.size - int(match[2])), self.size
        if start >= self.size or start >= stop:
            return False
        self._start, self._stop, self.status = start, min(stop, self.size), 206
        return True

    def send(self, connection: socket.socket) -> None:
        """Send its bytes."""
        if isinstance(self._source, bytes):
            connection.sendall(memoryview(self._source)[self._start : self._stop])
        elif self.length:
            connection.sendfile(self._source, self._start, self.length)

    def close(self) -> None:
        """Let it go."""
        if not isinstance(self._source, bytes):
            self._source.close()


class Files(Protocol):
    """Named files; threads may use them at once."""

    def open(self, name: str) -> File | None:
        """Return a file, None if there is none."""
        ...

    def put(self, name: str, body: bytes, *, if_absent: bool = False) -> str | None:
        """Write a file in one step and return its ETag; None if it exists but must not."""
        ...

    def remove(self, name: str) -> bool:
        """Remove a file; tell whether there was one."""
        ...


class MemoryFiles:
    """Files in memory; each write makes a new ETag."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._versions = itertools.count(1)
        self._files: dict[str, tuple[bytes, str]] = {}

    def open(self, name: str) -> File | None:
        """See `Files.open`."""
        body, etag = self._files.get(name, (None, ""))
        return None if body is None else File(body, len(body), etag)

    def put(self, name: str, body: bytes, *, if_absent: bool = False) -> str | None:
        """See `Files.put`."""
        with self._guard:
            if if_absent and name in self._files:
                return None
            etag = f'"v{next(self._versions)}"'
            self._files[name] = body, etag
            return etag

    def remove(self, name: str) -> bool:
        """See `Files.remove`."""
        return self._files.pop(name, None) is not None


class FolderFiles:
    """Files below a folder, as they lie there; a name never leads out of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._temporary = (f".upload-{os.getpid()}-{number}" for number in itertools.count())
        self._guard = threading.Lock()

    def open(self, name: str) -> File | None:
        """See `Files.open`."""
        path = self._path(name)
        if path is None or not path.is_file():
            return None
        try:
            stream = path.open("rb")
        except OSError:
            return None
        seen = os.fstat(stream.fileno())
        return File(stream, seen.st_size, _etag(seen))

    def put(self, name: str, body: bytes, *, if_absent: bool = False) -> str | None:
        """See `Files.put`."""
        path = self._path(name)
        if path is None:
            return None
        with self._guard:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._folder / next(self._temporary)
            temporary.write_bytes(body)
            etag = _etag(temporary.stat())
            if not if_absent:
                temporary.replace(path)
                return etag
            try:
                os.link(temporary, path)
            except FileExistsError:
                return None
            finally:
                temporary.unlink()
            return etag

    def remove(self, name: str) -> bool:
        """See `Files.remove`."""
        path = self._path(name)
        with contextlib.suppress(OSError):
            if path is not None:
                path.unlink()
                return True
        return False

    def _path(self, name: str) -> Path | None:
        path = Path(os.path.normpath(self._folder / name))
        return path if path.is_relative_to(self._folder) and path != self._folder else None


def _etag(seen: os.stat_result) -> str:
    return f'"{seen.st_ino:x}-{seen.st_mtime_ns:x}-{seen.st_size:x}"'
