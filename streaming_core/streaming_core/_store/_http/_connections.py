"""Connections of this process: made through proxies and TLS, kept for the next request."""

from __future__ import annotations

import http.client
import ipaddress
import os
import select
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from streaming_core._store._http._incoming import Incoming, WireError

__all__ = [
    "Connection",
    "Key",
    "Origin",
    "Timeouts",
    "UntrustedError",
    "basic",
    "connected",
    "is_local",
    "kept",
    "key_of",
    "proxy_headers",
    "through_proxy",
]

_MOST_IDLE: Final = 32
_IDLE_SECONDS: Final = 30.0
"""Nobody tells us of a connection that a router forgot; after so long it is not worth the risk."""
_PORTS: Final = {"http": 80, "https": 443}
_CA_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_VARIABLES: Final = {
    "http": ("http_proxy", "HTTP_PROXY", "REQUEST_METHOD"),
    "https": ("https_proxy", "HTTPS_PROXY"),
}


_ALL_VARIABLES: Final = ("all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


class UntrustedError(WireError):
    """The settings do not permit this connection or request; trying again cannot help."""


class Origin(NamedTuple):
    """Whom to connect to.

    Example:
        >>> Origin.of("http://127.0.0.1:9000/bucket").text
        'http://127.0.0.1:9000'
    """

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the origin of an `http://` or `https://` URL; `ValueError` if it has none."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            msg = "not a URL with http:// or https:// and a host"
            raise ValueError(msg)
        return cls(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])

    @property
    def authority(self) -> str:
        """Host and port, as the `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The beginning of its URLs."""
        return f"{self.scheme}://{self.authority}"


class Timeouts(NamedTuple):
    """How long nothing may happen, in seconds; how long it takes in all is nobody's business."""

    connect: float = 10.0
    """Until a connection stands."""
    stall: float = 30.0
    """Until the next byte comes, or goes."""


class Key(NamedTuple):
    """What connections have in common that can stand in for each other."""

    origin: Origin
    proxy: str | None
    ca_file: str | None


class Connection:
    """One connection, of which the process knows as long as it is open."""

    __slots__ = ("incoming", "since", "socket")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        """To send on."""
        self.incoming = Incoming(connected)
        """What comes."""
        self.since = 0.0
        """When it was last given back, by the monotonic clock."""

    def close(self) -> None:
        """End it for good.

        A forked child may hold it open without knowing, so the other side is told here.
        """
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def is_quiet(self) -> bool:
        """Tell whether it is open and has nothing to read, as it should between requests."""
        if self.socket.fileno() < 0:
            return False
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return False  # it has been taken from the system and deciphered already
        if not hasattr(select, "poll"):
            return not select.select([self.socket], [], [], 0)[0]
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)


