"""Any file system that fsspec knows: the last resort, for stores that have none of our own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from urllib.parse import quote, unquote

from streaming_core._extras import require
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
from streaming_core._store._fsspec_files import MISSING, etag_of, publish, typed_error
from streaming_core._store._options import Options
from streaming_core._store._resolve import public_url
from streaming_core._store._temp import is_temp, owner_is_gone
from streaming_core.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    MissingExtraError,
    SchemaError,
    StoreError,
    StreamingError,
    UnsafeKeyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from streaming_core._store._contract import Buffer, ByteRange
    from streaming_core._store._options import StorageOptions

__all__ = ["FORCED", "FsspecStore", "fsspec_from_url"]

_T = TypeVar("_T")

FORCED: Final = "fsspec+"
"""Before a scheme it says that fsspec is to be used, whatever else knows the scheme."""
_BLOCK_BYTES: Final = 8 << 20
"""What a stream asks for at once."""
_TURNS: Final = 5


class FsspecStore:
    """The files below a URL of one of fsspec's file systems.

    Threads and forked children have instances of their own where fsspec says that they must.
    All options go to the file system as they are, and count as secret. What holds beyond that is
    for the file system: a file appears in one step in object stores and where renaming is safe
    (local, SFTP, FTP, HDFS); a create-only put has one winner among the threads of a process, and
    among machines only where the file system sees to it; reading notices that a file was replaced
    if the file system names versions or times.

    Example:
        >>> FsspecStore.at("fsspec+memory://example/set").put("a", [b"head", b"body"]).size
        8
    """

    __slots__ = ("_options", "_prefix", "_root", "_secret_url")

    def __init__(self, root: str, options: Options, secret_url: Options, prefix: str = "") -> None:
        self._root = root
        self._options = options
        self._secret_url = secret_url
        self._prefix = prefix

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> FsspecStore:
        """Return the store at a URL such as `ftp://host/folder` or `fsspec+s3://bucket/folder`.

        Raises `MissingExtraError` if fsspec, or what it needs for the scheme, is not installed.
        """
        if url.lower().startswith(FORCED):
            url = FORCED + url[len(FORCED) :]
        _check_scheme(url)
        root = public_url(url)
        said = partial(_named, options) if callable(options) else _named(options)
        hidden = {} if root == url else {"url": url}
        return cls(
            root if root.endswith("://") else root.rstrip("/"),
            Options(said, known=(), secret={"options"}),
            Options(hidden, known=(), secret={"url"}),
        )

    @property
    def url(self) -> str:
        """The root as it was given, without user, password and query."""
        slash = "" if self._root.endswith("/") else "/"
        return f"{self._root}{slash}{self._prefix}".rstrip("/") if self._prefix else self._root

    def __repr__(self) -> str:
        return f"FsspecStore({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return self.url == other.url if isinstance(other, FsspecStore) else NotImplemented

    def __hash__(self) -> int:
        return hash((FsspecStore, self.url))

    def child(self, prefix: str) -> FsspecStore:
        """Return the store of the keys below `prefix`."""
        check_key(prefix, url=self.url, operation="child")
        below = f"{self._prefix}{prefix}/"
        return FsspecStore(self._root, self._options, self._secret_url, below)

    # --- reading ----------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole file; see `Store.get`."""
        self._check(key, "get")

        def act(files: Any, base: str) -> bytes:  # noqa: ANN401 - fsspec's
            path = _path(base, key)
            size, data = 0, b""
            for _ in range(_TURNS):
                size = self._info(files, path, key).size
                check_size(size, max_bytes, url=self.url, key=key)
                data = bytes(files.cat_file(path))
                # Another size: cut short, or replaced since. Its size now tells which.
                if len(data) == size or len(data) == self._info(files, path, key).size:
                    check_size(len(data), max_bytes, url=self.url, key=key)
                    return data
            return self._fail(f"get {key!r}", f"{len(data)} bytes came of {size}")

        return self._do(key, "get", act)

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Parts:
        """Return the ranges, all asked for at once; see `Store.get_ranges`."""
        self._check(key, "get_ranges")
        check_ranges(ranges, url=self.url, key=key)

        def act(files: Any, base: str) -> Parts:  # noqa: ANN401 - fsspec's
            path = _path(base, key)
            info = self._info(files, path, key)
            resolved = resolve_ranges(ranges, info.size, url=self.url, key=key)
            wanted = [(start, stop) for start, stop in resolved if start < stop]
            found: Iterator[bytes] = iter(self._parts(files, path, key, wanted, info))
            return Parts([next(found) if a < b else b"" for a, b in resolved], info.etag)

        return self._do(key, "get_ranges", act)

    def stream(self, key: str, *, start: int = 0, max_bytes: int | None = None) -> Pieces:
        """Yield the file from `start` on, a request for eight MiB each; see `Store.stream`."""
        return Pieces(lambda note: self._pieces(key, start, max_bytes, note))

    def _pieces(
        self, key: str, start: int, max_bytes: int | None, note: Callable[[str], None]
    ) -> Generator[memoryview]:
        self._check(key, "stream")
        info = self._do(key, "stream", lambda files, base: self._info(files, _path(base, key), key))
        check_size(info.size, max_bytes, url=self.url, key=key)
        check_start(start, info.size, url=self.url, key=key)
        note(info.etag)
        for at in range(start, info.size, _BLOCK_BYTES):
            wanted = [(at, min(at + _BLOCK_BYTES, info.size))]

            def act(files: Any, base: str, wanted: list[tuple[int, int]] = wanted) -> bytes:  # noqa: ANN401
                return self._parts(files, _path(base, key), key, wanted, info)[0]

            block = memoryview(self._do(key, "stream", act))
            for piece in range(0, len(block), PIECE_BYTES):
                yield block[piece : piece + PIECE_BYTES]

    def head(self, key: str) -> ObjectInfo:
        """Return size and etag of the file; see `Store.head`."""
        self._check(key, "head")
        return self._do(key, "head", lambda files, base: self._info(files, _path(base, key), key))

    def _parts(
        self,
        files: Any,  # noqa: ANN401 - fsspec's
        path: str,
        key: str,
        wanted: Sequence[tuple[int, int]],
        info: ObjectInfo,
    ) -> list[bytes]:
        """Return bytes that are of the version of `info`, as far as the file system names one."""
        if not wanted:
            return []
        found = files.cat_ranges(
            [path] * len(wanted), *map(list, zip(*wanted, strict=True)), on_error="raise"
        )
        for (start, stop), data in zip(wanted, found, strict=True):
            if isinstance(data, BaseException):
                raise data
            if len(data) != stop - start:
                reason = f"{len(data)} bytes came where {stop - start} were asked for"
                self._fail(f"read {key!r}", reason)
        if self._info(files, path, key) != info:
            self._fail(f"read {key!r}", "the object was replaced meanwhile")
        return [*found]

    def _info(self, files: Any, path: str, key: str) -> ObjectInfo:  # noqa: ANN401 - fsspec's
        files.invalidate_cache()
        entry = files.info(path)
        if entry.get("type") == "directory":
            raise IsADirectoryError(path)
        if entry.get("size") is None:
            self._fail(f"head {key!r}", "the file system does not say how long it is")
        return ObjectInfo(key, int(entry["size"]), etag_of(entry))

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files whose key starts with `prefix`, in key order; see `Store.list`.

        All are held in memory, as fsspec finds them. What dead writers of this machine left is
        removed.
        """
        check_prefix(prefix, url=self.url)
        return self._listed(prefix)

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        def act(files: Any, base: str) -> Sequence[ObjectInfo]:  # noqa: ANN401 - fsspec's
            return sorted(self._found(files, base, prefix), key=attrgetter("key"))

        yield from self._do("", "list", act)

    def _found(self, files: Any, base: str, prefix: str) -> Iterator[ObjectInfo]:  # noqa: ANN401
        files.invalidate_cache()
        top = prefix[: prefix.rfind("/") + 1].rstrip("/")
        try:
            entries = files.find(_path(base, top) if top else base, detail=True)
        except MISSING:
            return
        beginning = f"{base.rstrip('/')}/"
        for name, entry in entries.items():
            key = _key(name.removeprefix(beginning) if name.startswith(beginning) else "", base)
            basename = key.rpartition("/")[2]
            if owner_is_gone(basename):
                with suppress(Exception):  # another sweeper was faster, or we may not
                    files.rm_file(name)
            if not key.startswith(prefix) or name_problem(key) is not None or is_temp(basename):
                continue
            if entry.get("type") not in {None, "file"}:
                continue
            if entry.get("size") is None:
                yield self._info(files, name, key)
            else:
                yield ObjectInfo(key, int(entry["size"]), etag_of(entry))

    # --- writing ----------------------------------------------------------------------------------

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Publish a file; see `Store.put`, and the class on what the file system has to do."""
        self._check(key, "put")
        views = byte_views(buffers)

        def act(files: Any, base: str) -> ObjectInfo:  # noqa: ANN401 - fsspec's
            path = _path(base, key)
            try:
                publish(files, path, views, if_absent=if_absent)
            except FileExistsError as error:
                if not if_absent:
                    raise
                msg = (
                    f"put {key!r} in {self.url}: the object exists already and was left as it is; "
                    "delete it first or put without if_absent"
                )
                raise AlreadyExistsError(msg) from error
            return self._info(files, path, key)

        return self._do(key, "put", act)

    def delete(self, key: str) -> None:
        """Remove the file; a missing one is fine, and empty folders stay."""
        self._check(key, "delete")

        def act(files: Any, base: str) -> None:  # noqa: ANN401 - fsspec's
            path = _path(base, key)
            files.invalidate_cache()
            try:
                files.rm_file(path)
            except MISSING:
                return
            except OSError:
                if not files.isdir(path):
                    raise

        self._do(key, "delete", act)

    # --- within -----------------------------------------------------------------------------------

    def _check(self, key: str, operation: str) -> None:
        check_key(key, url=self.url, operation=operation)
        if is_temp(key.rpartition("/")[2]):
            msg = (
                f"{operation} in {self.url}: {key!r} is a name for temporary files; choose another"
            )
            raise UnsafeKeyError(msg)

    def _files(self) -> tuple[Any, str]:
        """Return the file system as this thread of this process may use it, and the root there."""
        fsspec = require("fsspec", extra="fsspec", purpose="a file system of fsspec")
        url = self._secret_url.get("url", default=self._root)
        options = self._options.get("options", default={})
        # fsspec keeps instances by process, and by thread where they are not fit for several.
        files, root = fsspec.core.url_to_fs(url.removeprefix(FORCED), **options)
        return files, _path(root, self._prefix.rstrip("/")) if self._prefix else root

    def _do(self, key: str, operation: str, act: Callable[[Any, str], _T]) -> _T:
        """Return what `act` returns, called again with other options if those were refused."""
        what = f"{operation} {key!r} in {self.url}" if key else f"{operation} in {self.url}"
        since = self._options.renewals
        try:
            return self._mapped(what, operation, act)
        except AccessDeniedError:
            if not self._options.renew(since):
                raise
        return self._mapped(what, operation, act)

    def _mapped(self, what: str, operation: str, act: Callable[[Any, str], _T]) -> _T:
        try:
            return act(*self._files())
        except StreamingError:
            raise
        except Exception as error:  # file systems raise what they like
            raise typed_error(error, what, operation) from error

    def _fail(self, what: str, reason: str) -> NoReturn:
        msg = f"{what} in {self.url}: {reason}"
        raise StoreError(msg)


