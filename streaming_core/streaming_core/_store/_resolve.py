"""From a URL or path to the store that serves it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from streaming_core._arguments import checked
from streaming_core._extras import require
from streaming_core._store._contract import Store
from streaming_core._store._local import LocalStore
from streaming_core._store._options import Options, StorageOptions
from streaming_core.errors import SchemaError

if TYPE_CHECKING:
    import os

__all__ = ["open_store", "public_url", "register_store"]

StoreFactory = Callable[[str], Store]

# Two letters at least, because one is a drive; one slash will do, because file:/x and dbfs:/x do.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SCHEME_NAME = re.compile(r"[a-z][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class _Backend:
    """Where the factory of a scheme is found when it is first needed."""

    module: str
    factory: str
    extra: str


_BACKENDS = {
    "abfs": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
    "abfss": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
    "az": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
    "azure": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
    "azure-dl": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
    "dbfs": _Backend("streaming_core._store._databricks", "databricks_from_url", "databricks"),
    "file": _Backend("streaming_core._store._local", "local_from_url", "all"),
    "gcs": _Backend("streaming_core._store._gcs", "gcs_from_url", "gcs"),
    "gs": _Backend("streaming_core._store._gcs", "gcs_from_url", "gcs"),
    "hf": _Backend("streaming_core._store._hf", "hf_from_url", "hf"),
    "http": _Backend("streaming_core._store._http", "web_from_url", "all"),
    "https": _Backend("streaming_core._store._http", "web_from_url", "all"),
    "memory": _Backend("streaming_core._store._memory", "memory_from_url", "all"),
    "oci": _Backend("streaming_core._store._oci", "oci_from_url", "oci"),
    "r2": _Backend("streaming_core._store._s3", "s3_from_url", "s3"),
    "s3": _Backend("streaming_core._store._s3", "s3_from_url", "s3"),
    "sftp": _Backend("streaming_core._store._sftp", "sftp_from_url", "sftp"),
    "wasb": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
    "wasbs": _Backend("streaming_core._store._azure", "azure_from_url", "azure"),
}
_registered: dict[str, StoreFactory] = {}


def open_store(
    url_or_path: str | os.PathLike[str], storage_options: StorageOptions | None = None
) -> Store:
    """Return the store that `url_or_path` names; nothing is contacted or made yet.

    A path, or `file:///path` with percent escapes, gives a `LocalStore`; `memory://name` the
    `MemoryStore` of that name; other schemes what was registered for them. In a path a leading
    `~` means the home folder. `storage_options` are what the scheme takes beyond the URL, such as
    credentials: names and values, or a function that returns them, which is called again when they
    have run out.

    Raises:
        SchemaError: The text is empty, its scheme is unknown, or the options are not its own.
        MissingExtraError: The scheme needs a package that is not installed.

    Example:
        >>> open_store("/data/my set"), open_store("memory://example")
        (LocalStore('/data/my set'), MemoryStore('example'))
    """
    text: str = checked({"url_or_path": url_or_path})["url_or_path"]
    if not text:
        msg = "the place of a store is empty; give a folder or a URL such as s3://bucket/folder"
        raise SchemaError(msg)
    match = _SCHEME.match(text) if isinstance(url_or_path, str) else None
    if match is None:
        Options(storage_options, known=())  # refuses any
        return LocalStore(_expanded(text) if isinstance(url_or_path, str) else text)
    return _opened(match[1].lower(), text, storage_options)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        msg = f"{text!r}: this user has no home folder; give the whole path"
        raise SchemaError(msg) from error


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Let `open_store` call `factory` with every URL of `scheme`; replaces an earlier one.

    The registration holds for this process. A worker process that is started anew, not forked,
    needs it again; stores themselves travel by pickle.

    Example:
        >>> from streaming_core._store import MemoryStore
        >>> register_store("example", lambda url: MemoryStore(url.removeprefix("example://")))
        >>> open_store("example://a")
        MemoryStore('a')
    """
    if _SCHEME_NAME.fullmatch(scheme) is None:
        msg = (
            f"{scheme!r} is no scheme: at least two of a-z, 0-9, '+', '.' and '-', a letter first, "
            "and without '://'"
        )
        raise SchemaError(msg)
    _registered[scheme] = factory


def public_url(url: str) -> str:
    """Return `url` without what may be secret: user, password, query and fragment.

    It need not be well-formed: mistyped URLs have passwords, too.

    Example:
        >>> public_url("s3://key:secret@bucket/folder?token=1")
        's3://bucket/folder'
    """
    scheme = _SCHEME.match(url)
    head, slashes, rest = url.partition("://")
    if scheme is not None and not slashes:  # one slash, as in dbfs:/folder
        head, slashes, rest = scheme[1], ":/", url[scheme.end() :]
    host, slash, path = rest.partition("/")
    if ":" in re.split(r"[?#]", host.rpartition("@")[0], maxsplit=1)[0]:
        host = host.rpartition("@")[2]  # a password may have a '?' or '#'
    kept = re.split(r"[?#]", host + slash + path, maxsplit=1)[0]
    host, slash, path = kept.partition("/")
    return head + slashes + host.rpartition("@")[2] + slash + path


def _opened(scheme: str, url: str, options: StorageOptions | None) -> Store:
    factory = _registered.get(scheme)
    if factory is not None:
        Options(options, known=())  # refuses any
        return factory(url)
    backend = _BACKENDS.get(scheme) or _last_resort(scheme)
    if backend is None:
        known = ", ".join(f"{name}://" for name in sorted({*_BACKENDS, *_registered}))
        msg = (
            f"no store is known for {public_url(url)!r}: the scheme is {scheme!r}, known are "
            f"{known} and plain paths. Add one with register_store({scheme!r}, factory); for a "
            f"folder of that name write './{scheme}:/…'. Where fsspec has a file system of that "
            "name, installing it will do: pip install 'streaming-core[fsspec]'"
        )
        raise SchemaError(msg)
    module = require(backend.module, extra=backend.extra, purpose=f"the scheme {scheme}://")
    build = cast("Callable[[str, StorageOptions | None], Store]", getattr(module, backend.factory))
    return build(url, options)


def _last_resort(scheme: str) -> _Backend | None:
    """Return fsspec if it knows the scheme, or was named in it."""
    name = scheme.removeprefix("fsspec+")
    if name != scheme or _fsspec_knows(scheme):
        return _Backend("streaming_core._store._fsspec", "fsspec_from_url", "fsspec")
    return None


def _fsspec_knows(scheme: str) -> bool:
    from streaming_core._store._fsspec_files import knows  # noqa: PLC0415 - optional

    return knows(scheme)