class _Kept:
    """Connections of this process that wait for their next request, and all that are open."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._idle: dict[Key, list[Connection]] = {}
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def forget(self) -> None:
        """Begin with none, in a forked child; those of its parent are not to be touched.

        Its copies of the parent's descriptors are closed, which the parent's connections do not
        notice. They are taken from their sockets first: none may close a number twice.
        """
        self._guard = threading.Lock()
        for one in [*self._sockets]:
            descriptor = one.detach()
            if descriptor >= 0:
                os.close(descriptor)
        self._idle = {}
        self._sockets = weakref.WeakSet()

    def note(self, connection: Connection) -> None:
        """Remember one that was opened."""
        with self._guard:
            self._sockets.add(connection.socket)

    def take(self, key: Key) -> Connection | None:
        """Return the one that was used last, if it is still open."""
        while True:
            with self._guard:
                idle = self._idle.get(key)
                if not idle:
                    return None
                connection = idle.pop()
            if connection.is_quiet() and time.monotonic() - connection.since < _IDLE_SECONDS:
                return connection
            connection.close()  # the server has closed it, or said what nobody asked

    def give(self, key: Key, connection: Connection) -> None:
        """Keep one for later."""
        connection.since = time.monotonic()
        with self._guard:
            self._idle.setdefault(key, []).append(connection)
            old = self._taken_old(connection.since)
        for one in old:
            one.close()

    def _taken_old(self, now: float) -> list[Connection]:
        """Take out what has been idle for long, and what is too many; the oldest stand first."""
        old: list[Connection] = []
        for key, idle in [*self._idle.items()]:
            while idle and (len(idle) > _MOST_IDLE or now - idle[0].since >= _IDLE_SECONDS):
                old.append(idle.pop(0))
            if not idle:
                del self._idle[key]
        return old


kept = _Kept()
"""Those of this process."""
os.register_at_fork(after_in_child=kept.forget)


# --- making them ----------------------------------------------------------------------------------


def key_of(origin: Origin, ca_file: str | None) -> Key:
    """Return how the environment has an origin connected to, now."""
    get = os.environ.get
    proxy = _proxy(
        origin, tuple([get(name) for name in (*_PROXY_VARIABLES[origin.scheme], *_ALL_VARIABLES)])
    )
    if origin.scheme == "https" and not ca_file:
        found = (os.environ.get(name) for name in _CA_VARIABLES)
        ca_file = next((name for name in found if name), None)
    return Key(origin, proxy, ca_file)


def connected(key: Key, timeouts: Timeouts) -> Connection:
    """Open a connection; raises `OSError` or `http.client.HTTPException`."""
    origin = key.origin
    first = origin if key.proxy is None else _proxy_origin(key.proxy)
    made: http.client.HTTPConnection
    if origin.scheme == "https":
        made = http.client.HTTPSConnection(
            first.host, first.port, timeout=timeouts.connect, context=_tls(key.ca_file)
        )
        if key.proxy is not None:
            made.set_tunnel(origin.host, origin.port, proxy_headers(key.proxy))
    else:
        made = http.client.HTTPConnection(first.host, first.port, timeout=timeouts.connect)
    try:
        made.connect()
    except OSError as error:
        made.close()
        raise _unconnected(error, key) from error
    except BaseException:
        made.close()
        raise
    connection = Connection(made.sock)
    kept.note(connection)
    return connection


def _unconnected(error: OSError, key: Key) -> WireError:
    """Return the error that says to whom there is no connection, and what may help."""
    origin, said = key.origin, f"{type(error).__name__}: {error}"
    host = origin.host if ":" not in origin.host else f"[{origin.host}]"
    place = f"{host}:{origin.port}{through_proxy(key)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        trusted = f"the certificates in {key.ca_file!r}" if key.ca_file else "this system"
        return UntrustedError(
            f"the certificate of {place} is not vouched for by {trusted} "
            f"(CERTIFICATE_VERIFY_FAILED: {error.verify_message}); "
            "if an authority of your own made it, name that one's certificate with the storage "
            f"option ca_file or with {' or '.join(_CA_VARIABLES)}; the host has to be called as "
            "the certificate calls it"
        )
    if isinstance(error, ssl.SSLError):
        return WireError(f"no TLS with {place}: {said}; check that this port speaks https")
    if isinstance(error, socket.gaierror):
        advice = "check the host's name in the URL or endpoint, and the network"
    else:
        advice = "check that the server runs there, and the URL or endpoint"
    if key.proxy is not None:
        advice = f"check the proxy, or name the host in no_proxy; {advice}"
    return WireError(f"no connection to {place}: {said}; {advice}")


def _named(origin: Origin) -> str:
    """Return the environment variable that names the proxy."""
    names = [f"{origin.scheme}_proxy", f"{origin.scheme.upper()}_PROXY", *_ALL_VARIABLES]
    return next(name for name in names if os.environ.get(name))


@lru_cache(maxsize=8)
def _tls(ca_file: str | None) -> ssl.SSLContext:
    if ca_file is None:
        return ssl.create_default_context()
    try:
        if os.path.isdir(ca_file):  # noqa: PTH112 - the text of an environment variable
            return ssl.create_default_context(capath=ca_file)
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        msg = (
            f"the certificates to trust in {ca_file!r} cannot be used: {error}; it is named by the "
            f"storage option ca_file, or by {' or '.join(_CA_VARIABLES)}, and must be a file of "
            "certificates in PEM form, or a folder of such"
        )
        raise UntrustedError(msg) from error


@lru_cache(maxsize=64)
def _proxy(origin: Origin, environment: tuple[str | None, ...]) -> str | None:
    """Return the URL of the proxy that the environment names for an origin."""
    del environment  # asked for below; given so that a change of it is noticed
    proxies = urllib.request.getproxies_environment()
    url = proxies.get(origin.scheme) or proxies.get("all")
    host = origin.host if ":" in origin.host else f"{origin.host}:{origin.port}"
    if not url or urllib.request.proxy_bypass_environment(host, proxies):  # type: ignore[attr-defined]
        return None
    if _is_in_network(origin.host, proxies.get("no", "")):
        return None
    return url if "://" in url else f"http://{url}"


def through_proxy(key: Key) -> str:
    """Return what to add to the name of an origin that is reached through a proxy, if it is."""
    if key.proxy is None:
        return ""
    proxy = _proxy_origin(key.proxy)
    return f" through the proxy {proxy.host}:{proxy.port}, which {_named(key.origin)} names"


def is_local(key: Key) -> bool:
    """Tell whether a connection goes to this machine itself, and not through a proxy.

    Example:
        >>> is_local(Key(Origin("http", "localhost", 80), None, None))
        True
        >>> is_local(Key(Origin("http", "localhost", 80), "http://proxy:3128", None))
        False
    """
    return key.proxy is None and _is_loopback(key.origin.host)


def _is_loopback(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_loopback
    name = host.lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_in_network(host: str, no_proxy: str) -> bool:
    """Tell whether `no_proxy` has a network, such as 10.0.0.0/8, that an address lies in."""
    address = _address(host)
    for entry in no_proxy.split(","):
        if "/" not in entry:
            continue
        try:
            network = ipaddress.ip_network(entry.strip(), strict=False)
        except ValueError as error:
            msg = f"no_proxy: expected a network such as 10.0.0.0/8, got {entry.strip()!r}"
            raise UntrustedError(msg) from error
        if address is not None and address in network:
            return True
    return False


def _proxy_origin(proxy: str) -> Origin:
    kind, _, _ = proxy.partition("://")
    try:
        if kind.lower() == "http":
            return Origin.of(f"http://{urlsplit(proxy).netloc.rpartition('@')[2]}")
    except ValueError:
        pass
    msg = (
        f"the environment names a proxy of the kind {kind!r} that cannot be used; "
        "wanted is http://[user:password@]host:port, or the host in no_proxy"
    )
    raise UntrustedError(msg)


def proxy_headers(proxy: str | None) -> dict[str, str]:
    """Return what a proxy wants to see of user and password."""
    parts = urlsplit(proxy or "")
    if parts.username is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(parts.username), unquote(parts.password or ""))}


def basic(user: str, password: str) -> str:
    """Return the value of an authorisation header for user and password.

    Example:
        >>> basic("user", "secret")
        'Basic dXNlcjpzZWNyZXQ='
    """
    import base64  # noqa: PLC0415 - rarely needed

    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