def fsspec_from_url(url: str, options: StorageOptions | None = None) -> FsspecStore:
    """Return the store that a URL of fsspec names; see `FsspecStore.at`."""
    return FsspecStore.at(url, options)


def _check_scheme(url: str) -> None:
    fsspec = require("fsspec", extra="fsspec", purpose="a file system of fsspec")
    scheme = url.removeprefix(FORCED).partition(":")[0].lower()
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        msg = f"the scheme {scheme}:// needs a package that is not installed: {error}"
        raise MissingExtraError(msg) from error
    except ValueError as error:
        msg = f"{public_url(url)!r}: fsspec knows no scheme {scheme!r}"
        raise SchemaError(msg) from error


def _named(options: StorageOptions | None) -> Mapping[str, Any]:
    """Return all options as one that is secret; their names are the file system's affair."""
    return _wrapped(options() if callable(options) else options)


def _wrapped(given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        msg = (
            "storage_options must be a mapping of names to values, or a function that returns one; "
            f"came {type(given).__name__}"
        )
        raise SchemaError(msg)
    return {"options": {**given}} if given else {}


def _path(base: str, key: str) -> str:
    """Return what the file system calls a key; web addresses are percent-encoded."""
    return f"{base.rstrip('/')}/{quote(key) if '://' in base else key}"


def _key(name: str, base: str) -> str:
    return unquote(name) if "://" in base else name
