"""Files behind a plain web server: `http://` and `https://`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from streaming_core._store._contract import ObjectInfo, byte_views, check_key, check_prefix
from streaming_core._store._http._gate import (
    Call,
    Gate,
    Refusal,
    RefusedError,
    connection_options,
    sent,
)
from streaming_core._store._http._store import HttpStore
from streaming_core._store._http._wire import basic
from streaming_core._store._options import Options
from streaming_core._store._resolve import public_url
from streaming_core.errors import ObjectNotFoundError, SchemaError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming_core._store._contract import Buffer
    from streaming_core._store._options import StorageOptions

__all__ = ["WebStore", "web_from_url"]

_ABSENT: Final = frozenset({404, 410})
_CONFLICT: Final = 409
_EXISTS: Final = 412
_IN_PATHS: Final = "/%!$&'()*+,;=:@-._~"
"""What may stand in the path of a URL as it is."""


class _WebGate(Gate):
    """A web server, with headers and a query that every request carries."""

    def __init__(self, endpoint: str, options: Options, url_options: Options) -> None:
        super().__init__(endpoint, **connection_options(options))
        self._options = options
        self._url_options = url_options

    def signed(self, call: Call) -> Call:
        """Add what URL and options said of user, headers and query."""
        sent.proof = self._options.renewals
        headers: dict[str, str] = {
            **self._url_options.get("headers", default={}),
            **self._options.get("headers", default={}),
        }
        query: Mapping[str, str] = self._url_options.get("query", default={})
        return call._replace(
            headers=headers | dict(call.headers),
            query={**query, **call.query},
            secret_headers=headers.keys(),
        )

    def renew(self) -> bool:
        """Ask for other headers."""
        return self._options.renew(sent.proof)


class WebStore(HttpStore):
    """The files below a URL.

    Reading needs a plain web server only; writing needs one that takes `PUT` and `DELETE`, such as
    WebDAV. There is no listing: an index says which files there are.

    Example:
        >>> WebStore.at("https://user:secret@example.org/data?token=1")
        WebStore('https://example.org/data')
    """

    __slots__ = ()

    @classmethod
    def at(cls, url: str, options: StorageOptions | None = None) -> WebStore:
        """Return the store at a URL; its user, password and query go with every request.

        Options: `headers` to send with every request, `ca_file`, the certificates to trust, and
        `allow_http`, see `connection_options`.
        """
        try:
            parts = urlsplit(url)
        except ValueError as error:  # brackets that are no IPv6 address; it may repeat secrets
            msg = (
                f"{public_url(url)!r} is no URL: the host is malformed; write "
                "http://host:port/folder, an IPv6 address in brackets as in http://[::1]:80/folder"
            )
            raise SchemaError(msg) from (None if "@" in url else error)
        said: dict[str, Mapping[str, str]] = {}
        if parts.query:
            said["query"] = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.username is not None:
            password = unquote(parts.password or "")
            said["headers"] = {"Authorization": basic(unquote(parts.username), password)}
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        try:
            gate = _WebGate(
                place,
                Options(options, known={"allow_http", "ca_file"}, secret={"headers"}),
                Options(said, known=(), secret={"headers", "query"}),
            )
        except ValueError as error:
            msg = f"{place!r} cannot be read from: {error}"
            raise SchemaError(msg) from error
        return cls(gate, place + quote(parts.path, safe=_IN_PATHS), "")

    @property
    def url(self) -> str:
        """The store's root, percent-encoded, without secrets."""
        return f"{self._root}/{quote(self._prefix)}".rstrip("/")

    def _path(self, key: str) -> str:
        return f"{urlsplit(self._root).path}/{quote(self._prefix + key)}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Raise `StoreError`: web servers have no listing that all agree on."""
        check_prefix(prefix, url=self.url)
        msg = (
            f"list in {self.url}: a web server has no listing; name the files, or give the URL of "
            "an object store"
        )
        raise StoreError(msg)

    def put(self, key: str, buffers: Sequence[Buffer], *, if_absent: bool = False) -> ObjectInfo:
        """Send the file with `PUT`; see `Store.put`.

        With `if_absent` it asks first whether the file exists, because not all servers know the
        condition that goes with the request; those that do keep apart two who put at once as well.
        """
        check_key(key, url=self.url, operation="put")
        views = byte_views(buffers)
        headers = {"If-None-Match": "*"} if if_absent else {}
        call = Call("PUT", self._path(key), headers=headers, body=views, once=if_absent)
        with self._errors(key, "put"):
            if if_absent:
                self._refuse_existing(key)
            with self._gate.send(call) as answer:
                etag = answer.headers.get("etag", "")
        return ObjectInfo(key, sum(map(len, views)), etag) if etag else self.head(key)

    def _refuse_existing(self, key: str) -> None:
        try:
            self._gate.send(Call("HEAD", self._path(key))).close()
        except RefusedError as error:
            if error.status not in _ABSENT:
                raise
            return
        raise RefusedError(_EXISTS, {}, Refusal())

    def delete(self, key: str) -> None:
        """Remove the file with `DELETE`; a missing one is fine."""
        check_key(key, url=self.url, operation="delete")
        with self._errors(key, "delete"):
            try:
                self._gate.send(Call("DELETE", self._path(key))).close()
            except RefusedError as error:
                if error.status not in _ABSENT and not self._is_folder(key, error.status):
                    raise

    def _is_folder(self, key: str, status: int) -> bool:
        """Tell whether a refusal is about a folder, which is nothing that could be deleted."""
        if status != _CONFLICT:
            return False
        try:
            self.head(key)
        except ObjectNotFoundError:
            return True
        return False


def web_from_url(url: str, options: StorageOptions | None = None) -> WebStore:
    """Return the store that an `http://` or `https://` URL names; see `WebStore.at`."""
    return WebStore.at(url, options)
