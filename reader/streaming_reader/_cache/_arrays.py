"""Arrays that the processes of a node share: made once, mapped by all."""

# Plain calls on text instead of path objects: cheaper, and what the system does can be read off.
# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH208

from __future__ import annotations

import hashlib
import logging
import os
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from streaming_core._mapping import map_whole
from streaming_core.errors import WaitTimeoutError
from streaming_reader._cache._locks import FileHandle, is_free
from streaming_reader._cache._mapped import READ_FLAGS, hold
from streaming_reader._cache._places import CONTROL
from streaming_reader._cache._transfer import write_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["SharedArrays"]

_log = logging.getLogger("streaming_core.reader")
_MAGIC: Final = b"SCARRAY1"
_HEADER: Final = struct.Struct("<8sq16sQ24x")
_FOLDER: Final = "orders"
_SUFFIX: Final = ".i8"
_MAX_FILES: Final = 3
_WAIT_SECONDS: Final = 300.0


class SharedArrays:
    """Makes an array of int64 once per node, below `folder`, and maps it in every process.

    Called with a key that names all the array depends on, its length, and what makes it. Without a
    folder, or where the folder cannot be written to, each process makes its own; so does one that
    waited in vain for another to make it. The newest three files stay, and those in use. Pickles,
    forks, and holds nothing open itself.

    Example:
        >>> arrays = SharedArrays(None)
        >>> arrays("key", 3, lambda: np.arange(3)).tolist()
        [0, 1, 2]
    """

    __slots__ = ("_folder", "_wait_seconds")

    def __init__(
        self, folder: str | os.PathLike[str] | None, *, wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        self._folder = None if folder is None else os.path.join(os.fspath(folder), CONTROL, _FOLDER)
        self._wait_seconds = wait_seconds

    def __call__(
        self, key: str, count: int, make: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Return the array of `key`, read-only; `make` is called if nobody has made it yet.

        Raises `ValueError` if `make` gives another number of values.
        """
        if self._folder is None:
            return _made(key, count, make)
        found = self._mapped(key, count)
        if found is not None:
            return found
        path = self._path(key)
        try:
            os.makedirs(self._folder, exist_ok=True)
            deadline = time.monotonic() + self._wait_seconds
            lock = FileHandle.locked(f"{path}.lock", deadline, f"making {path}")
        except (OSError, WaitTimeoutError) as error:
            _log.info("making an order in memory: %s", error)
            return _made(key, count, make)
        with lock:
            try:
                return self._made_here(key, count, make)
            finally:
                with suppress(OSError):
                    os.unlink(f"{path}.lock")

    def _made_here(
        self, key: str, count: int, make: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Make the file, whose lock is held, unless another has made it meanwhile."""
        found = self._mapped(key, count)
        if found is not None:
            return found
        array = _made(key, count, make)
        path = self._path(key)
        part = f"{path}.part"
        try:
            self._write(part, key, array)
            os.replace(part, path)
        except OSError as error:
            _log.info("keeping an order in memory: %s", error)
            with suppress(OSError):
                os.unlink(part)
            return array
        found = self._mapped(key, count)
        self._remove_old()
        return array if found is None else found

    @staticmethod
    def _write(part: str, key: str, array: NDArray[np.int64]) -> None:
        data = array.astype("<i8", copy=False).data.cast("B") if len(array) else memoryview(b"")
        with FileHandle.at(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle:
            write_all(handle.number, _header(key, array))
            write_all(handle.number, data)

    def _mapped(self, key: str, count: int) -> NDArray[np.int64] | None:
        """Return the array if its file is there and whole."""
        try:
            handle = FileHandle.at(self._path(key), READ_FLAGS)
        except OSError:
            return None
        with handle:
            hold(handle)
            if os.fstat(handle.number).st_size != _HEADER.size + 8 * count:
                return None
            view = map_whole(handle.number)
        array = np.frombuffer(view, "<i8", count, _HEADER.size)
        if bytes(view[: _HEADER.size]) != _header(key, array):
            return None
        return array

    def _path(self, key: str) -> str:
        name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder or "", name + _SUFFIX)

    def _remove_old(self) -> None:
        """Remove all but the newest files that nobody has mapped, and what dead makers left."""
        folder = self._folder or ""
        with suppress(OSError):
            for name in os.listdir(folder):
                if name.endswith(".part") and is_free(
                    os.path.join(folder, f"{name.removesuffix('.part')}.lock")
                ):
                    os.unlink(os.path.join(folder, name))
        with suppress(OSError):
            paths = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(_SUFFIX)]
            for path in sorted(paths, key=os.path.getmtime)[:-_MAX_FILES]:
                if is_free(path):
                    os.unlink(path)


def _made(key: str, count: int, make: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    array = np.ascontiguousarray(make(), np.int64)
    if array.shape != (count,):
        msg = f"the array {key!r} was to have {count} values, came shape {array.shape}"
        raise ValueError(msg)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _header(key: str, array: NDArray[np.int64]) -> bytes:
    name = hashlib.blake2b(key.encode(), digest_size=16).digest()
    data = array.data.cast("B") if len(array) else b""
    return _HEADER.pack(_MAGIC, len(array), name, xxhash.xxh3_64_intdigest(data))
