"""What a `gs://` URL, its options and the environment say of where and who."""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from streaming_core._store._options import Options
from streaming_core.errors import LastingError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_core._store._http import RefusedError
    from streaming_core._store._options import StorageOptions

__all__ = ["ENDPOINT", "Place", "has_keys", "no_bucket", "place_of", "plain", "project_of"]

ENDPOINT: Final = "https://storage.googleapis.com"
"""Google's own."""

_KNOWN: Final = (
    "anonymous",
    "allow_http",
    "ca_file",
    "endpoint_url",
    "project",
    "service_account_file",
    "user_project",
)
_SECRET: Final = ("hmac_key_id", "hmac_secret", "service_account_info", "token")
_IDENTITIES: Final = ("anonymous", "service_account_file", "service_account_info", "token")
_PROJECT: Final = re.compile(r"[A-Za-z0-9.:_-]+")
_MOST_BYTES: Final = 64 << 10
_GZIP: Final = 16 + zlib.MAX_WBITS
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"


class Place(NamedTuple):
    """A folder of a bucket, and how to get there."""

    bucket: str
    prefix: str
    """What precedes each key: empty, or ending in a slash."""
    endpoint: str
    is_emulator: bool
    """Whether the environment named it, so that nobody needs credentials."""

    @property
    def root(self) -> str:
        """The bucket's URL."""
        return f"gs://{self.bucket}"


def place_of(url: str, given: StorageOptions | None) -> tuple[Place, Options]:
    """Return what a `gs://` or `gcs://` URL says, and the options, checked.

    Raises `SchemaError` for a URL without a bucket, and for options that are none.

    Example:
        >>> place_of("gs://bucket/folder/", {"anonymous": True})[0][:2]
        ('bucket', 'folder/')
    """
    options = Options(given, known=_KNOWN, secret=_SECRET)
    scheme, _, rest = url.partition("://")
    bucket, _, folder = rest.partition("/")
    if not bucket or "@" in bucket:
        msg = f"{scheme}://… needs a bucket, as in gs://bucket/folder"
        raise SchemaError(msg)
    endpoint, emulator = options.get("endpoint_url"), os.environ.get(_EMULATOR, "")
    is_emulator = bool(emulator) and not endpoint
    if is_emulator:
        endpoint = emulator if "://" in emulator else f"http://{emulator}"
    endpoint = endpoint or ENDPOINT
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        source = _EMULATOR if is_emulator else "the storage option endpoint_url"
        msg = f"{source} must be a URL such as {ENDPOINT}; came {endpoint!r}"
        raise SchemaError(msg)
    folder = folder.strip("/")
    return Place(bucket, f"{folder}/" if folder else "", endpoint, is_emulator), options


def has_keys(place: Place, options: Options) -> bool:
    """Tell whether HMAC keys are the way in: they are given, and nothing else is.

    Keys in the environment do not count for an emulator, whose other language is not complete.

    Raises `SchemaError` if only one half of a pair is given.
    """
    variables = not place.is_emulator and all(os.environ.get(v) for v in ("GCS_KEY", "GCS_SECRET"))
    pair = [bool(options.get(name)) for name in ("hmac_key_id", "hmac_secret")]
    if any(pair) and not all(pair):
        msg = "give both storage options hmac_key_id and hmac_secret, or none of them"
        raise SchemaError(msg)
    return all(pair) or (variables and not any(options.get(name) for name in _IDENTITIES))


def project_of(options: Options, name: str) -> str:
    """Return the project that an option names; empty if it is not given.

    Raises `SchemaError` if it is no name of a project.
    """
    text = str(options.get(name, default=""))
    if text and _PROJECT.fullmatch(text) is None:
        msg = f"the storage option {name} must be the name of a project; came {text!r}"
        raise SchemaError(msg)
    return text


def no_bucket(what: str, root: str, error: RefusedError) -> LastingError:
    """Return the error that says that a bucket is missing, not an object."""
    return LastingError(
        f"{what}: there is no bucket {root!r} ({error}); check its name, or make it"
    )


def plain(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the body of an error, expanded if it was compressed for the way.

    Example:
        >>> import gzip
        >>> plain({"content-encoding": "gzip"}, gzip.compress(b"No such object"))
        b'No such object'
    """
    if headers.get("content-encoding", "") != "gzip":
        return body
    try:
        return zlib.decompressobj(_GZIP).decompress(body, _MOST_BYTES)
    except zlib.error:
        return b""
